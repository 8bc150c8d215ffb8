"""The first call of a large model begins the search for other sizes, if the file names one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose

import sardonyx
from sardonyx.backends import processors
from sardonyx.graph.buckets import foreseen, learned_calls, patience
from sardonyx.graph.buckets.foreseen import Foresight
from sardonyx.graph.buckets.patience import OutOfPatience, Patience
from sardonyx.graph.ir import ValueInfo
from tests.support.background import wait_for_background
from tests.support.kernels import NEEDS_ONEDNN
from tests.test_buckets import normal
from tests.test_second_sizes import with_weights

WIDTH = 256
# A softmax over as many rows as there are, between two products; tables limit how many that are.
BODY = """a = MatMul(x, w) t = Transpose<perm = [0, 2, 1]>(a) s = MatMul(a, t)
    p = Softmax<axis = -1>(s) b = MatMul(p, a) c = MatMul(b, w) y = Relu(c)"""
LIMITED = """n = Shape<start = 1, end = 2>(x) rows = Slice(table, zero, n, zero)
    u = Add(x, rows) y = MatMul(u, w)"""


# Without JAX, which forked processes refuse.
FORKED = """
import os, sys, time
import numpy as np
import sardonyx
from sardonyx.backends import processors
from sardonyx.graph.buckets import foreseen, learned_calls
from sardonyx.graph.programs.background import COMPILES

foreseen.LEAST_NODES, learned_calls.SECONDS_PER_STEP = 1, 1e9
processors.available = lambda: 2
submit = COMPILES.submit
if {is_before}:
    COMPILES.submit = lambda job, is_next=False: None
model = sardonyx.load({path!r}, backend="jax", compile="background")
model(np.ones((1, 33, {width}), np.float32))
child = os.fork()
if not child:
    COMPILES.submit = submit
    counts = []
    for length in (40, 36, 38, 12, 41, 37):
        model(np.ones((1, length, {width}), np.float32))
        time.sleep(0.5)
        counts.append(model.stats().traces)
    os._exit(len(set(counts[3:])) > 1)
assert "jax" not in sys.modules
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.fixture(autouse=True)
def two_processors(monkeypatch: pytest.MonkeyPatch, compiles_all: None) -> None:
    """No program is compiled, and small models count as large."""
    monkeypatch.setattr(learned_calls, "SECONDS_PER_STEP", 1e9)
    monkeypatch.setattr(foreseen, "LEAST_NODES", 1)
    monkeypatch.setattr(processors, "available", lambda: 2)


def weights() -> Any:
    return np.random.default_rng(0).normal(size=(WIDTH, WIDTH)).astype(np.float32) / 16


def loaded(
    body: str, inputs: str = f"float[batch,length,{WIDTH}] x", **tables: Any
) -> sardonyx.Model:
    proto = with_weights(body, inputs=inputs, w=weights(), **tables)
    return sardonyx.load(proto, backend="jax", compile="background")


def right(x: Any) -> Any:
    a = x @ weights()
    s = a @ a.transpose(0, 2, 1)
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    return np.maximum(p / p.sum(axis=-1, keepdims=True) @ a @ weights(), 0)


def traces_of(model: sardonyx.Model, shapes: Sequence[tuple[int, int]]) -> list[int]:
    """Call the model with these batches and lengths; return the traces of each call."""
    counts = [model.stats().traces]
    for batch, length in shapes:
        x = normal(batch, length, WIDTH)
        assert_allclose(model(x), right(x), rtol=1e-4, atol=1e-5)
        wait_for_background()
        counts.append(model.stats().traces)
    return np.diff(counts).tolist()


@NEEDS_ONEDNN
def test_a_second_size_needs_no_trace() -> None:
    model = loaded(BODY)
    # The own trace, and those of 2, of the largest size and of the one below, and of the own.
    assert traces_of(model, [(1, 33), (1, 40), (1, 7), (1, 200), (1, 33)]) == [5, 0, 0, 0, 0]


