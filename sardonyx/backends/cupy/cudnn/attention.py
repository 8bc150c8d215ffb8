"""Attention as graphs of cuDNN, in types of 16 bits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from sardonyx.backends.cupy.cudnn.convolution import MOST_ELEMENTS, row_major, write_to
from sardonyx.backends.cupy.cudnn.frontend import data_type, has_type, new_graph
from sardonyx.backends.executable import Spec
from sardonyx.backends.standard import Shape

QUERIES, KEYS, VALUES, BIAS, RESULT = 1, 2, 3, 4, 5
# The sizes of heads that all of cuDNN's kernels take.
LARGEST_HEAD, MULTIPLE_OF = 128, 8


@dataclass(frozen=True, slots=True)
class AttentionKey:
    """Queries, keys and values of (batch, heads, length, size), and the bias's shape."""

    q: Shape
    k: Shape
    v: Shape
    bias: Shape | None
    dtype: np.dtype[Any]
    scale: float

    @property
    def result(self) -> Shape:
        return (*self.q[:-1], self.v[-1])

    def build(self, cudnn: Any, handle: Any) -> Any:
        graph = new_graph(cudnn, handle, self.dtype)
        kind = data_type(cudnn, self.dtype)

        def tensor(number: int, shape: Shape) -> Any:
            options = {"data_type": kind, "uid": number}
            return graph.tensor(dim=list(shape), stride=row_major(shape), **options)

        options = {"attn_scale": self.scale, "generate_stats": False}
        if self.bias is not None:
            options["bias"] = tensor(BIAS, self.bias)
        result, _ = graph.sdpa(
            q=tensor(QUERIES, self.q), k=tensor(KEYS, self.k), v=tensor(VALUES, self.v), **options
        )
        write_to(result, RESULT, self.result, kind)
        return graph


@lru_cache(maxsize=1024)
def attention_key(
    q: Spec, k: Spec, v: Spec, bias: Spec | None = None, *, scale: float
) -> AttentionKey | None:
    """Return the key of an attention that cuDNN's kernels take."""
    dtype, rank = q.dtype, len(q.shape)
    if dtype.itemsize != 2 or not has_type(dtype) or {k.dtype, v.dtype} != {dtype}:
        return None
    if not rank == len(k.shape) == len(v.shape) or rank not in (3, 4):
        return None
    if any(n % MULTIPLE_OF or n > LARGEST_HEAD for n in (q.shape[-1], v.shape[-1])):
        return None
    if bias is not None and (bias.dtype != dtype or len(bias.shape) > rank):
        return None
    queries, keys, values = (_of_four_axes(spec.shape) for spec in (q, k, v))
    scores = (*queries[:-1], keys[-2])
    biases = None if bias is None else (*_of_four_axes(bias.shape)[:2], *scores[2:])
    key = AttentionKey(queries, keys, values, biases, dtype, float(scale))
    sizes = [math.prod(shape) for shape in (key.q, key.k, key.v)]
    return key if min(sizes) > 0 and max(*sizes, math.prod(scores)) <= MOST_ELEMENTS else None


def _of_four_axes(shape: Shape) -> Shape:
    return (1,) * (4 - len(shape)) + shape
