"""Programs run step by step until they are compiled, and nobody can tell but by rounding."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.backends import interpreter
from sardonyx.backends.base import Backend
from sardonyx.backends.interpreter import MOST_FOR_ONE_THREAD, Interpreter, Overtaken
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import NumpyBackend
from sardonyx.backends.standard import Array
from sardonyx.graph.programs import compiler, interpretation
from sardonyx.graph.programs.background import Background
from tests.support.background import wait_for_background
from tests.support.onnx_builders import graph as subgraph
from tests.support.onnx_builders import model, node, value, weight
from tests.test_first_calls import MODELS, drawn

INT64, BOOL = onnx.TensorProto.INT64, onnx.TensorProto.BOOL
PATIENCE_OF_TESTS = 120.0


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_OF_TESTS
    while not condition():
        assert time.monotonic() < end, "the background compiled nothing"
        time.sleep(0.01)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first run never takes so long that the compiler starts."""
    monkeypatch.setattr(interpretation, "PATIENCE", 3600)


def doubled() -> onnx.ModelProto:
    return model(
        [node("Add", ["x", "w"], ["s"]), node("Mul", ["s", "s"], ["y"])],
        [value("x", ["n", 3])],
        ["y"],
        [weight("w", np.array([1, 2, 3], np.float32))],
    )


def summed() -> onnx.ModelProto:
    """The sum over the rows, which padding must not change."""
    nodes = [
        node("ReduceSum", ["x", "rows"], ["s"], keepdims=0),
        node("Add", ["s", "w"], ["y"]),
    ]
    weights = [weight("w", np.array([1, 2, 3], np.float32)), weight("rows", np.array([0]))]
    return model(nodes, [value("x", ["n", 3])], ["y"], weights)


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
@pytest.mark.sampled(3)
def test_results_differ_by_rounding_only(path: Path) -> None:
    stepped = sardonyx.load(path, backend="jax", compile="never")
    inputs = drawn(stepped)
    expected = sardonyx.load(path, backend="jax", compile="now").run(None, inputs)
    for _ in range(2):
        for one, other in zip(stepped.run(None, inputs), expected, strict=True):
            if np.asarray(other).dtype.kind in "OUS":
                assert np.asarray(one).tolist() == np.asarray(other).tolist()
            else:
                np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-4)
    assert stepped.stats().interpreted > 0
    assert stepped.stats().compiles == 0


@pytest.mark.usefixtures("patient")
def test_a_signature_that_comes_once_compiles_nothing() -> None:
    loaded = sardonyx.load(doubled(), compile="background", buckets=None)
    for n in range(1, 6):
        loaded(np.ones((n, 3), np.float32))
    stats = loaded.stats()
    assert (stats.compiles, stats.interpreted) == (0, 5)


# Few rows are written out as calls of NumPy, many are compiled by XLA.
ROWS = {2: (0, 1), 20_000: (1, 0)}


def made_ready(loaded: sardonyx.Model) -> tuple[int, int]:
    """The numbers of segments that were compiled, and written out."""
    return loaded.stats().compiles, loaded.stats().written_out


@pytest.mark.parametrize("rows", ROWS)
def test_the_compiled_program_takes_over(rows: int) -> None:
    loaded = sardonyx.load(doubled(), compile="background")
    x = np.ones((rows, 3), np.float32)
    first = loaded(x)
    np.testing.assert_array_equal(loaded(x), first)
    wait_for(lambda: made_ready(loaded) == ROWS[rows])
    before = loaded.stats().interpreted
    for _ in range(3):
        np.testing.assert_array_equal(loaded(x), first)
    assert loaded.stats().interpreted == before
    assert made_ready(loaded) == ROWS[rows]
    np.testing.assert_array_equal(first, np.array([[4, 9, 16]] * rows, np.float32))


def test_a_slow_first_run_starts_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpretation, "PATIENCE", 0)
    loaded = sardonyx.load(doubled(), compile="background")
    loaded(np.ones((20_000, 3), np.float32))
    wait_for(lambda: loaded.stats().compiles == 1)


