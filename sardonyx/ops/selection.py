"""Operators that select elements by their values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import axis_within
from sardonyx.ops.definition import Host, Unsized, op
from sardonyx.ops.dtypes import INT64, UINT8
from sardonyx.ops.options import require_one_of
from sardonyx.ops.precision import wide

# -- the largest or smallest elements -------------------------------------------------------------


@op
def TopK(
    xp: Backend, X: Array, K: int, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Array, Array]:
    """Return the K extreme elements, always sorted; NaN counts as greater than any number."""
    axis = axis_within(axis, X.ndim)
    if not 0 <= K <= X.shape[axis]:
        raise ValueError(
            f"K is {K}, but must lie between 0 and {X.shape[axis]}, the size of axis {axis}"
        )
    places = xp.top_k(_comparable(xp, X), K, axis=axis, largest=bool(largest))
    return xp.take_along_axis(X, places, axis=axis), places


@TopK.before(10)
def top_k_of_an_attribute(xp: Backend, X: Array, *, k: int, axis: int = -1) -> tuple[Array, Array]:
    """Accept K as the attribute `k`."""
    values, places = TopK(xp, X, k, axis=axis)
    return values, places


def _comparable(xp: Backend, x: Array) -> Array:
    """Return `x` in a dtype that every library can sort; the order stays the same."""
    return xp.astype(x, xp.dtype(UINT8)) if xp.isdtype(x.dtype, "bool") else wide(xp, x)


# -- true or nonzero elements ---------------------------------------------------------------------


@op
def Compress(xp: Backend, input: Array, condition: Array, *, axis: int | None = None) -> Unsized:
    if condition.ndim != 1:
        raise ValueError(f"condition has shape {condition.shape}, but must have one axis")
    if axis is None:
        input, axis = xp.reshape(input, (-1,)), 0
    axis = axis_within(axis, input.ndim)
    (places,) = xp.nonzero(condition)
    is_longer = condition.size > input.shape[axis]
    if is_longer and bool(xp.any(places >= input.shape[axis])):
        raise ValueError(
            f"condition is true beyond the {input.shape[axis]} elements of axis {axis}"
        )
    return xp.take(input, places, axis=axis)


@op
def NonZero(xp: Backend, X: Array) -> Unsized:
    int64 = xp.dtype(INT64)
    places = xp.nonzero(X if X.ndim else xp.reshape(X, (1,)))
    if X.ndim:
        return xp.astype(xp.stack(places), int64)
    return xp.zeros((0, places[0].size), dtype=int64)


# -- distinct elements ----------------------------------------------------------------------------


@op
def Unique(
    xp: Backend, X: Array, *, axis: int | None = None, sorted: int = 1
) -> tuple[Unsized, Unsized, Unsized, Unsized]:
    """Return the distinct slices, each as it first occurs; NaN equals NaN, and zeros are equal."""
    if axis is None:
        X, axis = xp.reshape(X, (-1,)), 0
    axis = axis_within(axis, X.ndim)
    keys = _comparable(xp, X) if X.ndim == 1 else _ranks_of_slices(xp, X, axis)
    first, inverse, counts = xp.distinct(keys)
    if not sorted:
        by_place = xp.argsort(first)
        first, counts = (xp.take(x, by_place, axis=0) for x in (first, counts))
        inverse = xp.take(xp.argsort(by_place), inverse, axis=0)
    int64 = xp.dtype(INT64)
    first, inverse, counts = (xp.astype(x, int64) for x in (first, inverse, counts))
    return xp.take(X, first, axis=axis), first, inverse, counts


def _ranks_of_slices(xp: Backend, x: Array, axis: int) -> Array:
    """Return a number for each slice along an axis; numbers compare as the slices do.

    Neighbouring columns are merged in pairs, so that n columns take about log2(n) sorts.
    """
    rows = x.shape[axis]
    columns = x.size // rows if rows else 0
    x = xp.reshape(_comparable(xp, xp.moveaxis(x, axis, 0)), (rows, columns))
    ranks = xp.zeros((rows, 1), dtype=xp.dtype(INT64))
    if columns:
        ranks = _ranked(xp, x)
    while ranks.shape[1] > 1:
        left, right = ranks[:, ::2], xp.pad(ranks, [(0, 0), (0, ranks.shape[1] % 2)], 0)[:, 1::2]
        ranks = _ranked(xp, left * ranks.size + right)
    return ranks[:, 0]


def _ranked(xp: Backend, x: Array) -> Array:
    ranks = xp.ranks(*xp.runs(xp.reshape(x, (-1,))))
    return xp.reshape(ranks, x.shape)


# -- non-maximum suppression ----------------------------------------------------------------------


@op
def NonMaxSuppression(
    xp: Backend,
    boxes: Array,
    scores: Array,
    max_output_boxes_per_class: Array | None = None,
    iou_threshold: Array | None = None,
    score_threshold: Array | None = None,
    *,
    center_point_box: int = 0,
) -> Unsized:
    batches, count, numbers = _three(boxes, "boxes")
    if _three(scores, "scores")[::2] != (batches, count) or numbers != 4:
        raise ValueError(
            f"boxes have shape {boxes.shape} and scores {scores.shape}, but must be (batches, "
            "boxes, 4) and (batches, classes, boxes)"
        )
    limit = int(_number(xp, max_output_boxes_per_class, "max_output_boxes_per_class", 0))
    threshold = _number(xp, iou_threshold, "iou_threshold", 0.0)
    if not 0 <= threshold <= 1:
        raise ValueError(f"iou_threshold is {threshold}, but must lie between 0 and 1")
    least = _number(xp, score_threshold, "score_threshold", None)
    edges = _edges(xp, boxes, center_point_box)
    selected = [np.zeros((0, 3), np.int64)]
    for batch in range(batches if limit > 0 else 0):
        confident = [_by_score(xp, scores[batch, i, :], least) for i in range(scores.shape[1])]
        chosen = _selected_of_classes(xp, edges[batch, ...], confident, limit, threshold)
        for group, places in enumerate(chosen):
            triples = np.empty((len(places), 3), np.int64)
            triples[:, 0], triples[:, 1], triples[:, 2] = batch, group, places
            selected.append(triples)
    return xp.put(np.concatenate(selected))


def _three(x: Array, name: str) -> tuple[int, ...]:
    if x.ndim != 3:
        raise ValueError(f"{name} have shape {x.shape}, but must have three axes")
    return x.shape


def _number(xp: Backend, x: Array | None, name: str, default: Any) -> Any:
    if x is None:
        return default
    if x.size != 1:
        raise ValueError(f"{name} has shape {x.shape}, but must be one number")
    return xp.fetch(x).item()


def _edges(xp: Backend, boxes: Array, center_point_box: int) -> Array:
    """Return the lower and upper edges of the boxes, and their areas, as five rows per batch."""
    require_one_of("center_point_box", center_point_box, (0, 1))
    one, other = (xp.permute_dims(part, (0, 2, 1)) for part in (boxes[..., :2], boxes[..., 2:]))
    if center_point_box:
        low, high = one - other / 2, one + other / 2
    else:
        low, high = xp.minimum(one, other), xp.maximum(one, other)
    sides = high - low
    return xp.concat([low, high, sides[:, :1, :] * sides[:, 1:, :]], axis=1)


def _by_score(xp: Backend, scores: Array, least: float | None) -> Array:
    """Return the boxes above the threshold `least`, best first; equal ones keep their order."""
    if least is None:
        return xp.argsort(-scores, stable=True)
    (confident,) = xp.nonzero(scores > least)
    order = xp.argsort(-xp.take(scores, confident, axis=0), stable=True)
    return xp.take(confident, order, axis=0)


# Number of boxes that are compared with each other at once; fewer if few are wanted.
BLOCK = 256
FEWEST_OF_BLOCK = 64
# Number of boxes up to which all are compared once for all classes, if that is less work. What is
# known of more would not stay in the cache.
MOST_SHARED = 128


def _block_for(limit: int) -> int:
    return min(BLOCK, max(2 * limit, FEWEST_OF_BLOCK))


def _selected_of_classes(
    xp: Backend, edges: Array, confident: Sequence[Array], limit: int, threshold: float
) -> list[Host]:
    """Return the boxes that each class keeps of its confident ones, which are best first."""
    count, block = edges.shape[1], _block_for(limit)
    compared = sum(min(places.size, block) ** 2 for places in confident)
    if count <= MOST_SHARED and compared > count**2:
        # Boxes overlap the same in all classes. Rows that are contiguous take a fifth of the time.
        rows = xp.stack([edges[i, :] for i in range(edges.shape[0])])
        overlap = xp.fetch(_overlaps(xp, rows, rows, threshold))
        return [_selected_in_order(xp.fetch(each), overlap, limit) for each in confident]
    chosen = []
    for places in confident:
        kept = _selected(xp, xp.take(edges, places, axis=1), limit, threshold)
        chosen.append(xp.fetch(xp.take(places, xp.put(kept), axis=0)))
    return chosen


def _selected_in_order(order: Host, overlap: Host, limit: int) -> Host:
    """Return the first `limit` boxes in an order that overlap no earlier result."""
    packed = np.packbits(overlap, axis=1, bitorder="little")
    rows, width = packed.tobytes(), packed.shape[1]
    selected: list[int] = []
    taken = 0
    for place in order.tolist():
        if taken >> place & 1:
            continue
        selected.append(place)
        if len(selected) == limit:
            break
        taken |= int.from_bytes(rows[place * width : (place + 1) * width], "little")
    return np.asarray(selected, np.int64)


def _selected(xp: Backend, edges: Array, limit: int, threshold: float) -> Host:
    """Return the first `limit` boxes that overlap no box selected before them too much."""
    count, size = edges.shape[1], _block_for(limit)
    selected: list[int] = []
    for start in range(0, count, size):
        block = edges[:, start : min(start + size, count)]
        free = (1 << block.shape[1]) - 1
        if selected:
            before = xp.take(edges, xp.put(np.asarray(selected, np.int64)), axis=1)
            taken = xp.fetch(xp.any(_overlaps(xp, before, block, threshold), axis=0))
            free &= ~int.from_bytes(np.packbits(taken, bitorder="little").tobytes(), "little")
        overlap = xp.fetch(_overlaps(xp, block, block, threshold))
        chosen = _selected_in_block(free, overlap, limit - len(selected))
        selected += [start + place for place in chosen]
        if len(selected) == limit:
            break
    return np.asarray(selected, np.int64)


def _selected_in_block(free: int, overlap: Host, limit: int) -> list[int]:
    """Return the first `limit` free boxes that overlap no earlier result; sets are integers."""
    packed = np.packbits(overlap, axis=1, bitorder="little")
    rows, width = packed.tobytes(), packed.shape[1]
    selected: list[int] = []
    while free and len(selected) < limit:
        lowest = free & -free
        place = lowest.bit_length() - 1
        selected.append(place)
        row = rows[place * width : (place + 1) * width]
        free &= ~(int.from_bytes(row, "little") | lowest)
    return selected


def _overlaps(xp: Backend, a: Array, b: Array, threshold: float) -> Array:
    """Return whether the intersection over union of each `a` and `b` exceeds the threshold."""
    a, b = a[:, :, None], b[:, None, :]
    low, high = xp.maximum(a[:2, ...], b[:2, ...]), xp.minimum(a[2:4, ...], b[2:4, ...])
    sides = xp.maximum(high - low, 0)
    shared = sides[0, ...] * sides[1, ...]
    return shared / (a[4, ...] + b[4, ...] - shared) > threshold
