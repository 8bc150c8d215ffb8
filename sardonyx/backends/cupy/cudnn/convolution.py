"""Convolutions as graphs of cuDNN."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from sardonyx.backends.cupy.cudnn.frontend import data_type, has_type, new_graph
from sardonyx.backends.executable import Spec
from sardonyx.backends.standard import Shape
from sardonyx.backends.windows import output_sizes

X, WEIGHT, RESULT = 1, 2, 3
# Larger arrays need indices that not all of cuDNN's kernels have.
MOST_ELEMENTS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ConvolutionKey:
    """A convolution over two or three axes, without padding."""

    x: Shape
    weight: Shape
    dtype: np.dtype[Any]
    strides: Shape
    dilations: Shape

    @property
    def result(self) -> Shape:
        sizes = output_sizes(self.x[2:], self.weight[2:], self.strides, self.dilations)
        return (self.x[0], self.weight[0], *sizes)

    def build(self, cudnn: Any, handle: Any) -> Any:
        graph = new_graph(cudnn, handle, self.dtype)
        x, weight = (
            graph.tensor(
                dim=list(shape),
                stride=row_major(shape),
                data_type=data_type(cudnn, self.dtype),
                uid=number,
            )
            for number, shape in ((X, self.x), (WEIGHT, self.weight))
        )
        none = [0] * len(self.strides)
        result = graph.conv_fprop(
            image=x,
            weight=weight,
            pre_padding=none,
            post_padding=none,
            stride=list(self.strides),
            dilation=list(self.dilations),
        )
        write_to(result, RESULT, self.result, data_type(cudnn, self.dtype))
        return graph


@lru_cache(maxsize=1024)
def convolution_key(
    x: Spec, weight: Spec, *, strides: Shape, dilations: Shape, groups: int
) -> ConvolutionKey | None:
    """Return the key of a convolution that cuDNN may be the best for.

    Windows of one element are a product of matrices, and channels with filters of their own have
    kernels that compute what follows too.
    """
    rank = len(weight.shape) - 2
    is_product = math.prod(weight.shape[2:]) == 1 and set(strides) == {1}
    if rank > 3 or is_product or (groups > 1 and weight.shape[1] == 1):
        return None
    if x.dtype != weight.dtype or not has_type(x.dtype):
        return None
    first = (1,) * (2 - rank)
    key = ConvolutionKey(
        x=(*x.shape[:2], *first, *x.shape[2:]),
        weight=(*weight.shape[:2], *first, *weight.shape[2:]),
        dtype=x.dtype,
        strides=(*first, *(int(n) for n in strides)),
        dilations=(*first, *(int(n) for n in dilations)),
    )
    sizes = [math.prod(shape) for shape in (key.x, key.weight, key.result)]
    is_empty = min(*key.x, *key.weight, *key.result) < 1
    return key if not is_empty and max(sizes) <= MOST_ELEMENTS else None


def row_major(shape: Shape) -> list[int]:
    """Return the strides of a row-major array, in elements."""
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def write_to(tensor: Any, number: int, shape: Shape, kind: Any) -> None:
    """Let a graph's tensor be a row-major array of this number."""
    tensor.set_output(True).set_uid(number).set_data_type(kind)
    tensor.set_dim(list(shape)).set_stride(row_major(shape))
