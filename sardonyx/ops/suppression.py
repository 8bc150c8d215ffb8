"""Non-maximum suppression: of boxes that overlap, only the best one of a class is selected.

The backend finds the boxes with enough score, and sorts them. They are few, and each depends on
those before it, so the host selects among them. A program on the CPU finds those that it selects
among the best of each class ahead; most often these are all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.operations.indexing import NOT_SELECTED, UNSETTLED
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import Begun, Host, Unsized, op
from sardonyx.ops.options import require_one_of

# Number of boxes of a class that are compared with each other at once; fewer if few are wanted.
BLOCK = 64
FEWEST_OF_BLOCK = 32
# Number of boxes up to which all are compared once for all classes, if that is less work.
MOST_SHARED = 128
# Number of pairs of boxes that are compared at once. NumPy gives the memory of larger arrays back
# after each operation, and then each takes five times as long.
MOST_PAIRS = 2**13
# Bits of a class and of a box together, which a 64-bit integer holds beside a score and a sign.
BITS_OF_KEY = 31


@op
def NonMaxSuppression(
    xp: Backend,
    boxes: Array,
    scores: Array,
    max_output_boxes_per_class: Array | None = None,
    iou_threshold: Array | None = None,
    score_threshold: Array | None = None,
    begun: Begun = None,
    *,
    center_point_box: int = 0,
) -> Unsized:
    _require_fitting(boxes, scores, center_point_box)
    limit = int(_number(xp, max_output_boxes_per_class, "max_output_boxes_per_class", 0))
    threshold = _number(xp, iou_threshold, "iou_threshold", 0.0)
    if not 0 <= threshold <= 1:
        raise ValueError(f"iou_threshold is {threshold}, but must lie between 0 and 1")
    least = _number(xp, score_threshold, "score_threshold", None)
    if limit <= 0 or scores.size == 0:
        return xp.put(np.zeros((0, 3), np.int64))
    batches, classes, _ = scores.shape
    if begun is not None and begun.item(0) != UNSETTLED:
        return xp.put(_triples_of(begun, classes))
    chosen = xp.suppressed(
        *(boxes, scores),
        limit=limit,
        threshold=threshold,
        least=least,
        has_centres=bool(center_point_box),
    )
    if chosen is not None:
        return chosen
    ordered, starts, ends = _by_score(xp, scores, least)
    searches = [_Search(*span) for span in zip(starts, ends, strict=True)]
    with np.errstate(all="ignore"):  # Boxes can be infinite, or have no area.
        edges = _edges(xp.fetch(boxes), center_point_box)
        for batch in range(batches):
            of_batch = searches[batch * classes : (batch + 1) * classes]
            _select(edges[:, batch, :], ordered, of_batch, limit, threshold)
    return xp.put(_triples(ordered, searches, classes))


@NonMaxSuppression.begins
def _among_the_best(
    xp: Backend,
    boxes: Array,
    scores: Array,
    max_output_boxes_per_class: Array | None = None,
    iou_threshold: Array | None = None,
    score_threshold: Array | None = None,
    *,
    center_point_box: int = 0,
) -> Array:
    _require_fitting(boxes, scores, center_point_box)
    limit, threshold = max_output_boxes_per_class, iou_threshold
    return xp.first_selected(
        *(boxes, scores),
        xp.zeros((), dtype=xp.dtype(np.dtype(np.int64))) if limit is None else limit,
        xp.zeros((), dtype=boxes.dtype) if threshold is None else threshold,
        score_threshold,
        has_centres=bool(center_point_box),
    )


def _require_fitting(boxes: Array, scores: Array, center_point_box: int) -> None:
    batches, count, numbers = _three(boxes, "boxes")
    if _three(scores, "scores")[::2] != (batches, count) or numbers != 4:
        raise ValueError(
            f"boxes have shape {boxes.shape} and scores {scores.shape}, but must be (batches, "
            "boxes, 4) and (batches, classes, boxes)"
        )
    require_one_of("center_point_box", center_point_box, (0, 1))


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


def _by_score(xp: Backend, scores: Array, least: float | None) -> tuple[Host, list[int], list[int]]:
    """Return the boxes of all classes, best first, and where those of each class start and end.

    A class has only the boxes above the threshold `least`. Equal boxes keep their order.
    """
    batches, classes, count = scores.shape
    rows = batches * classes
    by_row = xp.reshape(scores, (rows, count))
    if least is not None and _fits_in_a_key(xp.numpy_dtype(scores.dtype), rows, count):
        return _by_key(xp, by_row, least)
    # NaN is last.
    ordered = xp.fetch(xp.reshape(xp.argsort(-by_row, axis=-1, stable=True), (-1,)))
    starts = range(0, rows * count, count)
    if least is None:
        return ordered, [*starts], [start + count for start in starts]
    sizes = xp.fetch(by_row > least).sum(axis=-1).tolist()
    return ordered, [*starts], [start + size for start, size in zip(starts, sizes, strict=True)]


def _fits_in_a_key(dtype: np.dtype[Any], rows: int, count: int) -> bool:
    return dtype == np.float32 and (rows - 1).bit_length() + (count - 1).bit_length() <= BITS_OF_KEY


def _by_key(xp: Backend, scores: Array, least: float) -> tuple[Host, list[int], list[int]]:
    """Sort integers that each hold a class, a score and a box: one sort, of distinct numbers."""
    rows, count = scores.shape
    flat = xp.reshape(scores, (-1,))
    (confident,) = xp.nonzero(flat > least)
    bits = xp.bitcast(xp.take(flat, confident, axis=0), xp.dtype(np.dtype(np.int32)))
    if least < 0:
        # As integers, negative floats lie in the opposite order.
        bits = xp.where(bits < 0, np.iinfo(np.int32).min - bits, bits)
    places = (count - 1).bit_length()
    keys = confident - (xp.astype(bits, confident.dtype) << places)
    if rows > 1:
        # The number of the row goes from the place of the box to bits above those of the score.
        keys = keys + confident // count * ((1 << 32 + places) - count)
    ordered = xp.fetch(xp.sort(keys, stable=False)) & ((1 << places) - 1)
    ends = xp.fetch(confident).searchsorted(np.arange(count, (rows + 1) * count, count)).tolist()
    return ordered, [0, *ends[:-1]], ends


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
    largest = min(max([search.end - search.start for search in searches]), block)
    if len(searches) * largest**2 <= MOST_PAIRS:
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
    # After the boxes of a smaller class come others, which are not free to be selected.
    starts = np.array([search.start for search in searches])
    places = starts[:, None] + np.arange(width)
    boxes = edges.take(ordered.take(places, mode="clip"), axis=1)
    # A box that is selected is not free any more.
    are_apart = ~_overlaps(boxes, boxes, threshold)
    are_apart.reshape(-1, width * width)[:, :: width + 1] = False
    apart = _sets(are_apart)
    taken = _taken(edges, ordered, searches, boxes, threshold)
    for i, (search, size) in enumerate(zip(searches, sizes, strict=True)):
        free = ((1 << size) - 1) & ~taken[i]
        _select_free(search, free, apart[i * width : i * width + size], limit)
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


def _select_free(search: _Search, free: int, apart: Sequence[int], limit: int) -> None:
    """Select the free boxes that overlap none selected before; sets of them are integers."""
    selected, before = search.selected, search.start - 1
    room = limit - len(selected)
    while free and room:
        place = (free & -free).bit_length()
        selected.append(before + place)
        free &= apart[place - 1]
        room -= 1


def _overlaps(a: Host, b: Host, threshold: float) -> Host:
    """Return whether the intersection over union of each `a` and `b` exceeds the threshold."""
    a, b = a[..., :, None], b[..., None, :]
    high = np.minimum(a[2:4], b[2:4])
    # Where boxes lie apart, their sides are 0.
    low = np.minimum(np.maximum(a[:2], b[:2]), high)
    sides = high - low
    shared = sides[0] * sides[1]
    total = a[4] + b[4]
    total -= shared
    overlaps: Host = shared / total > threshold
    return overlaps


def _sets(members: Host) -> list[int]:
    """Return each row of Booleans, whatever axes precede it, as a set of their places."""
    width = members.shape[-1]
    wide = np.zeros((members.size // width, -(-width // 64) * 64), np.bool_)
    wide[:, :width] = members.reshape(-1, width)
    packed = np.packbits(wide, bitorder="little").view("<u8")
    first, *others = packed.reshape(len(wide), -1).T.tolist()
    for i, words in enumerate(others, 1):
        first = [low | high << 64 * i for low, high in zip(first, words, strict=True)]
    sets: list[int] = first
    return sets


def _triples(ordered: Host, searches: Sequence[_Search], classes: int) -> Host:
    """Return batch, class and box of all that is selected."""
    counts = [len(search.selected) for search in searches]
    places = [place for search in searches for place in search.selected]
    row = np.arange(len(searches)).repeat(counts)
    return _in_columns(row, ordered.take(np.array(places, np.int64)), classes)


def _triples_of(selected: Host, classes: int) -> Host:
    """Return the same for the results of `Indexing.first_selected`."""
    row, place = (selected != NOT_SELECTED).nonzero()
    return _in_columns(row, selected[row, place], classes)


def _in_columns(row: Host, boxes: Host, classes: int) -> Host:
    triples = np.empty((len(row), 3), np.int64)
    triples[:, 0], triples[:, 1] = np.divmod(row, classes)
    triples[:, 2] = boxes
    return triples
