"""The boxes that non-maximum suppression selects, where the best few of each class settle it.

NumPy takes some fifty operations for them, whose own time is most of it. In a program they are few
kernels, in the forms that XLA for CPUs computes fast: one sort of integers, and sets of boxes as
the bits of integers.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from sardonyx.backends.operations.indexing import MOST_BEGUN, NOT_SELECTED, UNSETTLED

# The key of a box that cannot be selected.
NO_BOX = np.iinfo(np.int64).max
# Sets are put together from parts that float32 holds.
BITS_OF_PART = 16


def first_selected(
    boxes: Any, scores: Any, limit: Any, threshold: Any, least: Any, *, has_centres: bool
) -> Any:
    """`Indexing.first_selected` of arrays in float32."""
    images, classes, count = scores.shape
    keys = lax.sort(_keys(scores.reshape(-1, count), least), dimension=1, is_stable=False)
    size = min(count, MOST_BEGUN)
    best = keys[:, :size]
    places = best & (2 ** _bits_of(count) - 1)
    wide = places.reshape(images, classes * size, 1)
    chosen = jnp.take_along_axis(boxes, wide, axis=1, mode="clip").reshape(-1, size, 4)
    overlapping = _sets(_overlap(chosen, threshold, has_centres))
    selected, number = _selected(overlapping, best < NO_BOX, limit)
    is_member = selected[:, None] & lax.shift_left(np.int64(1), np.arange(size)) != 0
    found = jnp.where(is_member, places, NOT_SELECTED)
    if count == size:
        return found
    is_settled = (keys[:, size] == NO_BOX) | (number >= limit)
    return jnp.where(jnp.all(is_settled), found, UNSETTLED)


def _bits_of(count: int) -> int:
    return max(count - 1, 1).bit_length()


def _keys(scores: Any, least: Any) -> Any:
    """Integers in the order of selection, each of a score and of a box: NaN is the least score."""
    ascending, is_nan = _as_integers(scores), jnp.isnan(scores)
    rank = jnp.where(is_nan, 2**31, -ascending)
    keys = (rank << _bits_of(scores.shape[1])) | lax.broadcasted_iota(np.int64, scores.shape, 1)
    if least is None:
        return keys
    is_confident = (ascending > _as_integers(least)) & ~(is_nan | jnp.isnan(least))
    return jnp.where(is_confident, keys, NO_BOX)


def _as_integers(x: Any) -> Any:
    """Floats as integers in the same order; XLA would take the smallest ones for zeros."""
    bits = jnp.asarray(x).view(np.int32)
    # Those of negative numbers lie in the opposite order.
    return jnp.where(bits < 0, np.iinfo(np.int32).min - bits, bits).astype(np.int64)


def _overlap(boxes: Any, threshold: Any, has_centres: bool) -> Any:
    """Whether each box overlaps each other one of its class by more than the threshold."""
    one, other = boxes[..., :2], boxes[..., 2:]
    if has_centres:
        half = other / 2
        low, high = one - half, one + half
    else:
        low, high = jnp.minimum(one, other), jnp.maximum(one, other)
    area = jnp.prod(high - low, -1)
    end = jnp.minimum(high[:, :, None], high[:, None])
    start = jnp.minimum(jnp.maximum(low[:, :, None], low[:, None]), end)
    shared = jnp.prod(end - start, -1)
    return shared / (area[:, :, None] + area[:, None] - shared) > threshold


def _sets(members: Any) -> Any:
    """Each row as an integer with a bit for each member: a product, which is a fast kernel."""
    size = members.shape[-1]
    place = np.arange(size)
    parts = np.zeros((size, -(-size // BITS_OF_PART)), np.float32)
    parts[place, place // BITS_OF_PART] = 2.0 ** (place % BITS_OF_PART)
    sums = jnp.matmul(members.astype(np.float32), parts, precision=lax.Precision.HIGHEST)
    words = sums.astype(np.int64) << (BITS_OF_PART * np.arange(parts.shape[1]))
    sets = words[..., 0]
    for part in range(1, parts.shape[1]):
        sets |= words[..., part]
    return sets


def _selected(overlapping: Any, is_there: Any, limit: Any) -> tuple[Any, Any]:
    """The set of the boxes that overlap none selected before them, and how many these are."""
    columns, candidates = overlapping.T, is_there.T
    nothing = jnp.zeros_like(columns[0])

    def step(place: Any, state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        free, selected, count = state
        is_free = (lax.shift_right_logical(free, jnp.asarray(place, np.int64)) & 1) != 0
        taken = jnp.where(is_free & candidates[place] & (count < limit), np.int64(1), 0)
        return free & ~(columns[place] & -taken), selected | (taken << place), count + taken

    # Written out, XLA would compute what a step reads twice anew each time.
    every = nothing - 1, nothing, nothing
    _, selected, count = lax.fori_loop(0, len(columns), step, every)
    return selected, count