def test_never_compiles_only_when_asked() -> None:
    loaded = sardonyx.load(doubled(), compile="never")
    x = np.ones((20_000, 3), np.float32)
    for _ in range(4):
        loaded(x)
    assert loaded.stats().compiles == 0
    loaded.compile({"x": x.shape})
    before = loaded.stats()
    loaded(x)
    assert (loaded.stats().compiles, loaded.stats().interpreted) == (1, before.interpreted)


@pytest.mark.parametrize(("mode", "compiles"), [("never", 0), ("background", 1)])
def test_a_large_convolution_waits_for_programs_that_follow(
    mode: str, compiles: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float64, of which oneDNN has none, by filters that no weight is."""
    monkeypatch.setattr(interpreter, "MOST_COLUMNS", 0)
    monkeypatch.setattr(compiler, "LEAST_SAVED", 0)  # Steps are written out, however long.
    x, w = np.ones((1, 2, 200, 200)), np.ones((3, 2, 3, 3))
    graph, double = [node("Conv", ["x", "w"], ["y"])], onnx.TensorProto.DOUBLE
    inputs = [value(name, each.shape, double) for name, each in (("x", x), ("w", w))]
    proto = model(graph, inputs, [value("y", None, double)])
    loaded = sardonyx.load(proto, backend="jax", compile=mode)
    for _ in range(3):
        np.testing.assert_allclose(loaded(x, w), np.full((1, 3, 198, 198), 18), rtol=1e-6)
        wait_for_background()
    stats = loaded.stats()
    assert (stats.compiles, stats.written_out) == (compiles, 1 - compiles)


@pytest.mark.parametrize("rows", ROWS)
def test_compiling_ahead_leaves_nothing_to_interpret(rows: int) -> None:
    loaded = sardonyx.load(doubled(), compile="background")
    loaded.compile({"x": (rows, 3)})
    loaded(np.ones((rows, 3), np.float32))
    assert (made_ready(loaded), loaded.stats().interpreted) == (ROWS[rows], 0)


@pytest.mark.usefixtures("patient")
def test_results_are_arrays_of_the_caller() -> None:
    loaded = sardonyx.load(doubled(), compile="background")
    assert isinstance(loaded(np.ones((2, 3), np.float32)), np.ndarray)
    assert isinstance(loaded(jnp.ones((4, 3), jnp.float32)), jax.Array)


@pytest.mark.parametrize("kind", [np.array, jnp.array], ids=["numpy", "jax"])
@pytest.mark.parametrize("size", [4, 2**16])
def test_results_share_no_memory_with_inputs_or_weights(kind: Any, size: int) -> None:
    """Views of inputs and weights leave the program as copies: callers write to their arrays."""
    graph = model(
        [
            node("Transpose", ["x"], ["turned"], perm=[1, 0]),
            node("Reshape", ["x", "flat"], ["row"]),
            node("Relu", ["x"], ["positive"]),
            node("Transpose", ["w"], ["of_weight"], perm=[1, 0]),
        ],
        [value("x", ["n", 2])],
        ["turned", "row", "positive", "of_weight"],
        [weight("flat", np.array([-1])), weight("w", np.ones((2, size), np.float32))],
    )
    loaded = sardonyx.load(graph, compile="never", rewrites=False)
    x = np.ones((size, 2), np.float32)
    results = loaded(x if kind is np.array else kind(x))
    x[...] = 7
    for result in results:
        assert (np.asarray(result) == 1).all()


@pytest.mark.usefixtures("patient")
def test_data_that_numpy_refuses_gives_what_the_compiled_program_gives() -> None:
    graph = model(
        [node("Gather", ["w", "i"], ["y"])],
        [value("i", ["n"], INT64)],
        ["y"],
        [weight("w", np.arange(8, dtype=np.float32).reshape(4, 2))],
    )
    outside = np.array([0, 9])
    expected = sardonyx.load(graph, backend="jax", compile="now")(outside)
    loaded = sardonyx.load(graph, backend="jax", compile="background")
    np.testing.assert_array_equal(loaded(outside), expected)
    assert loaded.stats().compiles == 1
    np.testing.assert_array_equal(loaded(np.array([3, 1])), [[6, 7], [2, 3]])


def test_donated_arrays_are_deleted() -> None:
    graph = model([node("Add", ["past", "past"], ["now"])], [value("past", ["n"])], ["now"])
    step = sardonyx.load(graph, compile="never").bind(donate="past")
    past = jnp.ones(4)
    assert np.asarray(step(past)).tolist() == [2, 2, 2, 2]
    assert past.is_deleted()
    with pytest.raises(sardonyx.SardonyxError, match=r"deleted|donated"):
        step(past)


def test_draws_are_the_same() -> None:
    graph = model(
        [node("RandomNormalLike", ["x"], ["n"]), node("Bernoulli", ["x"], ["b"])],
        [value("x", ["n", 8])],
        ["n", "b"],
    )
    x = np.full((16, 8), 0.5, np.float32)
    stepped, compiled = (
        sardonyx.load(graph, backend="jax", compile=mode).bind(key=3)(x)
        for mode in ("never", "now")
    )
    np.testing.assert_allclose(stepped[0], compiled[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(stepped[1], compiled[1])
    unbound = sardonyx.load(graph, backend="jax", compile="never")
    assert (np.asarray(unbound(x)[0]) != np.asarray(unbound(x)[0])).any()


def test_programs_that_read_data_go_on() -> None:
    graph = model(
        [
            node("NonZero", ["x"], ["where"]),
            node("Cast", ["where"], ["f"], to=1),
            node("ReduceSum", ["f"], ["y"], keepdims=0),
        ],
        [value("x", ["n"])],
        ["y"],
    )
    loaded = sardonyx.load(graph, backend="jax", compile="background")
    for x in ([1, 0, 2], [0, 0, 5], [1, 0, 2], [1, 1, 1]):
        (expected,) = np.nonzero(x)
        assert float(loaded(np.array(x, np.float32))) == expected.sum()


def test_replaced_weights_are_seen_at_once() -> None:
    loaded = sardonyx.load(doubled(), compile="background")
    x = np.zeros((1, 3), np.float32)
    for scale in range(1, 30):
        loaded.params["w"] = np.full(3, scale, np.float32)
        np.testing.assert_array_equal(loaded(x), np.full((1, 3), scale**2, np.float32))


@pytest.mark.parametrize("buckets", [{"n": [8, 16]}, "auto"], ids=str)
def test_sizes_that_change_need_no_compiler(buckets: Any) -> None:
    loaded = sardonyx.load(summed(), backend="jax", compile="never", buckets=buckets)
    for n in range(2, 12):
        assert loaded(np.full((n, 3), 2, np.float32)).tolist() == [n * 2 + 1, n * 2 + 2, n * 2 + 3]
    assert loaded.stats().compiles == 0


def test_no_new_size_waits_for_the_program_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on, begun = threading.Event(), threading.Event()
    original = JaxBackend.compile

    def compile_slowly(self: JaxBackend, *arguments: Any, **options: Any) -> Any:
        begun.set()
        assert goes_on.wait(PATIENCE_OF_TESTS)
        return original(self, *arguments, **options)

    monkeypatch.setattr(JaxBackend, "compile", compile_slowly)
    loaded = sardonyx.load(summed(), backend="jax", compile="background")
    start = time.monotonic()
    try:
        for n in (50_000, 50_000, 50_001, 50_002, 50_003, 50_004):
            assert loaded(np.ones((n, 3), np.float32)).tolist() == [n + 1, n + 2, n + 3]
            assert n != 50_001 or begun.wait(PATIENCE_OF_TESTS)
        assert time.monotonic() - start < PATIENCE_OF_TESTS / 2
    finally:
        goes_on.set()


@pytest.mark.usefixtures("compiles_all")
def test_programs_for_all_sizes_are_compiled_in_the_background() -> None:
    """Calls run step by step until then; what runs so seldom that it takes no time goes on so."""
    loaded = sardonyx.load(summed(), backend="jax", compile="background")
    sizes = count(2)

    def call() -> int:
        n = next(sizes) % 90 + 2
        assert loaded(np.full((n, 3), 2, np.float32)).tolist() == [n * 2 + 1, n * 2 + 2, n * 2 + 3]
        return loaded.stats().interpreted

    end, before = time.monotonic() + PATIENCE_OF_TESTS, -100
    while call() > before + 5:  # Until a round of all sizes is interpreted nearly nowhere.
        assert time.monotonic() < end
        before = loaded.stats().interpreted
        for _ in range(100):
            call()
    # The first two sizes, and a few before it was known how sizes change, have their own programs.
    assert 0 < loaded.stats().compiles < 45


def test_functions_of_users_are_compiled() -> None:
    """They may be for JAX alone."""

    @sardonyx.op(domain="own")
    def Twice(xp: Backend, X: Array) -> Array:
        assert isinstance(X, jax.core.Tracer)
        return X + X

    graph = model([node("Twice", ["x"], ["y"], domain="own")], [value("x", [2])], ["y"], own=1)
    loaded = sardonyx.load(graph, backend="jax", ops=[Twice], compile="background")
    assert loaded(np.ones(2, np.float32)).tolist() == [2, 2]
    assert (loaded.stats().compiles, loaded.stats().interpreted) == (1, 0)


@pytest.mark.parametrize(
    "options",
    [{"checked": True}, {"precision": "bfloat16"}, {"jit": False}, {"backend": "numpy"}],
    ids=str,
)
def test_other_promises_come_first(options: dict[str, Any]) -> None:
    loaded = sardonyx.load(doubled(), **{"backend": "jax", "compile": "background", **options})
    loaded(np.ones((2, 3), np.float32))
    assert loaded.stats().interpreted == 0


def test_loops_stop_when_the_compiled_program_is_ready() -> None:
    body = subgraph(
        [node("Add", ["carried", "carried"], ["next"]), node("Identity", ["going"], ["still"])],
        [value("i", [], INT64), value("going", [], BOOL), value("carried", [2])],
        ["still", "next"],
    )
    graph = model(
        [node("Loop", ["count", "", "x"], ["y"], body=body)],
        [value("count", [], INT64), value("x", [2])],
        ["y"],
    )
    program = sardonyx.load(graph, backend="jax").trace(np.array(3), np.ones(2, np.float32))
    (segment,) = [stage.segment for stage in program.stages if stage.segment is not None]
    asked: list[int] = []

    def is_overtaken() -> bool:
        asked.append(1)
        return len(asked) > 100

    with pytest.raises(Overtaken):
        segment.replay(Interpreter(is_overtaken), np.array(10**9), np.ones(2, np.float32))


def test_loops_inside_of_operators_stop_too() -> None:
    interpreter = Interpreter(lambda: True)
    x = np.zeros(3, np.float32)
    with pytest.raises(Overtaken):
        interpreter.loop(lambda i: i < 10, lambda i: (i + 1,), (np.zeros(()),))
    with pytest.raises(Overtaken):
        interpreter.scan(lambda carry, slices: (carry, slices), (x,), (x,), 3)


def test_a_model_that_is_gone_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[partial[None]] = []
    monkeypatch.setattr(interpretation.COMPILES, "submit", jobs.append)
    loaded = sardonyx.load(doubled(), compile="background")
    compiler = loaded._shared.compiler
    for _ in range(2):
        loaded(np.ones((2, 3), np.float32))
    del loaded
    (job,) = jobs
    (interpretation_of,) = job.args
    for _ in range(100):
        gc.collect()
        if interpretation_of() is None:
            break
        # While another thread collects, this one's collection returns at once.
        time.sleep(0.05)
    job()
    assert compiler.compiles == 0


@pytest.mark.parametrize("shapes", [((3, 100, 70), (3, 70, 90)), ((1, 2, 99, 64), (64, 128))])
def test_matrices_of_a_stack_are_multiplied_without_threads(
    shapes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The array library starts threads beyond a number of products of two numbers."""
    counts = []

    def matmul(_: Any, a: Any, b: Any) -> Any:
        counts.append(a.shape[-2] * a.shape[-1] * b.shape[-1])
        return np.matmul(a, b)

    monkeypatch.setattr(NumpyBackend, "matmul", matmul)
    a, b = (np.random.default_rng(0).normal(size=shape) for shape in shapes)
    np.testing.assert_allclose(Interpreter(lambda: False).matmul(a, b), a @ b, rtol=1e-12)
    assert len(counts) > 1
    assert max(counts) <= MOST_FOR_ONE_THREAD


def test_large_convolutions_wait() -> None:
    with pytest.raises(Overtaken):
        Interpreter(lambda: False).convolution(
            np.zeros((1, 64, 512, 512), np.float32),
            np.zeros((8, 64, 3, 3), np.float32),
            strides=(1, 1),
            pads=((1, 1), (1, 1)),
            dilations=(1, 1),
            groups=1,
        )


SCRIPT = """
import numpy as np, sardonyx
model = sardonyx.load("examples/encoder.onnx", backend="jax", **{options})
for _ in range({calls}):
    y = model(np.ones((2, 8, 48), np.float32))
print(y.shape, model.stats().compiles, model.stats().interpreted)
"""


def run_script(calls: int, **options: Any) -> tuple[str, str]:
    script = SCRIPT.format(calls=calls, options=options)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300
    )
    return done.stdout.strip(), done.stderr


