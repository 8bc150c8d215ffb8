"""Non-maximum suppression by a kernel selects the boxes that NumPy selects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from onnx import parser

import sardonyx
from sardonyx.backends.host_steps import HostSteps
from sardonyx.backends.jax.onednn import HostKernels, loaded, suppression
from sardonyx.backends.numpy import HOST
from sardonyx.ops.suppression import NonMaxSuppression
from tests.support.kernels import NEEDS_ONEDNN

pytestmark = NEEDS_ONEDNN

INF, NAN = np.inf, np.nan
SPECIAL = np.array([NAN, INF, -INF, 0.0, -0.0, 1e-40, 3e38, -3e38, 1.0, 2.0], np.float32)


@pytest.fixture(autouse=True)
def kernels() -> None:
    assert loaded.shared_library() is not None


def on_a_grid(rng: Any, *shape: int) -> Any:
    """Numbers of which many are equal, so that overlaps of exactly a half are common."""
    return rng.integers(0, 12, shape).astype(np.float32)


def anywhere(rng: Any, *shape: int) -> Any:
    return rng.random(shape, dtype=np.float32) * 10


def special(rng: Any, *shape: int) -> Any:
    return SPECIAL[rng.integers(0, len(SPECIAL), shape)]


def both(
    boxes: Any, scores: Any, rest: list[Any], *, center: int, threads: int | None = None
) -> tuple[Any, Any]:
    """What the kernel selects, and what NumPy does."""
    arrays = (boxes, scores, *rest)
    found = [
        NonMaxSuppression(xp, *arrays, center_point_box=center)
        for xp in (HostSteps(HostKernels(threads)), HOST)
    ]
    return found[0], found[1]


@pytest.mark.parametrize("center", [0, 1])
@pytest.mark.parametrize("numbers", [on_a_grid, anywhere, special])
def test_the_kernel_selects_what_numpy_selects(numbers: Callable[..., Any], center: int) -> None:
    rng = np.random.default_rng(center)
    for _ in range(150):
        batches, classes, count = rng.integers(1, (3, 5, 60))
        boxes = numbers(rng, batches, count, 4)
        scores = numbers(rng, batches, classes, count) / np.float32(8)
        limit = rng.choice([1, 3, count, 2**40])
        least = rng.choice(np.array([-1, -0.0, 0.3, 5, NAN], np.float32))
        rest = [np.array(limit), np.array(rng.choice([0, 0.3, 0.5, 1]), np.float32), least]
        for given in (rest, rest[:2], rest[:1]):
            threads = int(rng.integers(1, 4))
            found, expected = both(boxes, scores, given, center=center, threads=threads)
            assert found.dtype == np.int64
            assert_array_equal(found, expected)


def test_many_boxes_in_several_threads() -> None:
    rng = np.random.default_rng(3)
    boxes, scores = anywhere(rng, 2, 3000, 4), rng.random((2, 30, 3000), dtype=np.float32) ** 4
    rest = [np.array(40), np.array(0.4, np.float32), np.array(0.2, np.float32)]
    for threads in (1, 2, 5):
        found, expected = both(boxes, scores, rest, center=1, threads=threads)
        assert len(found) > 1000
        assert_array_equal(found, expected)


def test_however_arrays_lie() -> None:
    rng = np.random.default_rng(4)
    boxes, scores = anywhere(rng, 1, 50, 8)[..., ::2], anywhere(rng, 50, 4, 1).T
    found, expected = both(boxes, scores, [np.array(9), np.float32(0.1)], center=1)
    assert_array_equal(found, expected)
    scores.flags.writeable = False
    found, _ = both(boxes, scores, [np.array(9), np.float32(0.1)], center=1)
    assert_array_equal(found, expected)


def test_more_room_than_there_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suppression, "MOST_ROOM", 20)
    rng = np.random.default_rng(5)
    boxes, scores = anywhere(rng, 1, 30, 4), anywhere(rng, 1, 2, 30)
    monkeypatch.setattr(loaded, "suppress", None)
    found, expected = both(boxes, scores, [np.array(11)], center=0)
    assert_array_equal(found, expected)


def test_a_model_that_has_the_kernels_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    suppressed, sizes = loaded.suppress, []

    def noted(spec: Any, found: Any, boxes: Any, scores: Any) -> int:
        sizes.append(boxes.shape[1])
        return suppressed(spec, found, boxes, scores)

    monkeypatch.setattr(loaded, "suppress", noted)
    proto = parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[1, n, 4] boxes, float[1, k, n] scores) => (int64[m, 3] y) {
            most = Constant<value = int64 {5}>()
            overlap = Constant<value_float = 0.5>()
            chosen = NonMaxSuppression(boxes, scores, most, overlap)
            y = Identity(chosen) }""")
    model, plain = sardonyx.load(proto, backend="jax"), sardonyx.load(proto, backend="numpy")
    rng = np.random.default_rng(6)
    for count in (20, 20, 20, 7, 30):
        boxes, scores = anywhere(rng, 1, count, 4), anywhere(rng, 1, 3, count)
        assert_array_equal(model(boxes, scores), plain(boxes, scores))
    assert sizes.count(20) >= 3
    assert {7, 30} <= set(sizes)
