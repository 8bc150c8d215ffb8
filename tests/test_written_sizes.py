"""Calls of changing sizes that run one function of NumPy for all sizes."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from onnx import parser

import sardonyx
from sardonyx.backends import axis_sums
from sardonyx.backends.interpreter import Interpreter
from sardonyx.backends.shape_arrays import shape_array
from sardonyx.backends.written_out.noted_steps import QuickNotes, noted_steps
from sardonyx.backends.written_out.notes import Variable
from sardonyx.graph.buckets import learned_calls
from sardonyx.graph.buckets.merged_calls import MergedCalls
from sardonyx.graph.buckets.merging import Irregular, Merger
from sardonyx.graph.buckets.sized_call import SizedCall
from sardonyx.graph.buckets.written_sizes import WrittenSizes
from sardonyx.graph.programs.replay import Recording
from tests.test_buckets import GRAPHS, model, normal
from tests.test_changing_sizes import DECODER, slicing, wrong_sizes_in_threads
from tests.test_derived_recordings import wait_for_background

pytest.importorskip("jax")

MODELS = Path(__file__).parent / "models"


def loaded(proto: Any, compile_when: str = "background", **options: Any) -> sardonyx.Model:
    return sardonyx.load(proto, backend="jax", compile=compile_when, **options)


def recordings_of(changing: sardonyx.Model) -> list[Recording]:
    return [entry.recording for entry in changing._plain.entries.by_key.values()]


def runs_sized(changing: sardonyx.Model, *arrays: Any) -> bool:
    """Call a model; whether the function of all sizes computed the results."""
    changing(*arrays)
    return isinstance(recordings_of(changing)[-1].sized, SizedCall)


def prepared(body: str, compile_when: str = "never", **options: Any) -> sardonyx.Model:
    """Return a model of which some calls have changed sizes."""
    changing = loaded(model(body, **options), compile_when)
    for size in (33, 40, 36, 35):
        changing(normal(2, size, 6))
        wait_for_background()
    return changing


@pytest.mark.parametrize("compile_when", ["background", "never"])
def test_a_decoder_needs_no_compiler(compile_when: str) -> None:
    """Nor does any call but the first few wait for a trace."""
    proto = parser.parse_model(DECODER)
    changing, plain = loaded(proto, compile_when), sardonyx.load(proto, backend="numpy")
    ours = theirs = [normal(1, 5, 8), normal(1, 5, 8)]
    for i in range(200):
        x = normal(1, 1, 8) + np.float32(i / 100)
        y, *ours = changing(x, *ours)
        expected, *theirs = plain(x, *theirs)
        assert_allclose(y, expected, rtol=2e-5, atol=2e-5)
        for our, their in zip(ours, theirs, strict=True):
            assert_array_equal(our, their)
        if i < 10:
            wait_for_background()
    assert changing.stats().compiles == 0
    assert changing.stats().traces <= 12
    sized = [recording.sized is not None for recording in recordings_of(changing)]
    assert sum(sized) >= 190


def test_the_program_of_a_decoder_takes_over_where_it_saves_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(learned_calls, "SECONDS", 0.0)
    monkeypatch.setattr(learned_calls, "SECONDS_PER_STEP", 0.0)
    monkeypatch.setattr(learned_calls.Pace, "at", lambda self, count: float("inf"))
    monkeypatch.setattr(learned_calls.LearnedCalls, "is_small", lambda self, shapes: False)
    proto = parser.parse_model(DECODER)
    changing, plain = loaded(proto), sardonyx.load(proto, backend="numpy")
    ours = theirs = [normal(1, 5, 8), normal(1, 5, 8)]
    interpreted = []
    for i in range(80):
        x = normal(1, 1, 8) + np.float32(i / 100)
        y, *ours = changing(x, *ours)
        expected, *theirs = plain(x, *theirs)
        assert_allclose(y, expected, rtol=2e-5, atol=2e-5)
        wait_for_background()
        interpreted.append(changing.stats().interpreted)
    assert changing.stats().compiles >= 1
    assert interpreted[10] < 12
    assert interpreted[50] == interpreted[15]
    assert changing.stats().traces <= 24


def test_the_function_adds_few_numbers_and_many() -> None:
    """Sums along an axis change their form at some length, which lengths of calls may pass."""
    text = """<ir_version: 10, opset_import: ["" : 22]>
        g (float[a, n] x) => (float[a, n] y, float[a, 1] m)
        <int64[1] last = {-1}> { y = Softmax(x) m = ReduceMean(x, last) }"""
    proto = parser.parse_model(text)
    changing, plain = loaded(proto, "never"), loaded(proto, "never", buckets=None)
    assert axis_sums.MOST_NUMBERS in range(1000, 1100)
    lengths = []
    for length in (900, 1100, 1000, 1050, 950, 1200, 1023, 1024, 1025):
        x = normal(3, length)
        if runs_sized(changing, x):
            lengths.append(length)
        for y, expected in zip(changing(x), plain(x), strict=True):
            assert_array_equal(y, expected)
        wait_for_background()
    assert lengths[-3:] == [1023, 1024, 1025]


def test_an_exported_network_runs_the_function_of_all_sizes() -> None:
    proto = onnx.load(MODELS / "encoder_dynamo.onnx")
    changing = loaded(proto, "never")
    plain = sardonyx.load(proto, backend="numpy", buckets=None)
    (info,) = changing.inputs
    lengths = []
    for length in (24, 20, 22, 21, 18, 30, 27):
        sizes = {"batch": 2, "sequence": length}
        x = normal(*[sizes[n] if isinstance(n, str) else n for n in info.shape])
        if runs_sized(changing, x):
            lengths.append(length)
        assert_allclose(changing(x), plain(x), rtol=1e-4, atol=1e-5)
        wait_for_background()
    assert lengths[-2:] == [30, 27]


# Graphs that draw weights at random; whose sizes are rounded; that compute nothing; and in which an
# op makes another table for each size.
STEPPED = {
    "convolution", "depthwise", "GRU", "LSTM", "maximum of windows", "a size", "largest",
    "padded by the graph",
}  # fmt: skip
# Steps that are one kernel in the function, with sums in another order. So are short rows, where
# kernels run in one call.
DIGITS = {"attention": 1e-6, "layer norm": 1e-5}


@pytest.mark.parametrize("dimensions", [1, 2])
@pytest.mark.parametrize("name", sorted(GRAPHS.keys() - STEPPED))
def test_one_function_serves_all_sizes(name: str, dimensions: int) -> None:
    proto = model(GRAPHS[name])
    changing, plain = loaded(proto, "never"), loaded(proto, "never", buckets=None)
    rng = np.random.default_rng(dimensions)
    for i in range(14):
        sizes = (3, int(rng.integers(20, 60))) if dimensions == 1 else rng.integers(6, 50, 2)
        x = normal(*sizes, 6)
        is_sized = runs_sized(changing, x)
        digits = DIGITS.get(name, 0.0)
        assert_allclose(changing(x), plain(x), rtol=digits, atol=digits)
        wait_for_background()
        assert is_sized or i < 8


def test_calls_of_the_smallest_sizes_find_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    body, decided = GRAPHS["attention"], []
    at = WrittenSizes._at

    def noted(self: WrittenSizes, sizes: Any) -> Any:
        decided.append(sizes)
        return at(self, sizes)

    monkeypatch.setattr(WrittenSizes, "_at", noted)
    changing, plain = prepared(body), loaded(model(body), "never", buckets=None)
    smallest = decided[0]
    assert smallest == (2,)
    x = normal(2, *smallest, 6)
    assert runs_sized(changing, x)
    assert decided.count(smallest) == 1, "nobody decided ahead"
    assert_allclose(changing(x), plain(x), rtol=1e-6, atol=1e-6)
    assert runs_sized(changing, normal(2, 3, 6))
    assert decided[-1] == (3,)


def test_slices_and_positions_have_sizes_too() -> None:
    """A decoder with a mask and positions, which follow from the sizes of two inputs."""
    proto = model(
        """n = Shape<start = 1, end = 2>(x) one = Constant<value_ints = [1]>() m = Sub(n, one)
        ends = Constant<value_ints = [100000]>() axis = Constant<value_ints = [1]>()
        row = Gather(table, m) last = Slice(x, m, ends, axis) rest = Slice(x, one, m, axis)
        s = Add(last, row) t = Add(rest, row) y = Concat<axis = 1>(t, s)"""
    )
    proto.graph.initializer.append(onnx.numpy_helper.from_array(normal(200, 6), "table"))
    changing, plain = loaded(proto, "never"), sardonyx.load(proto, backend="numpy", buckets=None)
    for size in (33, 40, 36, 35, 50, 41, 37):
        x = normal(2, size, 6)
        is_sized = runs_sized(changing, x)
        assert_array_equal(changing(x), plain(x))
        wait_for_background()
        assert is_sized or size in {33, 40, 36, 35}


def test_the_stages_are_made_for_those_who_ask() -> None:
    changing = prepared(GRAPHS["attention"])
    x = normal(2, 37, 6)
    assert runs_sized(changing, x)
    recording = recordings_of(changing)[-1]
    assert not recording.tree.following
    assert "MatMul" in str(changing.trace(x))
    assert len(recording.root.following) == 1
    # Whoever looks at a call may have compiled it.
    assert recording.sized is None
    assert sardonyx.profile(changing, [x], calls=2).total > 0
    assert_allclose(changing(x), sardonyx.load(model(GRAPHS["attention"]))(x), rtol=1e-4, atol=1e-6)


def test_replaced_weights_are_read_by_the_function() -> None:
    proto = slicing("s = Slice (x, start, end, axis) y = Mul (s, w)")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.full(6, 2, np.float32), "w"))
    changing = loaded(proto, "never")
    for size in (33, 34, 36, 35):
        changing(normal(2, size, 6))
        wait_for_background()
    x = normal(2, 34, 6)
    assert runs_sized(changing, x)
    assert_allclose(changing(x), x[:, 1:5] * 2)
    changing.params["w"] = np.full(6, 3, np.float32)
    assert_allclose(changing(x), x[:, 1:5] * 3)
    assert runs_sized(changing, x)


def test_what_the_function_cannot_do_the_compiled_program_decides() -> None:
    """NumPy refuses an index out of range, and XLA has no errors."""
    proto = model("y = Gather(x, i)", inputs="float[n] x, int64[m] i", output="y")
    changing, compiled = loaded(proto, "never"), loaded(proto, "now", buckets=None)
    for size in (33, 40, 36, 35, 37):
        x = normal(size)
        assert_array_equal(changing(x, np.arange(5)), x[:5])
        wait_for_background()
    x, outside = normal(38), np.full(5, 38)
    assert runs_sized(changing, x, np.arange(5))
    assert_array_equal(changing(x, outside), compiled(x, outside))
    assert_array_equal(changing(x, np.arange(5)), x[:5])


def test_arrays_of_jax_are_read_in_place() -> None:
    jnp = pytest.importorskip("jax.numpy")
    changing = loaded(model(GRAPHS["softmax"]), "never")
    for size in (33, 40, 36, 35):
        changing(jnp.asarray(normal(2, size, 6)))
        wait_for_background()
    x = normal(2, 37, 6)
    assert runs_sized(changing, jnp.asarray(x))
    result = changing(jnp.asarray(x))
    assert isinstance(result, type(jnp.asarray(x)))
    assert_allclose(
        result, sardonyx.load(model(GRAPHS["softmax"]), backend="numpy")(x), rtol=1e-4, atol=1e-6
    )


def test_results_are_the_callers_own_and_read_only() -> None:
    changing = prepared("y = Transpose<perm = [0, 2, 1]>(x)")
    x = normal(2, 37, 6)
    before = x.copy()
    assert runs_sized(changing, x)
    (y,) = changing.run(None, {"x": x})
    x[...] = 0
    assert_array_equal(y, before.transpose(0, 2, 1))
    assert y.flags.c_contiguous
    assert not y.flags.writeable


def test_arrays_between_steps_are_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The function holds no more of them at a time than the steps do."""
    alive: list[Any] = []
    most = 0

    def watched(self: Interpreter, a: Any, b: Any) -> Any:
        nonlocal most
        result = np.matmul(a, b)
        alive.append(weakref.ref(result))
        most = max(most, sum(ref() is not None for ref in alive))
        return result

    monkeypatch.setattr(Interpreter, "matmul", watched)
    chain = " ".join(f"m{i} = MatMul(s{i}, w) s{i + 1} = Relu(m{i})" for i in range(12))
    proto = model(f"s0 = Identity(x) {chain} y = Identity(s12)")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(normal(6, 6), "w"))
    changing = loaded(proto, "never", rewrites=False)
    for size in (33, 40, 36, 35):
        changing(normal(2, size, 6))
        wait_for_background()
    alive.clear()
    most = 0
    assert runs_sized(changing, normal(2, 37, 6))
    assert len(alive) == 12
    assert most <= 2