@pytest.mark.slow
def test_a_process_may_end_while_it_compiles() -> None:
    out, errors = run_script(3)
    assert out.startswith("(2, 8, 48)")
    assert not errors


def test_a_process_waits_for_the_compiler_whoever_started_it() -> None:
    """A timer is a daemon: so would be its threads, which a process leaves behind."""
    are_daemons: SimpleQueue[bool] = SimpleQueue()

    def submit() -> None:
        Background().submit(lambda: are_daemons.put(threading.current_thread().daemon))

    threading.Thread(target=submit, daemon=True).start()
    assert are_daemons.get(timeout=PATIENCE_OF_TESTS) is False


@pytest.mark.slow
def test_one_call_is_compiled_for_the_next_process(tmp_path: Path) -> None:
    """Which loads the program while its own first call runs step by step."""
    folder = tmp_path / "cache"
    for _ in range(2):
        out, _ = run_script(1, cache=str(folder))
        assert out == "(2, 8, 48) 0 1"
        assert len(list(folder.glob("*.xla"))) == 1


def test_a_first_call_does_not_share_its_time_with_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To look for a program there takes the import of JAX, of half a second."""
    events: list[str] = []
    run, submit = interpretation.Interpretation._stepped, interpretation.COMPILES.submit

    def noted_run(self: Any, arrays: Any) -> Any:
        results = run(self, arrays)
        events.append("run")
        return results

    def noted_submit(job: Callable[[], None]) -> None:
        events.append("submit")
        submit(job)

    monkeypatch.setattr(interpretation.Interpretation, "_stepped", noted_run)
    monkeypatch.setattr(interpretation.COMPILES, "submit", noted_submit)
    loaded = sardonyx.load(doubled(), compile="background", cache=tmp_path)
    loaded(np.ones((20_000, 3), np.float32))
    assert events[:2] == ["run", "submit"]
    wait_for(lambda: loaded.stats().compiles == 1)


def test_modes_are_checked() -> None:
    with pytest.raises(sardonyx.InvalidInput, match="'now', 'background', 'never'"):
        sardonyx.load(doubled(), compile="later")
