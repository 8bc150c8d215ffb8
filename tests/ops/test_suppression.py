"""NonMaxSuppression, which selects among few boxes at once and among many in blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.ops import suppression as ops
from tests.ops.oracle import onnxruntime_run
from tests.property.case import Case

NAN = float("nan")
TINY = float(np.finfo(np.float32).tiny)  # the smallest normal number


def run(xp: Backend, *inputs: Any, **given: Any) -> Any:
    arrays = tuple(None if value is None else np.asarray(value) for value in inputs)
    case = Case("NonMaxSuppression", 11, arrays, given)
    return sardonyx.load(case.model, backend=xp).run(None, case.feeds)[0]


def drawn_boxes(rng: np.random.Generator, batches: int, count: int, center: int) -> np.ndarray:
    """Boxes on a coarse grid, so that many share exactly a half, and any two of their corners."""
    low = rng.integers(0, 6, (batches, count, 2))
    size = rng.integers(0, 5, (batches, count, 2))
    if center:
        return np.concatenate([low, size], axis=-1).astype(np.float32)
    flipped = rng.random(low.shape) < 0.5
    one, other = np.where(flipped, low + size, low), np.where(flipped, low, low + size)
    return np.concatenate([one, other], axis=-1).astype(np.float32)


@pytest.mark.parametrize("center", [0, 1])
@pytest.mark.parametrize("count", [1, 40, 700])
@pytest.mark.parametrize(("threshold", "least"), [(0.5, 0.4), (0.0, None), (1.0, 0.0), (0.25, 0.9)])
def test_suppression(
    xp: Backend, center: int, count: int, threshold: float, least: float | None
) -> None:
    rng = np.random.default_rng(count)
    boxes = drawn_boxes(rng, 2, count, center)
    # Few different scores, so that many are equal.
    scores = (rng.integers(0, 20, (2, 3, count)) / 20).astype(np.float32)
    rest = [np.array([50]), np.array([threshold], np.float32)]
    rest += [] if least is None else [np.array([least], np.float32)]
    result = run(xp, boxes, scores, *rest, center_point_box=center)
    expected = onnxruntime_run(
        "NonMaxSuppression", boxes, scores, *rest, center_point_box=center, opset=11
    )
    assert result.dtype == np.int64
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("limit", [None, 0, -3])
def test_without_a_limit_there_is_no_box(xp: Backend, limit: int | None) -> None:
    boxes, scores = np.ones((1, 2, 4), np.float32), np.ones((1, 1, 2), np.float32)
    given = [] if limit is None else [np.array(limit)]
    assert run(xp, boxes, scores, *given).shape == (0, 3)


@pytest.mark.parametrize(("batches", "groups", "count"), [(0, 1, 2), (1, 0, 2), (1, 1, 0)])
def test_no_boxes(xp: Backend, batches: int, groups: int, count: int) -> None:
    boxes, scores = np.ones((batches, count, 4)), np.ones((batches, groups, count))
    inputs = (boxes.astype(np.float32), scores.astype(np.float32), np.array(3))
    assert run(xp, *inputs).shape == (0, 3)


def test_a_score_that_is_nan_comes_last(xp: Backend) -> None:
    boxes = np.array([[[0, 0, 1, 1], [2, 2, 3, 3], [4, 4, 5, 5]]], np.float32)
    scores = np.array([[[0.5, NAN, 0.7]]], np.float32)
    result = run(xp, boxes, scores, np.array(3))
    assert result[:, 2].tolist() == [2, 0, 1]
    least = np.float32(-1)
    result = run(xp, boxes, scores, np.array(3), None, least)
    assert result[:, 2].tolist() == [2, 0]


def test_a_chain_of_boxes_is_gone_through_from_its_best(xp: Backend) -> None:
    """Each covers half of the next, across the blocks in which they are compared."""
    count = 3 * ops.BLOCK + 1
    start = np.arange(count, dtype=np.float32)
    boxes = np.stack([0 * start, start, 0 * start + 1, start + 2], axis=-1)[None]
    scores = (count - start)[None, None]
    result = run(xp, boxes, scores, np.array(count), np.float32(0.3))
    assert result[:, 2].tolist() == list(range(0, count, 2))


@pytest.mark.parametrize(
    ("boxes", "scores", "rest"),
    [
        ((1, 2, 3), (1, 1, 2), {}),
        ((1, 2, 4), (1, 1, 3), {}),
        ((1, 2, 4), (2, 1, 2), {}),
        ((2, 4), (1, 1, 2), {}),
        ((1, 2, 4), (1, 2), {}),
        ((1, 2, 4), (1, 1, 2), {"iou_threshold": np.float32([1.5])}),
        ((1, 2, 4), (1, 1, 2), {"iou_threshold": np.float32([-0.1])}),
        ((1, 2, 4), (1, 1, 2), {"iou_threshold": np.float32([NAN])}),
        ((1, 2, 4), (1, 1, 2), {"iou_threshold": np.float32([0.1, 0.2])}),
        ((1, 2, 4), (1, 1, 2), {"max_output_boxes_per_class": np.ones(0, np.int64)}),
        ((1, 2, 4), (1, 1, 2), {"center_point_box": 2}),
    ],
)
def test_boxes_that_make_no_sense_are_refused(boxes: Any, scores: Any, rest: Any) -> None:
    with pytest.raises(ValueError, match=r"\w+ \w+"):
        ops.NonMaxSuppression(HOST, np.ones(boxes, np.float32), np.ones(scores, np.float32), **rest)


def by_one_box_at_a_time(
    boxes: np.ndarray, scores: np.ndarray, limit: int, threshold: float, least: float
) -> list[list[int]]:
    """The definition: each box, best first, is compared with all that are selected before it."""
    low = np.minimum(boxes[..., :2], boxes[..., 2:])
    high = np.maximum(boxes[..., :2], boxes[..., 2:])

    def overlap(batch: int, a: int, b: int) -> bool:
        inner = np.minimum(high[batch, a], high[batch, b])
        sides = np.maximum(inner - np.maximum(low[batch, a], low[batch, b]), 0)
        areas = [(high[batch, i] - low[batch, i]).prod() for i in (a, b)]
        return bool(sides.prod() / (sum(areas) - sides.prod()) > threshold)

    triples = []
    for batch, group in np.ndindex(scores.shape[:2]):
        row = scores[batch, group]
        kept: list[int] = []
        for box in sorted(np.flatnonzero(row > least), key=lambda i: -row[i]):
            if len(kept) < limit and not any(overlap(batch, box, other) for other in kept):
                kept.append(int(box))
        triples += [[batch, group, box] for box in kept]
    return triples


@pytest.mark.parametrize("limit", [1, 7, 40, 10_000])
@pytest.mark.parametrize("threshold", [0.0, 0.4, 0.8])
def test_classes_of_very_different_sizes(xp: Backend, limit: int, threshold: float) -> None:
    """They are compared together, filled up to one size, and block by block."""
    rng = np.random.default_rng(3)
    count = 3 * ops.BLOCK - 5
    boxes = drawn_boxes(rng, 2, count, center=0) + rng.random((2, count, 4), np.float32)
    confident = np.array([0, 1, 2, 31, 33, ops.BLOCK, ops.BLOCK + 1, count, 0])
    ranks = rng.permuted(np.tile(np.arange(count), (2, confident.size, 1)), axis=-1)
    scores = np.where(ranks < confident[:, None], 0.6 + ranks // 3 / count, 0.2).astype(np.float32)
    result = run(xp, boxes, scores, np.array(limit), np.float32(threshold), np.float32(0.5))
    expected = by_one_box_at_a_time(boxes, scores, limit, threshold, 0.5)
    assert result.tolist() == expected


def test_many_classes_share_their_comparisons(xp: Backend) -> None:
    """More boxes than are compared at once, and one more than places in a word of bits."""
    rng = np.random.default_rng(4)
    for count in (65, ops.MOST_SHARED, ops.MOST_SHARED + 1):
        boxes = rng.random((1, count, 4), np.float32)
        scores = rng.random((1, 5, count), np.float32)
        result = run(xp, boxes, scores, np.array(count), np.float32(0.3))
        assert result.tolist() == by_one_box_at_a_time(boxes, scores, count, 0.3, -1)


def test_many_classes_of_which_few_have_boxes(xp: Backend) -> None:
    classes = 2**16 + 1
    boxes = np.array([[[0, 0, 1, 1], [2, 2, 3, 3]]], np.float32)
    scores = np.tile(np.float32([0.6, 0.7]), (1, classes, 1))
    scores[:, 1:-1] = 0
    result = run(xp, boxes, scores, np.array(2), None, np.float32(0.5))
    assert result.tolist() == [[0, 0, 1], [0, 0, 0], [0, classes - 1, 1], [0, classes - 1, 0]]


@pytest.mark.parametrize("bits", [ops.BITS_OF_KEY, 0], ids=["by key", "by score"])
@pytest.mark.parametrize("least", [-np.inf, -1e-40, -TINY, -0.0, 0.0, 1e-40, TINY, np.inf, NAN])
def test_scores_of_all_kinds_of_numbers(
    xp: Backend, least: float, bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zeros of both signs are equal; the smallest and largest numbers are in their order.

    The smallest are the subnormal ones, but on a GPU: there CuPy's kernels take them for zeros.
    """
    monkeypatch.setattr(ops, "BITS_OF_KEY", bits)
    small = TINY if xp.name == "cupy" else 1e-38
    if xp.name == "cupy" and abs(least) < TINY:
        least = 0.0
    values = [0.0, -0.0, NAN, np.inf, -np.inf, small, -small, 3e38, -3e38, -0.0, 0.0, 1, -1]
    scores = np.array([values, values[::-1], [-1.0] * len(values)], np.float32)[None]
    start = 2 * np.arange(len(values), dtype=np.float32)
    boxes = np.stack([start, start, start + 1, start + 1], axis=-1)[None]
    result = run(xp, boxes, scores, np.array(20), np.float32(0.5), np.float32(least))
    expected = by_one_box_at_a_time(boxes, scores, 20, 0.5, float(np.float32(least)))
    assert result.tolist() == expected


def test_boxes_without_area_or_end_select_the_same_alone_and_among_others(xp: Backend) -> None:
    """Their overlap is NaN, which exceeds no threshold."""
    points = np.zeros((1, 3, 4), np.float32)
    endless = np.array([[[-np.inf, 0, np.inf, 1]] * 2 + [[NAN, 0, 1, 1]]], np.float32)
    scores = np.float32([[[0.9, 0.8, 0.7]]])
    for boxes in (points, endless):
        result = run(xp, boxes, scores, np.array(3), np.float32(0))
        assert result[:, 2].tolist() == [0, 1, 2]