@NEEDS_ONEDNN
def test_sizes_beyond_those_are_searched_for_when_they_come() -> None:
    traces = traces_of(loaded(BODY), [(1, 33), (1, 300), (1, 310), (1, 290)])
    assert traces[0] == 5
    assert traces[1] >= 1
    assert not any(traces[2:])


@NEEDS_ONEDNN
def test_it_is_a_batch_that_changes_if_nothing_else_has_a_name() -> None:
    model = loaded(BODY, f"float[batch,33,{WIDTH}] x")
    assert traces_of(model, [(8, 33), (3, 33), (64, 33), (1, 33)])[1:] == [0, 0, 0]


@NEEDS_ONEDNN
@pytest.mark.parametrize(
    "shapes", [[(4, 33), (4, 40), (5, 33)], [(1, 1), (1, 40), (1, 36)]], ids=["both", "neither"]
)
def test_nothing_is_foreseen_where_another_size_may_change(shapes: Any) -> None:
    assert traces_of(loaded(BODY), shapes)[0] == 1


@NEEDS_ONEDNN
@pytest.mark.parametrize("option", [{"buckets": None}, {"compile": "now"}])
def test_nothing_is_foreseen_where_calls_are_not_to_learn(option: Any) -> None:
    proto = with_weights(BODY, inputs=f"float[batch,length,{WIDTH}] x", w=weights())
    options = {"compile": "background", **option}
    assert traces_of(sardonyx.load(proto, backend="jax", **options), [(1, 33)]) == [1]


@NEEDS_ONEDNN
def test_nothing_is_foreseen_on_one_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "available", lambda: 1)
    assert traces_of(loaded(BODY), [(1, 33)]) == [1]


@NEEDS_ONEDNN
def test_nothing_is_foreseen_in_small_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreseen, "LEAST_NODES", 200)
    assert traces_of(loaded(BODY), [(1, 33)]) == [1]


@NEEDS_ONEDNN
def test_a_model_that_ends_early_is_searched_as_far_as_it_goes() -> None:
    table = normal(100, WIDTH)
    model = loaded(LIMITED, table=table, zero=np.array([0]))
    counts = []
    for length in (33, 40, 64, 5):
        x = normal(1, length, WIDTH)
        assert_allclose(model(x), (x + table[:length]) @ weights(), rtol=1e-4, atol=1e-5)
        wait_for_background()
        counts.append(model.stats().traces)
    assert len(set(counts)) == 1
    with pytest.raises(sardonyx.SardonyxError, match="Add"):
        model(normal(1, 101, WIDTH))


@NEEDS_ONEDNN
def test_another_size_than_the_foreseen_one_may_change() -> None:
    """No name says that the second input grows; from the third size on it needs no trace."""
    inputs = f"float[batch,length,{WIDTH}] x, float[batch,?,{WIDTH}] z"
    model = loaded("c = Concat<axis = 1>(x, z) m = MatMul(c, w) y = Relu(m)", inputs)
    traces = [0]
    for more in (5, 7, 9, 8, 6, 20, 22):
        x, z = normal(1, 33, WIDTH), normal(1, more, WIDTH)
        expected = np.maximum(np.concatenate([x, z], axis=1) @ weights(), 0)
        assert_allclose(model(x, z), expected, rtol=1e-4, atol=1e-5)
        wait_for_background()
        traces.append(model.stats().traces)
    assert traces[-1] == traces[-2]


