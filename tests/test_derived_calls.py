"""Changing sizes where no program is compiled for them: few traces, and results as if traced."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import weakref
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from onnx import parser

import sardonyx
from sardonyx.backends import available, find
from sardonyx.backends.base import Backend
from sardonyx.backends.jax import onednn
from sardonyx.graph.buckets.derived_calls import MOST_KINDS, corners_of
from sardonyx.graph.buckets.sampled_traces import MAX_TRACES
from sardonyx.types import Array
from tests.conftest import as_parameter
from tests.support.kernels import NEEDS_ONEDNN
from tests.support.onnx_builders import model as graph_model
from tests.support.onnx_builders import node, value
from tests.test_buckets import GRAPHS, model, normal
from tests.test_changing_sizes import DECODER, wrong_sizes_in_threads
from tests.test_derived_recordings import (
    check_that_replaced_weights_are_used,
    described,
    recorded_by_patient_calls,
    sizes_of,
    stages_of,
    wait_for_background,
)

MODELS = Path(__file__).parent / "models"
# Graphs that draw weights at random, or compute nothing, and one whose sizes are rounded.
TRACED = {"convolution", "depthwise", "GRU", "LSTM", "maximum of windows", "a size"}

CONTROL_FLOW = {
    "a branch by size": """n = Shape<start = 1, end = 2>(x) l = Constant<value_ints = [30]>()
        s = Greater(n, l) z = Constant<value_ints = [0]>() c = Squeeze(s, z)
        y = If(c) <then_branch = a () => (float[n] p) { p = Exp(x) },
                   else_branch = b () => (float[n] q) { q = Neg(x) }>""",
    "a branch by data": """m = ReduceMax<keepdims = 0>(x) l = Constant<value_float = 3.0>()
        c = Greater(m, l)
        y = If(c) <then_branch = a () => (float[n] p) { p = Exp(x) },
                   else_branch = b () => (float[n] q) { q = Neg(x) }>""",
    "as many rounds as the size": """n = Shape<start = 1, end = 2>(x)
        z = Constant<value_ints = [0]>() k = Squeeze(n, z) t = Constant<value = bool {1}>()
        y = Loop(k, t, x) <body = l (int64 i, bool c, float[n] v) => (bool d, float[n] w)
            { d = Identity(c) h = Constant<value_float = 0.5>() w = Mul(v, h) }>""",
    "rounds until the data say so": """l = Constant<value_float = 1.0>()
        z = Constant<value = bool {1}>() none = Constant<value_int = 1000>()
        y = Loop(none, z, x) <body = r (int64 i, bool c, float[n] v) => (bool d, float[n] w)
            { h = Constant<value_float = 0.5>() w = Mul(v, h) m = ReduceMax<keepdims = 0>(w)
              d = Greater(m, l) }>""",
    "the places of some": "p = NonZero(x) y = Cast<to = 1>(p)",
    "random numbers": "y = RandomNormalLike<seed = 1.0>(x)",
}  # fmt: skip
IRREGULAR = {
    "half": "two = Constant<value_ints = [2]>() h = Div(n, two) f = Cast<to = 1>(h) y = Mul(x, f)",
    "a square that is rounded": """sq = Mul(n, n) d = Constant<value_ints = [97]>() h = Div(sq, d)
        f = Cast<to = 1>(h) y = Mul(x, f)""",
    "one size of all": """k = Constant<value_ints = [37]>() e = Equal(n, k)
        f = Cast<to = 1>(e) y = Mul(x, f)""",
    "a window": """k = Constant<value_ints = [30]>() m = Min(n, k) z = Constant<value_ints = [0]>()
        o = Constant<value_ints = [1]>() y = Slice(x, z, m, o)""",
    "a period": """k = Constant<value_ints = [7]>() m = Mod(n, k) f = Cast<to = 1>(m)
        y = Add(x, f)""",
    "a root": "f = Cast<to = 1>(n) r = Sqrt(f) y = Div(x, r)",
}


@pytest.fixture(params=[as_parameter(find(name)) for name in available()])
def backend(request: pytest.FixtureRequest) -> Backend:
    """Each library, without kernels that compute several steps: results differ by rounding."""
    chosen: Backend = copy(request.param)
    setattr(chosen, "fuses_segments" if chosen.name == "cupy" else "fuses", False)
    return chosen


def loaded(proto: Any, backend: Backend | str = "numpy", **options: Any) -> sardonyx.Model:
    return sardonyx.load(proto, backend=backend, compile="never", **options)


def as_list(results: Any) -> list[Any]:
    return [results] if hasattr(results, "dtype") else list(results)


def assert_same(changing: sardonyx.Model, plain: sardonyx.Model, *arrays: Any) -> list[Any]:
    """Call both, and compare each bit; the background is then done."""
    ours, theirs = as_list(changing(*arrays)), as_list(plain(*arrays))
    for our, their in zip(ours, theirs, strict=True):
        assert (our.dtype, our.shape) == (their.dtype, their.shape)
        assert_array_equal(our, their)
        assert our.dtype == object or our.tobytes() == their.tobytes()
    wait_for_background()
    return ours


def test_a_decoder_is_traced_a_few_times(backend: Backend) -> None:
    proto = parser.parse_model(DECODER)
    changing, plain = loaded(proto, backend), loaded(proto, backend, buckets=None)
    caches = [normal(1, 5, 8), normal(1, 5, 8)]
    for i in range(256):
        _, *caches = assert_same(changing, plain, normal(1, 1, 8) + np.float32(i / 100), *caches)
    assert changing.stats().traces <= 12
    assert plain.stats().traces == 256
    # The second call waits for a search, unless the machine is slow.
    assert changing.stats().calls == 256
    assert changing.stats().hits in (254, 255)


def test_a_decoder_waits_for_what_derives_its_recordings(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a call were traced as well, the search would take longer, and so would the next calls."""
    recorded = recorded_by_patient_calls(monkeypatch)
    changing = loaded(parser.parse_model(DECODER), backend)
    caches = [normal(1, 5, 8), normal(1, 5, 8)]
    for _ in range(40):
        _, *caches = as_list(changing(normal(1, 1, 8), *caches))
    assert recorded == [threading.current_thread()]


