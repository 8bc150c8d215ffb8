"""What a program selects among the best boxes of each class ahead of the host's step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from onnx import parser

import sardonyx
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST
from sardonyx.backends.operations.indexing import UNSETTLED
from sardonyx.errors import InvalidInput
from sardonyx.ops import suppression
from sardonyx.ops.suppression import NonMaxSuppression
from tests.test_suppression_kernel import anywhere, on_a_grid, special

AHEAD = NonMaxSuppression.at(100).beginning
MODEL = """<ir_version: 8, opset_import: ["": 17]>
    g (float[1, {n}, 4] boxes, float[1, 3, {n}] scores) => (int64[m, 3] y) {{
        most = Constant<value = int64 {{5}}>()
        overlap = Constant<value_float = {overlap}>()
        exact = Add(boxes, boxes)
        chosen = NonMaxSuppression(exact, scores, most, overlap)
        y = Identity(chosen) }}"""


class Program:
    """The program of JAX for arrays of the same shapes, compiled once for each."""

    def __init__(self) -> None:
        self._backend = JaxBackend()
        self._compiled: dict[Any, Any] = {}

    def __call__(self, center: int, arrays: Sequence[Any]) -> Any:
        def function(*given: Any) -> Any:
            return [AHEAD(self._backend, *given, center_point_box=center)]

        with self._backend.scope():
            key = center, *(array.shape for array in arrays)
            if key not in self._compiled:
                self._compiled[key] = self._backend.compile(function, arrays)
            (found,) = self._compiled[key].run(*arrays)
            return np.asarray(found)


@pytest.mark.parametrize("center", [0, 1])
@pytest.mark.parametrize("numbers", [on_a_grid, anywhere, special])
def test_a_program_selects_what_numpy_selects(numbers: Callable[..., Any], center: int) -> None:
    rng, program, settled = np.random.default_rng(center), Program(), 0
    # XLA takes the smallest numbers for zeros, such as the overlap of boxes of very unlike sizes.
    least_overlap = 0.1 if numbers is special else 0
    overlaps = np.array([least_overlap, 0.3, 0.5, 1], np.float32)
    for turn in range(120):
        batches, classes, count = ((1, 1, 1), (2, 3, 7), (1, 2, 64), (2, 2, 90))[turn % 4]
        boxes = numbers(rng, batches, count, 4)
        boxes[np.abs(boxes) == np.float32(1e-40)] = 0
        scores = numbers(rng, batches, classes, count) / np.float32(8)
        limit = np.array(rng.choice([1, 3, count, 2**40]))
        least = rng.choice(np.array([-1, -0.0, 0.3, 5, np.nan], np.float32))
        rest = [limit, np.array(rng.choice(overlaps)), np.array(least)]
        for given in (rest, rest[:2], rest[: 2 if least_overlap else 1]):
            arrays = [boxes, scores, *given]
            begun = program(center, arrays)
            assert begun.shape == (batches * classes, min(count, 64))
            settled += begun[0, 0] != UNSETTLED
            arrays += [None] * (5 - len(arrays))
            found = NonMaxSuppression(HOST, *arrays, begun, center_point_box=center)
            expected = NonMaxSuppression(HOST, *arrays, center_point_box=center)
            assert_array_equal(found, expected)
    assert 270 <= settled < 360  # Of the last shape some boxes lie behind the best.


def test_it_leaves_to_the_host_what_it_is_not_for() -> None:
    rng, program = np.random.default_rng(2), Program()
    boxes, scores, limit = anywhere(rng, 1, 9000, 4), anywhere(rng, 1, 2, 9000), np.array(3)
    assert np.all(program(0, [boxes, scores, limit]) == UNSETTLED)
    boxes, scores = boxes[:, :9], scores[..., :9]
    assert np.all(program(0, [boxes, scores, np.array([1, 2])]) == UNSETTLED)
    assert program(0, [boxes, scores[:, :0], limit]).shape == (0, 9)
    assert program(0, [boxes[:, :0], scores[..., :0], limit]).shape == (2, 0)


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_ONEDNN", "0")
    monkeypatch.setattr("sardonyx.backends.jax.onednn.loaded._asked_for", [])


def loaded(n: Any = 80, overlap: float = 0.5, **options: Any) -> Any:
    proto = parser.parse_model(MODEL.format(n=n, overlap=overlap))
    return sardonyx.load(proto, **options)


@pytest.mark.usefixtures("without_kernels")
@pytest.mark.parametrize("mode", ["now", "background", "never"])
def test_models(mode: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    plain = loaded(backend="numpy")
    for _ in range(2):  # The second one finds the first one's programs.
        model = loaded(backend="jax", compile=mode, cache=tmp_path)
        for scale in (1, 10, 100, 10):  # Where they overlap much, the best are too few.
            boxes, scores = anywhere(rng, 1, 80, 4) * np.float32(scale), anywhere(rng, 1, 3, 80)
            assert_array_equal(model(boxes, scores), plain(boxes, scores))


@pytest.mark.usefixtures("without_kernels")
def test_the_host_looks_again_only_where_it_has_to(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def noted(xp: Any, scores: Any, least: Any) -> Any:
        seen.append(scores.shape[2])
        return by_score(xp, scores, least)

    by_score = suppression._by_score
    monkeypatch.setattr(suppression, "_by_score", noted)
    rng, fixed, free = np.random.default_rng(4), loaded(backend="jax"), loaded("n", backend="jax")
    boxes, scores = anywhere(rng, 1, 80, 4), anywhere(rng, 1, 3, 80)
    assert_array_equal(fixed(boxes, scores), free(boxes, scores))
    assert seen == [80]  # Calls of other sizes might be padded, so that nothing is done ahead.
    assert len(fixed(np.zeros_like(boxes) + np.float32([0, 0, 1, 1]), scores)) == 3
    assert len(seen) > 1


@pytest.mark.usefixtures("without_kernels")
def test_errors_are_those_of_the_host() -> None:
    boxes, scores = np.zeros((1, 80, 4), np.float32), np.zeros((1, 3, 80), np.float32)
    with pytest.raises(InvalidInput, match=r"iou_threshold is 2\.0, but must lie between 0 and 1"):
        loaded(overlap=2.0, backend="jax")(boxes, scores)
