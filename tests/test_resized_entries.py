"""Calls of new sizes that the function of all sizes serves as it served others before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from onnx import parser

import sardonyx
from sardonyx.graph.buckets import learned_calls
from sardonyx.graph.model.form import Form
from tests.support.background import wait_for_background
from tests.test_changing_sizes import DECODER

JAX: dict[str, Any] = {"backend": "jax", "compile": "background"}
HEAD = '<ir_version: 10, opset_import: ["" : 22]> '
ROWS = HEAD + "g (float[n, 6] x) => (float[n, 6] y) { e = Exp(x) y = Softmax<axis = 0>(e) }"
TWO_SIZES = HEAD + "g (float[a, b] x, float[b, c] y) => (float[a, c] z) { z = MatMul(x, y) }"
COMPUTED = HEAD + (
    "g (float[n, 4] x, float[m, 4] w) => (float[k, 4] y) { t = Exp(x) y = Concat<axis = 0>(t, w) }"
)


def drawn(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


def rows(n: int) -> list[Any]:
    return [drawn(n, 6)]


def two_sizes(n: int) -> list[Any]:
    return [drawn(n % 11 + 2, n), drawn(n, 7)]


def one_more(n: int) -> list[Any]:
    return [drawn(n, 4), drawn(n + 1, 4)]


CALLS = {
    "rows": (ROWS, rows),
    "two sizes": (TWO_SIZES, two_sizes),
    "computed": (COMPUTED, one_more),
}


@pytest.fixture
def new_entries(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The forms whose calls were looked at as a whole, once for each such call."""
    made: list[Any] = []
    before = Form._new_entry

    def noting(self: Form, key: Any, *others: Any, **options: Any) -> Any:
        made.append(self)
        return before(self, key, *others, **options)

    monkeypatch.setattr(Form, "_new_entry", noting)
    return made


def learning(text: str, inputs: Callable[[int], list[Any]], **options: Any) -> sardonyx.Model:
    """A model that a function of all sizes serves by now."""
    model = sardonyx.load(parser.parse_model(text), **options)
    for n in (33, 40, 36, 35, 70, 69, 71):
        model(*inputs(n))
        wait_for_background()
    return model


@pytest.mark.parametrize(("text", "inputs"), CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(
    "options",
    [JAX, {"backend": "numpy"}],
    ids=["jax", "numpy"],
)
def test_a_new_size_is_like_the_last_one(
    new_entries: list[Any], text: str, inputs: Callable[[int], list[Any]], options: dict[str, Any]
) -> None:
    model = learning(text, inputs, **options)
    plain = sardonyx.load(parser.parse_model(text), backend="numpy", buckets=None)
    model(*inputs(50))
    new_entries.clear()
    for n in np.random.default_rng(0).permutation(range(41, 69)).tolist():
        assert_allclose(model(*inputs(n)), plain(*inputs(n)), rtol=1e-5, atol=1e-6)
    assert new_entries.count(model._plain) <= 1


def test_calls_that_differ_in_more_are_checked(new_entries: list[Any]) -> None:
    model = learning(TWO_SIZES, two_sizes, **JAX)
    model(drawn(3, 50), drawn(50, 7))
    new_entries.clear()
    with pytest.raises(sardonyx.InvalidInput, match="'y' must have size 51"):
        model(drawn(3, 51), drawn(50, 7))
    with pytest.raises(sardonyx.InvalidInput, match="float32"):
        model(drawn(3, 51).astype(np.int64), drawn(51, 7))
    with pytest.raises(sardonyx.InvalidInput, match="2 dimensions"):
        model(drawn(3, 51, 1), drawn(51, 7))
    x, y = drawn(1, 52), drawn(52, 7)
    assert_allclose(model(x, y), x @ y, rtol=1e-4, atol=1e-5)
    x, y = drawn(3, 52), drawn(52, 9)
    assert_allclose(model(x, y), x @ y, rtol=1e-4, atol=1e-5)
    assert new_entries.count(model._plain) >= 3


@pytest.mark.parametrize(
    "options",
    [JAX, {"backend": "numpy"}],
    ids=["jax", "numpy"],
)
def test_a_cache_grows_beyond_what_was_looked_for(
    new_entries: list[Any], options: dict[str, Any]
) -> None:
    """The next search begins before the sizes of the last one end."""
    model = sardonyx.load(parser.parse_model(DECODER), **options)
    plain = sardonyx.load(parser.parse_model(DECODER), backend="numpy", buckets=None)
    ours = theirs = [drawn(1, 2, 8), drawn(1, 2, 8)]
    for i in range(1300):
        x = drawn(1, 1, 8) + np.float32(i / 100)
        y, *ours = model(x, *ours)
        if i < 40 or i % 100 == 0:
            wait_for_background()
        expected, *theirs = plain(x, *theirs)
        assert_allclose(y, expected, rtol=2e-5, atol=2e-5)
    assert_array_equal(ours[0], theirs[0])
    assert model.stats().traces <= 30
    assert new_entries.count(model._plain) <= 60


def test_weights_that_change_are_used() -> None:
    text = (
        HEAD
        + """g (float[n, 6] x) => (float[n, 6] y)
        <float[6] w = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}> { e = Exp(x) y = Mul(e, w) }"""
    )
    model = learning(text, rows, **JAX)
    for n in (51, 52):
        assert_allclose(model(*rows(n)), np.exp(rows(n)[0]) * model.params["w"], rtol=1e-5)
    model.params["w"] = np.full(6, 7, np.float32)
    for n in (53, 54, 51):
        assert_allclose(model(*rows(n)), np.exp(rows(n)[0]) * 7, rtol=1e-5)


def test_a_program_serves_calls_as_soon_as_it_is_compiled(
    monkeypatch: pytest.MonkeyPatch, new_entries: list[Any]
) -> None:
    """Also those of sizes that the function served first."""
    monkeypatch.setattr(learned_calls.LearnedCalls, "is_small", lambda self, shapes: False)
    model = learning(ROWS, rows, **JAX)
    new_entries.clear()
    sizes = range(41, 60)
    for n in sizes:
        model(*rows(n))
    assert len(new_entries) <= 1
    assert model.stats().compiles == 0
    monkeypatch.setattr(learned_calls, "SECONDS", 0.0)
    monkeypatch.setattr(learned_calls, "SECONDS_PER_STEP", 0.0)
    monkeypatch.setattr(learned_calls.Pace, "at", lambda self, count: float("inf"))
    model(*rows(61))
    wait_for_background()
    before = model.stats()
    assert before.compiles == 1
    for n in sizes:
        y = np.exp(np.exp(rows(n)[0]))
        assert_allclose(model(*rows(n)), y / y.sum(0), rtol=1e-5)
    assert model.stats().interpreted == before.interpreted


def test_a_cache_on_disk_is_asked_for_each_size(tmp_path: Path, new_entries: list[Any]) -> None:
    learning(ROWS, rows, **JAX, cache=tmp_path)
    new_entries.clear()
    model = learning(ROWS, rows, **JAX, cache=tmp_path)
    model(*rows(50))
    assert new_entries.count(model._plain) == 8
