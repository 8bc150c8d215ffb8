"""Sums and means over axes beside each other, among kernels that run in one call.

Means over the pixels of images are such ones, as squeeze-and-excitation blocks have them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.backends.jax.onednn import loaded
from sardonyx.backends.jax.onednn.copies import dense
from sardonyx.backends.jax.onednn.points import of_elements
from sardonyx.backends.jax.onednn.threads import threads_of_calls


def summed(x: Any, axes: Sequence[int], *, keepdims: bool, threads: int | None = None) -> Any:
    """The sums of an array in float32 over axes that `can_be_summed`.

    >>> summed(np.ones((1, 2, 3, 4), np.float32), (2, 3), keepdims=False).tolist()
    [[12.0, 12.0]]
    """
    if not _is_for_kernel(x):
        reduce: Any = np.add.reduce
        return reduce(x, axis=tuple(axes), dtype=np.float32, keepdims=keepdims)
    threads = threads or threads_of_calls()
    order = _order_in_memory(x, axes)
    lying = dense(x.transpose(order), threads)
    first, last = order.index(min(axes)), order.index(max(axes)) + 1
    outer, inner = order[:first], order[last:]
    sizes = [math.prod(x.shape[axis] for axis in part) for part in (outer, axes, inner)]
    left = (*outer, *inner)
    y = np.empty([x.shape[axis] for axis in left], np.float32)
    loaded.compute(loaded.Kind.SUMS, (threads, *sizes), lying, y)
    result = y.transpose([left.index(axis) for axis in sorted(left)])
    return np.expand_dims(result, tuple(axes)) if keepdims else result


def averaged(x: Any, axes: Sequence[int], *, keepdims: bool, threads: int | None = None) -> Any:
    """The means over such axes.

    >>> averaged(np.ones((1, 2, 3, 4), np.float32), (2, 3), keepdims=False).tolist()
    [[1.0, 1.0]]
    """
    if not _is_for_kernel(x):
        return np.mean(x, axis=tuple(axes), dtype=np.float32, keepdims=keepdims)
    count = math.prod(x.shape[axis] for axis in axes)
    total = summed(x, axes, keepdims=keepdims, threads=threads)
    return of_elements(np.divide, total, float(count), threads=threads)


def can_be_summed(axes: Sequence[int]) -> bool:
    """Whether the axes are beside each other."""
    return len(axes) > 0 and max(axes) - min(axes) + 1 == len(axes) == len(set(axes))


def _is_for_kernel(x: Any) -> bool:
    can_join = loaded.will_be_joined() and loaded.has_lanes()
    return bool(can_join and x.dtype == np.float32 and x.size and x.flags.aligned)


def _order_in_memory(x: Any, axes: Sequence[int]) -> Sequence[int]:
    """The axes in an order in which the elements lie one after the other; else by rows.

    Those to be summed over stay beside each other.
    """
    order = sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis]))
    places = sorted(order.index(axis) for axis in axes)
    are_together = [order[place] for place in places] == sorted(axes) and can_be_summed(places)
    lies_so = x.transpose(order).flags.c_contiguous
    return order if are_together and lies_so else range(x.ndim)
