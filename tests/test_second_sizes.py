"""The call of a second size looks for what derives other sizes, if it takes long itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose

import sardonyx
from sardonyx.graph.buckets import learned_calls, patience
from sardonyx.graph.buckets.patience import OutOfPatience, Patience
from sardonyx.graph.programs import interpretation
from sardonyx.graph.programs.background import COMPILES
from tests.test_buckets import GRAPHS, model, normal
from tests.test_derived_recordings import loaded_in_background, wait_for_background

LONG, SHORT = 1e6, 0.0


@pytest.fixture(autouse=True)
def compiles_nothing(monkeypatch: pytest.MonkeyPatch, compiles_all: None) -> None:
    """Calls run step by step all the time, and no segment is written out."""
    monkeypatch.setattr(learned_calls, "SECONDS_PER_STEP", 1e9)


def traces_of(loaded: sardonyx.Model, sizes: Sequence[int]) -> list[int]:
    """Call the model with these sizes; return the traces of each call, with the background's."""
    counts = [loaded.stats().traces]
    for size in sizes:
        x = normal(2, size, 6)
        shifted = np.exp(x - x.max(axis=1, keepdims=True))
        assert_allclose(loaded(x), shifted / shifted.sum(axis=1, keepdims=True), rtol=1e-5)
        wait_for_background()
        counts.append(loaded.stats().traces)
    return np.diff(counts).tolist()


def test_a_long_call_of_a_second_size_does_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "MOST_TIMES", LONG)
    loaded = loaded_in_background(model(GRAPHS["softmax"]))
    # Its own trace, and one for the smallest size, for two beyond the largest, and one between.
    assert traces_of(loaded, [33, 40, 36, 35, 41]) == [1, 5, 0, 0, 0]


def test_a_short_one_leaves_it_to_the_third(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "MOST_TIMES", SHORT)
    loaded = loaded_in_background(model(GRAPHS["softmax"]))
    first, second, third, *others = traces_of(loaded, [33, 40, 36, 35, 41])
    assert (first, second) == (1, 1)
    assert third >= 4
    assert not any(others)


def test_the_third_goes_on_where_patience_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    begin, asked = Patience.begin, []

    def begin_twice(self: Patience, seconds: float) -> None:
        asked.append(seconds)
        if len(asked) > 2:
            raise OutOfPatience
        begin(self, seconds)

    monkeypatch.setattr(patience, "MOST_TIMES", LONG)
    monkeypatch.setattr(Patience, "begin", begin_twice)
    loaded = loaded_in_background(model(GRAPHS["softmax"]))
    assert traces_of(loaded, [33, 40, 36, 35, 41]) == [1, 3, 2, 0, 0]


def test_a_first_run_that_takes_long_is_compiled_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a second size as of any other: the program takes over as soon as it is ready.

    Without kernels the call looks first whether it can run in pieces, which it cannot here.
    """
    monkeypatch.setattr(interpretation, "PATIENCE", 0.0)
    monkeypatch.setattr(COMPILES, "submit", lambda job, is_next=False: job())
    loaded = loaded_in_background(model(GRAPHS["softmax"]))
    for i, size in enumerate((33, 40)):
        loaded(normal(2, size, 6))
        assert loaded.stats().compiles == i + 1


def test_nothing_is_searched_for_calls_of_one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "MOST_TIMES", LONG)
    loaded = loaded_in_background(model(GRAPHS["softmax"]))
    assert traces_of(loaded, [33, 33, 33]) == [1, 0, 0]


def test_a_model_that_refuses_other_sizes_runs_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A weight fits 33 and 40 elements alone: the traces of the search fail."""
    monkeypatch.setattr(patience, "MOST_TIMES", LONG)
    body = """n = Shape<start = 1, end = 2>(x) k = Constant<value_ints = [40]>()
        e = Equal(n, k) f = Cast<to = 7>(e) i = Squeeze(f) rows = Gather(w, i)
        s = Slice(rows, z, n, z) t = Unsqueeze(s, o) u = Unsqueeze(t, z) y = Add(x, u)"""
    weights = {"w": np.ones((2, 40), np.float32), "z": np.array([0]), "o": np.array([1])}
    loaded = loaded_in_background(with_weights(body, **weights))
    for size in (33, 40, 36, 35, 38):
        x = normal(2, size, 6)
        assert_allclose(loaded(x), x + 1, rtol=1e-6)
        wait_for_background()


def with_weights(
    body: str, inputs: str = "float[batch,sequence,6] x", **weights: Any
) -> onnx.ModelProto:
    proto: onnx.ModelProto = model(body, inputs)
    for name, value in weights.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    return proto


# Of a batch: products, which without this have no kernels for single rows, and sums over axes.
BATCHES = {
    "products": "r = Flatten(x) p = MatMul(r, a) q = Relu(p) y = MatMul(q, b)",
    "gemm": "r = Flatten(x) y = Gemm(r, a, c)",
    "softmax": "y = Softmax<axis = 1>(x)",
    "reshaped": """d = Constant<value_ints = [0, -1]>() r = Reshape(x, d)
        m = ReduceMean<keepdims = 1>(r) y = Sub(r, m)""",
    "transposed": "t = Transpose<perm = [1, 0, 2]>(x) y = ReduceSum<keepdims = 0>(t)",
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_of_one_needs_no_trace(name: str) -> None:
    rng = np.random.default_rng(0)
    weights = {
        "a": rng.standard_normal((40 * 6, 1024)).astype(np.float32),
        "b": rng.standard_normal((1024, 256)).astype(np.float32),
        "c": rng.standard_normal(1024).astype(np.float32),
    }
    proto = with_weights(BATCHES[name], **weights)
    changing = loaded_in_background(proto)
    numpy = sardonyx.load(proto, backend="numpy", buckets=None)
    for batch in (9, 7, 8, 1, 5, 1):
        x = normal(batch, 40, 6)
        before = changing.stats().traces
        assert_allclose(changing(x), numpy(x), rtol=1e-4, atol=1e-3)
        wait_for_background()
        if batch in (1, 5):
            assert changing.stats().traces == before


def test_where_a_batch_of_one_is_special_the_others_are_derived() -> None:
    """Nothing is expanded for a batch of one, so that a step is missing there."""
    body = """m = ReduceMean<keepdims = 1>(x, z) s = Shape(x) e = Expand(m, s) y = Sub(x, e)"""
    changing = loaded_in_background(with_weights(body, z=np.array([0])))
    for batch in (9, 7, 8, 5, 1, 6, 2):
        x = normal(batch, 40, 6)
        before = changing.stats().traces
        assert_allclose(changing(x), x - x.mean(axis=0), rtol=1e-5, atol=1e-5)
        wait_for_background()
        if batch in (5, 6, 2):
            assert changing.stats().traces == before


def test_calls_with_a_batch_of_one_get_a_program_when_it_pays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(learned_calls, "SECONDS_PER_STEP", 0.0)
    body = "e = Exp(x) s = Sin(e) y = ReduceSum<keepdims = 0>(s)"
    changing = loaded_in_background(model(body))
    for batch in (9, 7, 8, 5):
        changing(normal(batch, 40, 6))
        wait_for_background()
    x, before = normal(1, 40, 6), changing.stats()
    for _ in range(6):
        assert_allclose(changing(x), np.sin(np.exp(x)).sum(), rtol=1e-4)
        wait_for_background()
    after = changing.stats()
    assert after.compiles == before.compiles + 1
    assert after.interpreted < before.interpreted + 6