@pytest.mark.parametrize("dimensions", [1, 2])
@pytest.mark.parametrize("name", GRAPHS)
def test_a_derived_recording_is_that_of_a_trace(
    name: str, dimensions: int, backend: Backend
) -> None:
    proto = model(GRAPHS[name])
    changing, plain = loaded(proto, backend), loaded(proto, backend, buckets=None)
    derived = 0
    for sizes in sizes_of(dimensions):
        x, before = normal(*sizes, 6), changing.stats().traces
        as_list(changing(x))
        if changing.stats().traces == before:
            derived += 1
            for stage, traced in zip(stages_of(changing, x), stages_of(plain, x), strict=True):
                assert described(stage) == described(traced)
        wait_for_background()
        if name not in TRACED:  # Some of these draw.
            assert_same(changing, plain, x)
    assert derived > 10 or name in TRACED


@NEEDS_ONEDNN
@pytest.mark.sampled(5)
@pytest.mark.parametrize("dimensions", [1, 2])
@pytest.mark.parametrize("name", GRAPHS)
def test_kernels_for_derived_sizes(name: str, dimensions: int) -> None:
    """Their results differ from NumPy's by rounding."""
    assert onednn.loaded.shared_library() is not None
    proto = model(GRAPHS[name])
    changing, plain = loaded(proto, "jax"), loaded(proto, buckets=None)
    for sizes in sizes_of(dimensions):
        x = normal(*sizes, 6)
        expected = as_list(plain(x))
        for _ in range(3):
            for our, their in zip(as_list(changing(x)), expected, strict=True):
                assert (our.dtype, our.shape) == (their.dtype, their.shape)
                assert_allclose(our, their, rtol=1e-4, atol=1e-5)
        wait_for_background()


