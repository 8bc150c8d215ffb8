"""Quantization with the derivatives of no quantization at all, but for what is cut off.

What is quantized and undone at once has the values of the standard, and a slope of one where no
bound was met. Its scale learns from what rounding moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.dtypes import isdtype
from sardonyx.backends.standard import Array
from sardonyx.ops import quantization
from sardonyx.ops.definition import DType, Op, Value, Walk, op

FLOAT32 = np.dtype(np.float32)


@dataclass(frozen=True, slots=True)
class Manner:
    """The attributes of a node."""

    axis: int = 1
    block_size: int = 0
    output_dtype: DType | None = None
    precision: DType | None = None
    saturate: int = 1

    def quantized(self, xp: Backend, *given: Array) -> Array:
        return quantization.QuantizeLinear(
            xp,
            *given,
            axis=self.axis,
            block_size=self.block_size,
            output_dtype=self.output_dtype,
            precision=self.precision,
            saturate=self.saturate,
        )

    def restored(self, xp: Backend, *given: Array) -> Array:
        return quantization.DequantizeLinear(
            xp,
            *given,
            axis=self.axis,
            block_size=self.block_size,
            output_dtype=self.output_dtype,
        )

    def spread(self, xp: Backend, value: Array, x: Array) -> Array:
        numbers = xp.astype(value, xp.dtype(FLOAT32))
        return quantization.spread(xp, numbers, x.shape, self.axis, self.block_size)


@dataclass(frozen=True, eq=False, slots=True)
class Quantized:
    """What a value was before, and how it came to be quantized."""

    given: tuple[Value, ...]
    manner: Manner


@op
def QuantizeLinear(
    walk: Walk,
    x: Value,
    y_scale: Value,
    y_zero_point: Value = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: DType | None = None,
    precision: DType | None = None,
    saturate: int = 1,
) -> Value:
    manner = Manner(axis, block_size, output_dtype, precision, saturate)
    given = _present(x, y_scale, y_zero_point)
    made = walk.apply(_quantize, *given, manner=manner)
    walk.note(made[0], Quantized(given, manner))
    return made


@op
def DynamicQuantizeLinear(walk: Walk, x: Value) -> Value:
    made = walk.apply(quantization.DynamicQuantizeLinear, x)
    walk.note(made[0], Quantized((x, made[1], made[2]), Manner()))
    return made


@op
def DequantizeLinear(
    walk: Walk,
    x: Value,
    x_scale: Value,
    x_zero_point: Value = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: DType | None = None,
) -> Value:
    manner = Manner(axis, block_size, output_dtype)
    before = walk.noted(x)
    if before is None:
        return walk.apply(_restore, *_present(x, x_scale, x_zero_point), manner=manner)
    by = _present(x_scale, x_zero_point)
    count = len(before.given)
    manners = {"quantizing": before.manner, "restoring": manner}
    return walk.apply(_straight, *before.given, *by, count=count, **manners)


STRAIGHT_THROUGH: Mapping[tuple[str, str], Op[Any]] = MappingProxyType(
    {(op.domain, op.name): op for op in (QuantizeLinear, DynamicQuantizeLinear, DequantizeLinear)}
)


def _present(*values: Value) -> tuple[Value, ...]:
    return tuple(value for value in values if value is not None)


def _quantize(xp: Backend, *given: Array, manner: Manner) -> Array:
    return manner.quantized(xp, *given)


def _restore(xp: Backend, *given: Array, manner: Manner) -> Array:
    return manner.restored(xp, *given)


def _straight(
    xp: Backend, *arrays: Array, count: int, quantizing: Manner, restoring: Manner
) -> Array:
    (x, *by), (scale, *zero) = arrays[:count], arrays[count:]
    quantized = quantizing.quantized(xp, x, *by)
    exact = restoring.restored(xp, quantized, scale, *zero)
    smooth = _smooth(xp, x, by, quantized, quantizing)
    if zero:
        smooth = smooth - xp.detached(restoring.spread(xp, zero[0], x))
    smooth = xp.astype(smooth * restoring.spread(xp, scale, x), exact.dtype)
    # To the last bit what the standard says, with the other's derivatives.
    return xp.detached(exact) + (smooth - xp.detached(smooth))


def _smooth(xp: Backend, x: Array, by: list[Array], quantized: Array, manner: Manner) -> Array:
    """The quantized numbers as floats, which move with `x` where no bound was met."""
    found = xp.detached(xp.astype(quantized, xp.dtype(FLOAT32)))
    place = xp.astype(x, xp.dtype(FLOAT32)) / manner.spread(xp, by[0], x)
    if len(by) > 1:
        place = place + xp.detached(manner.spread(xp, by[1], x))
    least, greatest = _bounds(xp.numpy_dtype(quantized.dtype))
    is_within = xp.logical_and(place >= least, place <= greatest)
    return xp.where(is_within, place + xp.detached(found - place), found)


def _bounds(dtype: DType) -> tuple[float, float]:
    """Between which numbers rounding leads to this type, and nothing is cut off."""
    if isdtype(dtype, "integral"):
        whole = ml_dtypes.iinfo(dtype)
        return float(whole.min) - 0.5, float(whole.max) + 0.5
    limits = ml_dtypes.finfo(dtype)
    return float(limits.min), float(limits.max)
