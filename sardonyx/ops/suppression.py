"""Non-maximum suppression: of boxes that overlap, only the best one of a class is selected.

The backend finds the boxes with enough score, and sorts them. They are few, and each depends on
those before it, so the host selects among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import Host, Unsized, op
from sardonyx.ops.options import require_one_of

# Number of boxes of a class that are compared with each other at once; fewer if few are wanted.
BLOCK = 64
FEWEST_OF_BLOCK = 32
# Number of boxes up to which all are compared once for all classes, if that is less work.
MOST_SHARED = 128
# Number of pairs of boxes that are compared at once. NumPy gives the memory of larger arrays back
# after each operation, and then each takes five times as long.
MOST_PAIRS = 2**13
# Number of classes that the backend can sort by a small integer.
MOST_SORTED = 2**16


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
    require_one_of("center_point_box", center_point_box, (0, 1))
    limit = int(_number(xp, max_output_boxes_per_class, "max_output_boxes_per_class", 0))
    threshold = _number(xp, iou_threshold, "iou_threshold", 0.0)
    if not 0 <= threshold <= 1:
        raise ValueError(f"iou_threshold is {threshold}, but must lie between 0 and 1")
    least = _number(xp, score_threshold, "score_threshold", None)
    if limit <= 0 or scores.size == 0:
        return xp.put(np.zeros((0, 3), np.int64))
    classes = scores.shape[1]
    ordered, starts = _by_score(xp, scores, least)
    searches = [_Search(*ends) for ends in pairwise(starts)]
    with np.errstate(all="ignore"):  # Boxes can be infinite, or have no area.
        edges = _edges(xp.fetch(boxes), center_point_box)
        for batch in range(batches):
            of_batch = searches[batch * classes : (batch + 1) * classes]
            _select(edges[:, batch, :], ordered, of_batch, limit, threshold)
    return xp.put(_triples(ordered, searches, classes))


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


def _edges(boxes: Host, center_point_box: int) -> Host:
    """Return the lower and upper edges of the boxes, and their areas, as five rows per batch."""
    # Rows that are contiguous take a fifth of the time.
    rows = np.ascontiguousarray(boxes.transpose(2, 0, 1))
    one, other = rows[:2], rows[2:]
    if center_point_box:
        half = other / 2
        low, high = one - half, one + half
    else:
        low, high = np.minimum(one, other), np.maximum(one, other)
    sides = high - low
    return np.concatenate([low, high, sides[:1] * sides[1:]])


# -- order ----------------------------------------------------------------------------------------


def _by_score(xp: Backend, scores: Array, least: float | None) -> tuple[Host, list[int]]:
    """Return the boxes of each class above the threshold `least`, best first, and where it starts.

    Equal boxes keep their order.
    """
    batches, classes, count = scores.shape
    rows = batches * classes
    starts = np.arange(rows + 1) * count
    if least is None:
        ordered = xp.argsort(-scores, axis=-1, stable=True)
        return xp.fetch(xp.reshape(ordered, (-1,))), starts.tolist()
    flat = xp.reshape(scores, (-1,))
    (confident,) = xp.nonzero(flat > least)
    order = xp.argsort(-xp.take(flat, confident, axis=0), stable=True)
    ordered = xp.take(confident, order, axis=0)
    if rows > 1:
        row = ordered // count
        row = xp.astype(row, xp.dtype(np.dtype(np.uint16))) if rows <= MOST_SORTED else row
        ordered = xp.take(ordered, xp.argsort(row, stable=True), axis=0)
    return xp.fetch(ordered) % count, xp.fetch(confident).searchsorted(starts).tolist()


# -- selection ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Search:
    """The search through the boxes of one class, which lie in order from `start` to `end`."""

    start: int
    end: int
    # Where the selected boxes lie in that order.
    selected: list[int] = field(default_factory=list)


def _select(
    edges: Host, ordered: Host, searches: Sequence[_Search], limit: int, threshold: float
) -> None:
    """Select up to `limit` boxes of each class that overlap no selected one before them."""
    count, block = edges.shape[1], min(BLOCK, max(2 * limit, FEWEST_OF_BLOCK))
    going = [search for search in searches if search.start < search.end]
    if count <= MOST_SHARED and len(going) > 1:
        pairs = sum(min(search.end - search.start, block) ** 2 for search in going)
        if count**2 < pairs:
            _select_by_all_pairs(edges, ordered, going, limit, threshold)
            return
    while going:
        for together in _of_similar_size(going, block):
            _select_in_block(edges, ordered, together, block, limit, threshold)
        going = [s for s in going if s.start < s.end and len(s.selected) < limit]


def _select_by_all_pairs(
    edges: Host, ordered: Host, searches: Sequence[_Search], limit: int, threshold: float
) -> None:
    step = max(1, MOST_PAIRS // edges.shape[1])
    parts = [edges[:, start : start + step] for start in range(0, edges.shape[1], step)]
    overlapping = [row for part in parts for row in _sets(_overlaps(part, edges, threshold))]
    for search in searches:
        taken = 0
        for at, box in enumerate(ordered[search.start : search.end].tolist(), search.start):
            if taken >> box & 1:
                continue
            search.selected.append(at)
            if len(search.selected) == limit:
                break
            taken |= overlapping[box]


def _of_similar_size(searches: Sequence[_Search], block: int) -> Iterator[Sequence[_Search]]:
    """Divide classes into groups that waste little if all are as large as the largest."""
    if len(searches) == 1:
        yield searches
        return
    by_size: dict[int, list[_Search]] = {}
    for search in searches:
        size = min(search.end - search.start, block)
        by_size.setdefault((size - 1).bit_length(), []).append(search)
    for bits, group in by_size.items():
        together = max(1, MOST_PAIRS // min(1 << bits, block) ** 2)
        for i in range(0, len(group), together):
            yield group[i : i + together]


def _select_in_block(
    edges: Host,
    ordered: Host,
    searches: Sequence[_Search],
    block: int,
    limit: int,
    threshold: float,
) -> None:
    """Select among the next boxes of each class, and move the starts behind them."""
    sizes = [min(search.end - search.start, block) for search in searches]
    width = max(sizes)
    # Classes with fewer boxes are filled up with their last one.
    first, last = np.array([(s.start, s.end - 1) for s in searches]).T[:, :, None]
    places = np.minimum(first + np.arange(width), last)
    boxes = edges.take(ordered.take(places), axis=1)
    overlapping = _sets(_overlaps(boxes, boxes, threshold))
    taken = _taken(edges, ordered, searches, boxes, threshold)
    for i, (search, size) in enumerate(zip(searches, sizes, strict=True)):
        free = ((1 << size) - 1) & ~taken[i]
        rows = overlapping[i * width : (i + 1) * width]
        wanted = limit - len(search.selected)
        search.selected += [search.start + place for place in _selected(free, rows, wanted)]
        search.start += size


def _taken(
    edges: Host, ordered: Host, searches: Sequence[_Search], boxes: Host, threshold: float
) -> list[int]:
    """Return the set of boxes of each class that overlap one selected in an earlier block."""
    most = max(len(search.selected) for search in searches)
    taken = [0] * len(searches)
    step = max(1, MOST_PAIRS // (boxes.shape[1] * boxes.shape[2]))
    for start in range(0, most, step):
        # Classes with fewer selected boxes are filled up with their first one.
        places = [s.selected[start : start + step] or s.selected[:1] for s in searches]
        width = max(map(len, places))
        filled = np.array([each + each[:1] * (width - len(each)) for each in places])
        before = edges.take(ordered.take(filled), axis=1)
        found: Host = np.logical_or.reduce(_overlaps(before, boxes, threshold), axis=1)
        taken = [one | other for one, other in zip(taken, _sets(found), strict=True)]
    return taken


def _selected(free: int, overlapping: Sequence[int], limit: int) -> list[int]:
    """Return the first `limit` free boxes that overlap no earlier result; sets are integers."""
    selected: list[int] = []
    while free and len(selected) < limit:
        lowest = free & -free
        place = lowest.bit_length() - 1
        selected.append(place)
        free &= ~(overlapping[place] | lowest)
    return selected


def _overlaps(a: Host, b: Host, threshold: float) -> Host:
    """Return whether the intersection over union of each `a` and `b` exceeds the threshold."""
    a, b = a[..., :, None], b[..., None, :]
    low = np.maximum(a[:2], b[:2])
    sides = np.minimum(a[2:4], b[2:4])
    sides -= low
    sides = np.maximum(sides, 0)
    shared = sides[0] * sides[1]
    total = a[4] + b[4]
    total -= shared
    overlaps: Host = shared / total > threshold
    return overlaps


def _sets(members: Host) -> list[int]:
    """Return each row of Booleans, whatever axes precede it, as a set of their places."""
    packed = np.packbits(members, axis=-1, bitorder="little")
    width = packed.shape[-1]
    padded = np.zeros((packed.size // width, -(-width // 8) * 8), np.uint8)
    padded[:, :width] = packed.reshape(-1, width)
    first, *others = padded.view("<u8").T.tolist()
    for i, words in enumerate(others, 1):
        first = [low | high << 64 * i for low, high in zip(first, words, strict=True)]
    sets: list[int] = first
    return sets


def _triples(ordered: Host, searches: Sequence[_Search], classes: int) -> Host:
    """Return batch, class and box of all that is selected."""
    counts = [len(search.selected) for search in searches]
    places = [place for search in searches for place in search.selected]
    triples = np.zeros((len(places), 3), np.int64)
    if len(searches) > 1:
        row = np.arange(len(searches)).repeat(counts)
        triples[:, 0], triples[:, 1] = np.divmod(row, classes)
    triples[:, 2] = ordered.take(np.array(places, np.int64))
    return triples
