"""Normalization of rows as graphs of cuDNN."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import cupy
import ml_dtypes
import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.cupy.cudnn.calls import Call, aligned
from sardonyx.backends.cupy.cudnn.choosing import Trial, tried_out
from sardonyx.backends.cupy.cudnn.convolution import MOST_ELEMENTS, write_to
from sardonyx.backends.cupy.cudnn.frontend import data_type, new_graph
from sardonyx.backends.cupy.cudnn.plans import Plan, Refusal, plans_of
from sardonyx.backends.cupy.cudnn.trials import numbers
from sardonyx.backends.executable import Spec

X, SCALE, BIAS, EPSILON, RESULT = 1, 2, 3, 4, 5
DTYPES = frozenset(map(np.dtype, (np.float16, np.float32, ml_dtypes.bfloat16)))
FLOAT32 = np.dtype(np.float32)
USUAL_EPSILON = 1e-5


@dataclass(frozen=True, slots=True)
class NormalizationKey:
    """Layer normalization, or that by the root mean square, which does not centre."""

    rows: int
    length: int
    dtype: np.dtype[Any]
    has_bias: bool
    is_centred: bool

    def build(self, cudnn: Any, handle: Any) -> Any:
        graph = new_graph(cudnn, handle, self.dtype)
        kind = data_type(cudnn, self.dtype)
        steps = [self.length, 1, self.length, self.length]

        def tensor(number: int, rows: int) -> Any:
            options = {"data_type": kind, "uid": number}
            return graph.tensor(dim=[rows, self.length, 1, 1], stride=steps, **options)

        options = {"data_type": data_type(cudnn, FLOAT32), "is_pass_by_value": True}
        epsilon = graph.tensor(dim=[1] * 4, stride=[1] * 4, uid=EPSILON, **options)
        normalize = graph.layernorm if self.is_centred else graph.rmsnorm
        result, *_ = normalize(
            norm_forward_phase=cudnn.norm_forward_phase.INFERENCE,
            input=tensor(X, self.rows),
            scale=tensor(SCALE, 1),
            bias=tensor(BIAS, 1) if self.has_bias else None,
            epsilon=epsilon,
        )
        write_to(result, RESULT, (self.rows, self.length, 1, 1), kind, steps)
        return graph


def normalization_key(rows: Spec, *, has_bias: bool, is_centred: bool) -> NormalizationKey | None:
    """Return the key of a normalization that cuDNN may have a kernel for."""
    is_known = rows.dtype in DTYPES and has_bias == is_centred
    if not is_known or not 0 < math.prod(rows.shape) <= MOST_ELEMENTS:
        return None
    count, length = rows.shape
    return NormalizationKey(count, length, rows.dtype, has_bias, is_centred)


class Normalizations(Backend):
    """Of a segment's calls alone: step by step, rows are normalized by the op's own operations."""

    device: int

    def normalized_rows(
        self, x: Any, scale: Any, bias: Any, *, epsilon: float, is_centred: bool
    ) -> Any:
        length = scale.size
        key = NormalizationKey(x.size // length, length, x.dtype, bias is not None, is_centred)
        parameters = [array.reshape(-1) for array in (scale, bias) if array is not None]
        call = _call(key, x.reshape(-1, length), parameters, epsilon)
        return call.run(plans_of(self.device)).reshape(x.shape)

    def tried_normalization(self, key: NormalizationKey) -> Plan | Refusal:
        """Return the plan for a key, if it computes a trial as expected."""
        return tried_out(plans_of(self.device), key, partial(_trial, key))


def _trial(key: NormalizationKey) -> Trial:
    """A call with NaN in the first of several rows."""
    x = numbers((key.rows, key.length), key.dtype)
    if key.rows > 1:
        x[0, 0] = cupy.nan
    orders = range(1, 2 + key.has_bias)
    parameters = [numbers((key.length,), key.dtype, order=order) for order in orders]
    return Trial(_call(key, x, parameters, USUAL_EPSILON))


def _call(key: NormalizationKey, x: Any, parameters: list[Any], epsilon: float) -> Call:
    def arrays() -> dict[int, Any]:
        operands = map(aligned, (x, *parameters))
        named = dict(zip((X, SCALE, BIAS), operands, strict=False))
        return {
            **named,
            EPSILON: np.asarray(epsilon, FLOAT32),
            RESULT: cupy.empty(x.shape, x.dtype),
        }

    otherwise = partial(_by_parts, x, parameters, epsilon, key.is_centred)
    return Call(key, arrays, RESULT, otherwise, expected=otherwise)


def _by_parts(x: Any, parameters: list[Any], epsilon: float, is_centred: bool) -> Any:
    wide = x.astype(FLOAT32)
    if is_centred:
        wide -= wide.mean(axis=-1, keepdims=True)
    root = cupy.sqrt(cupy.square(wide).mean(axis=-1, keepdims=True) + FLOAT32.type(epsilon))
    y = (wide / root).astype(x.dtype) * parameters[0]
    return y + parameters[1] if len(parameters) > 1 else y