def test_threads_share_the_function() -> None:
    changing = prepared(GRAPHS["attention"])
    assert not wrong_sizes_in_threads(changing, "attention", range(30, 48))
    wait_for_background()


@pytest.mark.slow
def test_a_model_is_freed_with_its_function() -> None:
    changing = prepared(GRAPHS["softmax"])
    assert runs_sized(changing, normal(2, 37, 6))
    gc.collect()
    form = weakref.ref(changing._plain)
    del changing
    assert form() is None, "it waits for the garbage collector"


@pytest.mark.slow
def test_a_program_that_takes_longer_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is compiled, as steps might be slow, and then measured."""
    monkeypatch.setattr(learned_calls, "SECONDS", 0.0)
    monkeypatch.setattr(learned_calls, "SECONDS_PER_STEP", 0.0)
    changing = prepared(GRAPHS["attention"], "background")
    for pace, is_sized in ((0.0, True), (float("inf"), False)):
        monkeypatch.setattr(learned_calls.Pace, "at", lambda self, count, pace=pace: pace)
        for size in range(36, 48):
            changing(normal(2, size, 6))
            wait_for_background()
        assert changing.stats().compiles >= 1
        changing.release()
        for size in (33, 40, 36, 35, 37, 38, 39, 41, 42, 43, 44, 45):
            changing(normal(2, size, 6))
            wait_for_background()
        assert isinstance(recordings_of(changing)[-1].sized, SizedCall) is is_sized


def test_steps_without_notes_are_one_call_each() -> None:
    def replay(xp: Any, x: Any) -> list[Any]:
        xp.begin_step()
        return list(xp.deferred(lambda own, arrays: [own.nonzero(arrays[0])], [x], specs))

    x = np.array([0, 3, 4, 0])
    specs = [sardonyx.backends.executable.Spec((2,), np.dtype(np.int64))]
    xp = Interpreter(lambda: False)
    steps = noted_steps(replay, xp, [xp.spec(x)], lambda call: None)
    assert steps is not None
    assert [call.is_step for call in steps.calls][:1] == [True]


@pytest.mark.parametrize("widths", [2, (1, 3), ((0, 0), (1, 2)), [[5, 0], [0, 1]]])
def test_what_is_padded_is_noted_without_a_copy(widths: Any) -> None:
    x = np.ones((3, 4), np.float32)
    large = shape_array((300_000, 400_000), x.dtype)
    small = QuickNotes()._result(np.pad, [shape_array(x.shape, x.dtype), widths], {}, None)
    assert small.shape == np.pad(x, widths).shape
    padded = QuickNotes()._result(np.pad, [large, widths], {"constant_values": -1.0}, None)
    assert padded.dtype == x.dtype


def test_merged_calls_have_variables_for_what_differs() -> None:
    def noted(size: int, factor: float = 2.0) -> Any:
        def replay(xp: Any, x: Any) -> list[Any]:
            return [xp.reshape(x[:, : size - 1] * np.float32(factor), (size - 1, 3))]

        xp = Interpreter(lambda: False)
        spec = xp.spec(np.zeros((3, size), np.float32))
        steps = noted_steps(replay, xp, [spec], lambda call: None)
        assert steps is not None
        return steps.calls

    sampled = [(4,), (9,), (5,), (7,)]
    merger = Merger(sampled)
    merged = MergedCalls(merger)
    calls = merged.merged([noted(size) for (size,) in sampled])
    numbers = merger.numbers()
    assert numbers is not None
    assert [part.at(numbers((20,))) for part in merged.variables] == [19]
    assert Variable(0) in calls[-1].arguments[1]
    with pytest.raises(Irregular):
        MergedCalls(merger).merged([noted(4), noted(9), noted(5), noted(7, factor=3.0)])


def test_weights_that_some_sizes_want_packed_in_another_form() -> None:
    """As oneDNN does for images of some sizes between others."""
    weight = normal(64, 64, 3, 3) / 24
    body = """a = Conv<pads = [1, 1, 1, 1]>(x, w) b = Relu(a)
        y = Conv<pads = [1, 1, 1, 1]>(b, w)"""
    proto = model(body, "float[1,64,n,n] x")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    changing, right = loaded(proto), sardonyx.load(proto, backend="numpy")
    for size in (40, 20, 33, *range(10, 30), 26, 13):
        x = normal(1, 64, size, size)
        assert_allclose(changing(x), right(x), rtol=1e-3, atol=1e-4)
        wait_for_background()
