"""Strides: how far apart in memory neighbours on each axis lie.

Strides are counted in elements. The stride of an axis of size 1 says nothing, and no element of an
empty array lies anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

from sardonyx.backends.standard import Shape


def dense_strides(shape: Sequence[int]) -> Shape:
    """Those of a packed array in row-major order.

    >>> dense_strides((2, 3, 4))
    (12, 4, 1)
    """
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def same_layout(shape: Sequence[int], one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether both put each element of `shape` into the same place."""
    return 0 in shape or all(
        a == b for size, a, b in zip(shape, one, other, strict=True) if size > 1
    )


def extent(shape: Sequence[int], strides: Sequence[int]) -> int:
    """From the first to the last element, both included.

    >>> extent((2, 3), (10, 1))
    13
    """
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))


def axis_order(shape: Sequence[int], strides: Sequence[int]) -> Shape | None:
    """The axes from the slowest to the fastest, if `strides` are those of a packed array.

    >>> axis_order((2, 3, 4), (1, 8, 2)), axis_order((2, 3), (4, 1))
    ((1, 2, 0), None)
    """
    order = tuple(sorted(range(len(shape)), key=lambda axis: (-strides[axis], axis)))
    packed = dense_strides([shape[axis] for axis in order])
    ordered = [strides[axis] for axis in order]
    return order if same_layout([shape[axis] for axis in order], packed, ordered) else None


def overlap(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether two elements lie in one place.

    >>> overlap((2, 3), (3, 1)), overlap((2, 3), (2, 1)), overlap((3, 2), (2, 3))
    (False, True, False)
    """
    axes = [(abs(step), size) for size, step in zip(shape, strides, strict=True) if size > 1]
    if 0 in shape or _nested(axes):
        return False
    count = math.prod(size for _, size in axes)
    steps, sizes = [step for step, _ in axes], [size for _, size in axes]
    if count > extent(sizes, steps):
        return True
    places = (sum(map(int.__mul__, at, steps)) for at in product(*map(range, sizes)))
    return len(set(places)) < count


def _nested(axes: list[tuple[int, int]]) -> bool:
    """Whether each axis steps over all that the faster ones span, as is usual."""
    spanned = 0
    for step, size in sorted(axes):
        if step <= spanned:
            return False
        spanned += step * (size - 1)
    return True
