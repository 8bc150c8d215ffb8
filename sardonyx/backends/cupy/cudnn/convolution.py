"""Convolutions as graphs of cuDNN, with a bias, an added array and ReLU in the same kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from sardonyx.backends.column_bands import column_bytes
from sardonyx.backends.cupy.cudnn.frontend import data_type, has_type, new_graph
from sardonyx.backends.executable import Spec
from sardonyx.backends.fused_epilogue import NOTHING, Epilogue
from sardonyx.backends.standard import Shape
from sardonyx.backends.windows import output_sizes

X, WEIGHT, RESULT, BIAS, ADDEND, LEAST = 1, 2, 3, 4, 5, 6
# Larger arrays need indices that not all of cuDNN's kernels have.
MOST_ELEMENTS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ConvolutionKey:
    """A convolution over two or three axes, with as much padding before as after each."""

    x: Shape
    weight: Shape
    dtype: np.dtype[Any]
    strides: Shape
    dilations: Shape
    padding: Shape
    epilogue: Epilogue = NOTHING
    # Whether the maximum with a number comes last, with 0 for ReLU: the frontend limits ReLU to
    # finite numbers. Without an activation it is the maximum with -inf, which changes nothing, and
    # leads to kernels that may treat NaN in another way.
    takes_maximum: bool = False
    # Whether zeros are added as a bias: cuDNN has kernels for a bias, but not for all that follows
    # without one.
    adds_zeros: bool = False
    # Whether the channels are the last axis of all arrays in memory. Sizes are in cuDNN's order.
    is_channels_last: bool = False

    def in_memory(self, shape: Shape) -> Shape:
        """The shape of an array (N, C, *sizes) as it lies in memory."""
        return channels_last(shape) if self.is_channels_last else shape

    def _steps(self, shape: Shape) -> list[int]:
        steps = row_major(self.in_memory(shape))
        return [steps[0], steps[-1], *steps[1:-1]] if self.is_channels_last else steps

    @property
    def forms(self) -> tuple[ConvolutionKey, ...]:
        """The keys of the graphs that compute this, the one with the most kernels first."""
        if self.epilogue == NOTHING:
            return (self,)
        forms = (self, replace(self, takes_maximum=True))
        if self.epilogue.has_bias:
            return forms
        return (*forms, *(replace(form, adds_zeros=True) for form in forms))

    @property
    def has_bias(self) -> bool:
        """Whether the graph has one."""
        return self.epilogue.has_bias or self.adds_zeros

    @property
    def is_product(self) -> bool:
        """Whether the convolution itself is a product of matrices that lie in memory."""
        is_strided = any(self.padding) or set(self.strides) != {1}
        return math.prod(self.weight[2:]) == 1 and not is_strided and not self.is_channels_last

    @property
    def column_bytes(self) -> int:
        """The bytes of the columns that a product takes in place of the image."""
        if self.is_product:
            return 0
        each = column_bytes(self.x[1], self.weight[2:], self.dtype)
        return each * self.x[0] * math.prod(self.result[2:])

    @property
    def result(self) -> Shape:
        padded = [size + 2 * width for size, width in zip(self.x[2:], self.padding, strict=True)]
        sizes = output_sizes(padded, self.weight[2:], self.strides, self.dilations)
        return (self.x[0], self.weight[0], *sizes)

    @property
    def bias(self) -> Shape:
        return (1, self.weight[0], *(1,) * len(self.strides))

    @property
    def title(self) -> str:
        epilogue = self.epilogue
        more = ["a bias"] * epilogue.has_bias + ["an added array"] * (epilogue.addend is not None)
        more += ["ReLU"] * (epilogue.activation is not None)
        more += ["padding"] * any(self.padding)
        return f"a convolution with {' and '.join(more)}" if more else "a convolution"

    def build(self, cudnn: Any, handle: Any) -> Any:
        graph = new_graph(cudnn, handle, self.dtype)
        kind = data_type(cudnn, self.dtype)

        def tensor(number: int, shape: Shape) -> Any:
            options = {"data_type": kind, "uid": number}
            return graph.tensor(dim=list(shape), stride=self._steps(shape), **options)

        result = graph.conv_fprop(
            image=tensor(X, self.x),
            weight=tensor(WEIGHT, self.weight),
            pre_padding=list(self.padding),
            post_padding=list(self.padding),
            stride=list(self.strides),
            dilation=list(self.dilations),
        )
        steps = self._steps(self.result)

        def then(operation: Any, *operands: Any) -> Any:
            # By itself, the frontend puts the channels last in what it keeps between operations.
            result.set_dim(list(self.result)).set_stride(steps)
            return operation(result, *operands)

        # The array comes before the bias, as in the graphs for which cuDNN has compiled kernels.
        if self.epilogue.addend is not None:
            result = then(graph.add, tensor(ADDEND, self.result))
        if self.has_bias:
            result = then(graph.add, tensor(BIAS, self.bias))
        if self.takes_maximum:
            result = then(graph.max, self._least(cudnn, graph))
        elif self.epilogue.activation is not None:
            result = then(graph.relu)
        write_to(result, RESULT, self.result, kind, steps)
        return graph

    @property
    def least(self) -> np.ndarray[Any, Any]:
        """The number below which no result is, if the maximum comes last."""
        number = -np.inf if self.epilogue.activation is None else 0
        return np.full((), number, self.computed_in)

    def _least(self, cudnn: Any, graph: Any) -> Any:
        ones = [1] * len(self.x)
        kind = data_type(cudnn, self.computed_in)
        options = {"data_type": kind, "uid": LEAST, "is_pass_by_value": True}
        return graph.tensor(dim=ones, stride=ones, **options)

    @property
    def computed_in(self) -> np.dtype[Any]:
        return np.result_type(self.dtype, np.float32)


@lru_cache(maxsize=1024)
def convolution_key(
    x: Spec,
    weight: Spec,
    *,
    strides: Shape,
    dilations: Shape,
    groups: int,
    padding: Shape | None = None,
    epilogue: Epilogue = NOTHING,
    is_channels_last: bool = False,
) -> ConvolutionKey | None:
    """Return the key of a convolution that cuDNN may be the best for.

    Windows of one element are a product of matrices, unless more follows, and channels with
    filters of their own have kernels that compute what follows too.
    """
    rank = len(weight.shape) - 2
    padding = padding or (0,) * rank
    is_product = math.prod(weight.shape[2:]) == 1 and set(strides) == {1}
    is_plain = epilogue == NOTHING and not any(padding) and not is_channels_last
    if rank > 3 or (is_product and is_plain) or (groups > 1 and weight.shape[1] == 1):
        return None
    if x.dtype != weight.dtype or not has_type(x.dtype):
        return None
    first = 2 - rank
    key = ConvolutionKey(
        x=(*x.shape[:2], *(1,) * first, *x.shape[2:]),
        weight=(*weight.shape[:2], *(1,) * first, *weight.shape[2:]),
        dtype=x.dtype,
        strides=(*(1,) * first, *(int(n) for n in strides)),
        dilations=(*(1,) * first, *(int(n) for n in dilations)),
        padding=(*(0,) * first, *(int(n) for n in padding)),
        epilogue=epilogue,
        is_channels_last=is_channels_last,
    )
    sizes = [math.prod(shape) for shape in (key.x, key.weight, key.result)]
    is_empty = min(*key.x, *key.weight, *key.result) < 1
    return key if not is_empty and max(sizes) <= MOST_ELEMENTS else None


def key_with_epilogue(
    x: Spec,
    weight: Spec,
    others: Sequence[Spec],
    epilogue: Epilogue,
    *,
    pads: Sequence[tuple[int, int]],
    is_channels_last: bool = False,
    **layout: Any,
) -> ConvolutionKey | None:
    """Return the key of a convolution with an epilogue that cuDNN may have a kernel for.

    Padding of two widths is written before the call.
    """
    if is_channels_last:
        x, weight = (Spec(channels_first(spec.shape), spec.dtype) for spec in (x, weight))
    activation = None if epilogue.activation is None else epilogue.activation.function
    if activation not in (None, "relu") or epilogue.addend == "after":
        return None
    is_even = all(before == after for before, after in pads)
    is_plain = epilogue == NOTHING and not (is_even and any(map(any, pads)))
    if is_plain and not is_channels_last:
        return None
    if not is_even:
        sizes = [n + sum(pair) for n, pair in zip(x.shape[2:], pads, strict=True)]
        x = Spec((*x.shape[:2], *sizes), x.dtype)
    padding = tuple([before if is_even else 0 for before, _ in pads])
    key = convolution_key(
        x,
        weight,
        strides=tuple(layout["strides"]),
        dilations=tuple(layout["dilations"]),
        groups=layout["groups"],
        padding=padding,
        epilogue=epilogue,
        is_channels_last=is_channels_last,
    )
    if key is None or any(spec.dtype != key.dtype for spec in others):
        return None
    biases = [(weight.shape[0],)] if epilogue.has_bias else []
    rank = len(weight.shape) - 2
    added = key.in_memory((*key.result[:2], *key.result[len(key.result) - rank :]))
    addends = [] if epilogue.addend is None else [added]
    return key if [spec.shape for spec in others] == [*biases, *addends] else None


def row_major(shape: Shape) -> list[int]:
    """Return the strides of a row-major array, in elements."""
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def channels_last(shape: Shape) -> Shape:
    """(N, C, *sizes) as (N, *sizes, C)."""
    return (shape[0], *shape[2:], shape[1])


def channels_first(shape: Shape) -> Shape:
    """(N, *sizes, C) as (N, C, *sizes)."""
    return (shape[0], shape[-1], *shape[1:-1])


def write_to(
    tensor: Any, number: int, shape: Shape, kind: Any, steps: list[int] | None = None
) -> None:
    """Let a graph's tensor be an array of this number, row-major unless there are strides."""
    tensor.set_output(True).set_uid(number).set_data_type(kind)
    tensor.set_dim(list(shape)).set_stride(steps or row_major(shape))
