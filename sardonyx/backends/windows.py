"""Windows over the last axes of an array, by slices alone, so that any library's arrays will do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product
from typing import Any, NamedTuple, TypeAlias

from sardonyx.backends.standard import Array

Combine: TypeAlias = Callable[[Any, Any], Any]

# A longer side is put together of parts instead of single elements.
LONG_SIDE = 32


class WindowLayout(NamedTuple):
    """Windows over padded axes.

    >>> WindowLayout((3, 3), (2, 2), (1, 1), ((1, 1), (0, 0))).sizes((8, 9))
    (4, 4)
    """

    kernel: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]
    pads: Sequence[tuple[int, int]]

    def sizes(self, spatial: Sequence[int]) -> tuple[int, ...]:
        """How many windows there are along axes of these lengths."""
        padded = [size + sum(ends) for size, ends in zip(spatial, self.pads, strict=True)]
        return output_sizes(padded, self.kernel, self.strides, self.dilations)


def views(
    x: Array, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[Array]:
    """One strided view of `x` per element of the kernel, all of the output's size."""
    lead = (slice(None),) * (x.ndim - len(kernel))
    sizes = output_sizes(x.shape[len(lead) :], kernel, strides, dilations)
    views = []
    for offsets in product(*map(range, kernel)):
        cut = (
            slice(o * d, o * d + (size - 1) * s + 1, s)
            for o, d, size, s in zip(offsets, dilations, sizes, strides, strict=True)
        )
        views.append(x[(*lead, *cut)])
    return views


def output_sizes(
    sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[int, ...]:
    """How many windows fit on each axis."""
    return tuple(
        (size - d * (k - 1) - 1) // s + 1
        for size, k, s, d in zip(sizes, kernel, strides, dilations, strict=True)
    )


def reduced(
    combine: Combine,
    x: Array,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> Array:
    """One axis after the other, which costs the sum of the kernel's sides and not their product."""
    for i, (side, stride, dilation) in enumerate(zip(kernel, strides, dilations, strict=True)):
        beyond = (1,) * (len(kernel) - i - 1)
        if side > LONG_SIDE:
            x = _along_long_side(combine, x, x.ndim - len(beyond) - 1, side, stride, dilation)
            continue
        along = views(x, (side, *beyond), (stride, *beyond), (dilation, *beyond))
        x = reduce(combine, along)
    return x


def _along_long_side(
    combine: Combine, x: Array, axis: int, side: int, stride: int, dilation: int
) -> Array:
    """Combine parts of 1, 2, 4, ... elements to windows, as the bits of `side` say."""

    def cut(part: Array, start: int, size: int, step: int = 1) -> Array:
        return part[(*(slice(None),) * axis, slice(start, start + size, step), ...)]

    size = x.shape[axis] - dilation * (side - 1)
    parts: list[Array] = []
    start, reach, part = 0, dilation, x
    while side:
        if side & 1:
            parts.append(cut(part, start, size, stride))
            start += reach
        side >>= 1
        if side:
            rest = part.shape[axis] - reach
            part = combine(cut(part, 0, rest), cut(part, reach, rest))
            reach *= 2
    return reduce(combine, parts)