@pytest.mark.parametrize("name", ["encoder_dynamo", "encoder_torchscript", "masks_dynamo"])
def test_lengths_of_exported_models(name: str, backend: Backend) -> None:
    proto, example = onnx.load(MODELS / f"{name}.onnx"), np.load(MODELS / f"{name}.npz")
    changing, plain = loaded(proto, backend), loaded(proto, backend, buckets=None)
    rng = np.random.default_rng(0)
    before = 0
    for sequence in (12, 7, 9, 5, 11, 6, 8, 10, 13, 4):
        feeds = []
        for info in changing.inputs:
            shape = [{"batch": 2, "sequence": sequence}.get(str(n), 2) if isinstance(n, str) else n
                     for n in info.shape]  # fmt: skip
            most = max(int(example[info.name].max()), 1) if info.name in example.files else 2
            array = rng.integers(0, most, shape, endpoint=True)
            array = rng.standard_normal(shape) if info.dtype.kind == "f" else array
            feeds.append(array.astype(info.dtype))
        before = changing.stats().traces
        assert_same(changing, plain, *feeds)
    # For a few rows oneDNN has no kernel, and so the program has another form.
    assert changing.stats().traces == before or backend.compiled


@pytest.mark.parametrize("body", CONTROL_FLOW.values(), ids=CONTROL_FLOW)
def test_control_flow_and_data(body: str, backend: Backend) -> None:
    proto = model(body.replace("[n]", "[batch, n, 6]"), inputs="float[batch,n,6] x")
    changing, plain = loaded(proto, backend), loaded(proto, backend, buckets=None)
    for size in (20, 25, 22, 24, 21, 31, 40, 29, 30, 33, 23, 26):
        x = normal(2, size, 6) * 4
        if "Random" in body:
            ours = sardonyx.run_op("Shape", changing(x))
            assert_array_equal(ours, [2, size, 6])
        else:
            assert_same(changing, plain, x)
        wait_for_background()


@pytest.mark.parametrize("body", IRREGULAR.values(), ids=IRREGULAR)
def test_what_follows_no_formula_is_traced(body: str, backend: Backend) -> None:
    proto = model(f"n = Shape<start = 1, end = 2>(x) {body}")
    changing, plain = loaded(proto, backend), loaded(proto, backend, buckets=None)
    for size in (*range(20, 60, 3), *range(21, 60, 3), 200, *range(22, 60, 3)):
        assert_same(changing, plain, normal(2, size, 6))


def test_strings(backend: Backend) -> None:
    nodes = [
        node("StringConcat", ["s", "s"], ["t"]),
        node("ReduceMax", ["x", "axis"], ["m"], keepdims=0),
        node("Shape", ["t"], ["n"]),
    ]
    axis = onnx.numpy_helper.from_array(np.array([1]), "axis")
    strings = value("s", ["batch"], onnx.TensorProto.STRING)
    inputs = [strings, value("x", ["batch", 3])]
    proto = graph_model(nodes, inputs, ["t", "m", "n"], [axis], opset=23)
    changing, plain = loaded(proto, backend), loaded(proto, backend, buckets=None)
    for size in (4, 5, 9, 7, 6, 8, 3):
        words = np.array([f"{i}" for i in range(size)], object)
        assert_same(changing, plain, words, normal(size, 3))


def test_without_buckets_each_size_is_traced(backend: Backend) -> None:
    plain = loaded(model(GRAPHS["softmax"]), backend, buckets=None)
    for size in range(20, 30):
        plain(normal(2, size, 6))
    wait_for_background()
    assert plain.stats().traces == 10


def test_a_model_ends_at_its_last_position(backend: Backend) -> None:
    body = """n = Shape <start = 1, end = 2> (x) one = Constant <value_ints = [1]> ()
        i = Sub (n, one) row = Gather (table, i) y = Add (x, row)"""
    proto = model(body)
    table = np.arange(1800, dtype=np.float32).reshape(300, 6)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(table, "table"))
    changing = loaded(proto, backend)
    for size in range(20, 301):
        x = normal(1, size, 6)
        assert_array_equal(changing(x), x + table[size - 1])
        wait_for_background()
    # Some of them are those of sizes that the model refuses.
    assert changing.stats().traces <= 60


def test_replaced_weights_are_used(backend: Backend) -> None:
    check_that_replaced_weights_are_used(lambda proto: loaded(proto, backend))