@NEEDS_ONEDNN
def test_results_that_come_back_grow_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing says so here: the search that was begun for other sizes is in vain, and no more."""
    body = "n = Slice(x, zero, one, one) m = MatMul(n, w) y = Concat<axis = 1>(x, m)"
    traces = []
    for least in (1, 200):
        monkeypatch.setattr(foreseen, "LEAST_NODES", least)
        inputs = f"float[batch,past,{WIDTH}] x"
        model = loaded(body, inputs, zero=np.array([0]), one=np.array([1]))
        cache = expected = normal(1, 5, WIDTH)
        for _ in range(30):
            cache = model(cache)
            expected = np.concatenate([expected, expected[:, :1] @ weights()], axis=1)
            assert_allclose(cache, expected, rtol=1e-4, atol=1e-5)
            wait_for_background()
        traces.append(model.stats().traces)
    assert traces[0] - traces[1] <= 4


@NEEDS_ONEDNN
def test_a_second_call_waits_for_the_search() -> None:
    """Nothing is awaited between the calls here."""
    model = loaded(BODY)
    for length in (33, 40, 36, 12, 33):
        x = normal(1, length, WIDTH)
        assert_allclose(model(x), right(x), rtol=1e-4, atol=1e-5)
    wait_for_background()
    assert model.stats().traces <= 8


def test_who_searches_looks_whether_the_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    patience.PATIENCE.begin(1.0)
    monkeypatch.setattr(patience, "main_thread", lambda: SimpleNamespace(is_alive=lambda: False))
    with pytest.raises(OutOfPatience):
        Patience(np.inf, 0.0).begin(1.0)


@NEEDS_ONEDNN
def test_a_process_ends_beside_a_search() -> None:
    code = """
import numpy as np, sardonyx
from sardonyx.graph.buckets import foreseen
from tests.test_foreseen_sizes import BODY, WIDTH, loaded, normal
foreseen.LEAST_NODES = 1
print(loaded(BODY)(normal(1, 33, WIDTH)).shape)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == f"(1, 33, {WIDTH})\n"
    assert not done.stderr


@NEEDS_ONEDNN
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("moment", ["before", "during"])
def test_a_process_that_is_forked_beside_a_search_learns_anew(moment: str, tmp_path: Path) -> None:
    """A search that waits is lost in it, and a fork waits for one that has begun."""
    path = tmp_path / "model.onnx"
    onnx.save(with_weights(BODY, inputs=f"float[batch,length,{WIDTH}] x", w=weights()), path)
    code = FORKED.format(path=str(path), width=WIDTH, is_before=moment == "before")
    arguments = [sys.executable, "-W", "ignore", "-c", code]
    subprocess.run(arguments, check=True, timeout=120)


def test_the_file_says_what_may_change() -> None:
    def info(*shape: Any) -> ValueInfo:
        return ValueInfo("x", "tensor(float)", None, shape)

    def named(*pairs: tuple[ValueInfo, tuple[int, ...]], output: Any = ()) -> Any:
        infos, shapes = zip(*pairs, strict=True)
        found = Foresight(infos, [info(*output)], 1).sizes(shapes)
        return found and [each.shape for each in found.infos]

    assert named((info("batch", "length"), (1, 9)), (info("length"), (9,))) == [
        (1, "length"),
        ("length",),
    ]
    assert named((info("batch", 3, None), (2, 3, 4))) == [("batch", 3, 4)]
    # A name that is two sizes, a size that follows from another, none, and an empty array.
    assert named((info("length"), (9,)), (info("length"), (8,))) is None
    assert named((info("past"), (9,)), (info("past + 1"), (10,))) is None
    assert named((info(4, None), (4, 9))) is None
    assert named((info("past"), (0,)), (info("length"), (9,))) is None
    assert named((ValueInfo("x", "tensor(float)", None, None), (9,))) is None
    # A result that may come back, one larger, and one that says nothing.
    assert named((info("past", 4), (9, 4)), output=("past + 1", 4)) is None
    assert named((info("past", 4), (9, 4)), output=("all", 4)) is None
    assert named((info("past", 4), (9, 4)), output=("past", 4)) == [("past", 4)]
    assert named((info("past", 4), (9, 4)), output=("past + 1", 5)) == [("past", 4)]