def test_results_are_the_callers_own(backend: Backend) -> None:
    changing = loaded(model("y = Add(x, x) z = Identity(x)", output="y"), backend)
    kept = []
    for size in (33, 40, 36, 35, 37, 38):
        x = normal(2, size, 6)
        kept.append((x, x.copy(), changing(x)))
        wait_for_background()
    for x, copied, result in kept:
        assert_array_equal(x, copied)
        assert_array_equal(result, 2 * copied)


def test_threads_derive_recordings_at_once(backend: Backend) -> None:
    changing = loaded(model(GRAPHS["attention"]), backend)
    assert not wrong_sizes_in_threads(changing, "attention", range(20, 65))
    wait_for_background()


@pytest.mark.slow
def test_a_model_whose_sizes_change_is_freed(backend: Backend) -> None:
    changing = loaded(model(GRAPHS["softmax"]), backend)
    for size in (33, 40, 36, 35, 37):
        changing(normal(2, size, 6))
        wait_for_background()
    gc.collect()
    form = weakref.ref(changing._plain)
    del changing
    assert form() is None, "it waits for the garbage collector"


def test_memory_is_bounded() -> None:
    changing = loaded(model("y = Exp(x)", inputs="float[] x"), max_signatures=4)
    for rank in range(1, 8):
        for ones in range(2 ** (rank - 1)):
            shape = [1 if ones >> i & 1 else 2 for i in range(rank)]
            changing(np.zeros(shape, np.float32))
    for size in range(2, 60):
        changing(np.zeros((size, size + 1), np.float32))
        wait_for_background()
    assert changing.stats().signatures == 4
    known = changing._plain._padded_calls._known  # type: ignore[union-attr]
    assert len(known) == MOST_KINDS
    lessons = [each.lesson for each in known.values() if each.lesson is not None]
    assert any(lesson.derivation is not None for lesson in lessons)
    assert all(len(lesson.samples.samples) <= MAX_TRACES for lesson in lessons)


def test_operators_of_users_run_in_their_calls_alone() -> None:
    threads = []

    @sardonyx.op(domain="own")
    def Twice(xp: Any, X: Array) -> Array:
        threads.append(threading.current_thread())
        return X + X

    graph = graph_model(
        [node("Twice", ["x"], ["y"], domain="own")], [value("x", ["n"])], ["y"], own=1
    )
    changing = loaded(graph, ops=[Twice])
    for size in (3, 4, 5, 6, 7, 8):
        x = np.arange(size, dtype=np.float32)
        assert_array_equal(changing(x), 2 * x)
        wait_for_background()
    assert set(threads) == {threading.current_thread()}


def test_what_only_looks_at_calls_teaches_nothing() -> None:
    changing = loaded(model(GRAPHS["softmax"]))
    for size in range(20, 26):
        changing.trace(normal(2, size, 6))
        changing.memory(normal(2, size, 6))
    wait_for_background()
    assert changing.stats().traces == 12


def test_corners_reach_the_ends_of_each_dimension() -> None:
    assert corners_of((2, 3), (8, 9)) == [(8, 9), (2, 3), (2, 8), (7, 3), (7, 8)]


RUN = """
import os, sys
import numpy as np, sardonyx
model = sardonyx.load(sys.stdin.buffer.read(), backend='numpy')
def call(size):
    x = np.ones((2, size, 6), np.float32)
    assert np.allclose(model(x), 1 / size)
for size in (20, 25, 22): call(size)
"""


def run_apart(code: str) -> None:
    stdin = model(GRAPHS["softmax"]).SerializeToString()
    run = [sys.executable, "-W", "ignore", "-c", RUN + code]
    finished = subprocess.run(run, input=stdin, check=False, capture_output=True, timeout=60)
    assert (finished.returncode, finished.stderr) == (0, b"")


def test_a_process_ends_while_it_traces() -> None:
    run_apart("")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_process_that_was_forked_meanwhile_derives_its_own() -> None:
    run_apart("""
from sardonyx.graph.programs.background import COMPILES
import time
child = os.fork()
for size in range(26, 30): call(size)
end = time.monotonic() + 30
while COMPILES._threads:
    assert time.monotonic() < end
    time.sleep(0.01)
before = model.stats().traces
for size in range(30, 35): call(size)
assert model.stats().traces == before
if child: assert os.waitpid(child, 0)[1] == 0
""")
