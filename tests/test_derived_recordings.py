"""Recordings of new sizes that are derived from traces of others: each is what a trace would be."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import sardonyx
from sardonyx.backends import interpreter
from sardonyx.backends.jax import onednn
from sardonyx.graph.buckets import learned_calls, patience, searching
from sardonyx.graph.buckets.derived import OpenStep
from sardonyx.graph.buckets.formulas import SizeVector
from sardonyx.graph.buckets.merging import Irregular, Merger
from sardonyx.graph.model.form import Form
from sardonyx.graph.programs import background, interpretation
from sardonyx.graph.programs.background import COMPILES
from sardonyx.graph.programs.stages import Stage
from sardonyx.graph.tracing.steps import Step
from sardonyx.graph.values.kinds import digest
from tests.support.background import PATIENCE_OF_TESTS, wait_for_background
from tests.test_buckets import GRAPHS, model, normal
from tests.test_changing_sizes import slicing, wrong_sizes_in_threads

MODELS = Path(__file__).parent / "models"
# Graphs that draw weights at random, so that their calls need keys; one whose sizes are rounded;
# one that computes nothing. Positions of two sizes at once are constants or not, as they are large.
TRACED = {"convolution", "depthwise", "GRU", "LSTM", "maximum of windows", "a size"}


@pytest.fixture(autouse=True)
def compiles_nothing(monkeypatch: pytest.MonkeyPatch, compiles_all: None) -> None:
    """Calls run step by step all the time, and no segment is written out."""
    monkeypatch.setattr(learned_calls, "SECONDS_PER_STEP", 1e9)


def loaded_in_background(proto: Any, **options: Any) -> sardonyx.Model:
    return sardonyx.load(proto, backend="jax", compile="background", **options)


def stages_of(loaded: sardonyx.Model, *arrays: Any) -> list[Stage]:
    return list(loaded.trace(*arrays).stages)


def described(stage: Stage) -> Any:
    """All that a stage does, whatever the numbers of its registers are."""
    statics = [digest(o.value) for o in stage.outputs or () if hasattr(o, "value")]
    if stage.segment is None:
        return statics
    # Some of the constants are written into the steps, others are arguments.
    groups = [stage.segment, *stage.binding.prepared]
    embedded = [each.value for group in groups for step in group.steps for each in step.embedded]
    constants = [*stage.binding.constants.values(), *embedded]
    return (
        statics,
        [str(step.call.key or step.call) for step in stage.segment.steps],
        [step.specs for step in stage.segment.steps],
        {str(digest(value)) for value in constants},
        stage.inputs,
        stage.results,
        [getattr(output, "spec", None) for output in stage.outputs or ()],
    )


def sizes_of(dimensions: int) -> Iterator[SizeVector]:
    rng = np.random.default_rng(dimensions)
    for _ in range(40):
        yield (
            (3, int(rng.integers(20, 60)))
            if dimensions == 1
            else tuple(rng.integers(6, 50, 2).tolist())
        )


@pytest.mark.parametrize("dimensions", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", GRAPHS)
def test_a_derived_recording_is_that_of_a_trace(name: str, dimensions: int) -> None:
    proto = model(GRAPHS[name])
    changing = loaded_in_background(proto)
    plain = sardonyx.load(proto, backend="jax", buckets=None)
    numpy = sardonyx.load(proto, backend="numpy")
    derived = 0
    for sizes in sizes_of(dimensions):
        x = normal(*sizes, 6)
        before = changing.stats().traces
        result = changing(x)
        if changing.stats().traces == before:
            # The trace of a call whose recording is there shows that recording.
            stages = stages_of(changing, x)
            is_padded = any(spec.shape != x.shape for spec in stages[0].inputs[:1])
            for stage, traced in zip(stages, stages_of(plain, x), strict=True):
                assert is_padded or described(stage) == described(traced)
            derived += not is_padded
        wait_for_background()
        assert_allclose(result, numpy(x), rtol=2e-5, atol=2e-5)
        assert result.dtype == numpy(x).dtype
    assert derived > 10 or name in TRACED or (name, dimensions) == ("positions", 2)
    # The first sizes, which came before that was known.
    assert changing.stats().compiles <= 3 or derived <= 10


@pytest.mark.parametrize("name", ["encoder_dynamo", "encoder_torchscript", "masks_dynamo"])
def test_recordings_of_exported_models_are_derived(name: str) -> None:
    proto = onnx.load(MODELS / f"{name}.onnx")
    example = np.load(MODELS / f"{name}.npz")
    changing, numpy = loaded_in_background(proto), sardonyx.load(proto, backend="numpy")
    rng = np.random.default_rng(0)

    def inputs(sequence: int) -> dict[str, Any]:
        found = {}
        for info in changing.inputs:
            stored = example[info.name] if info.name in example.files else None
            shape = [
                {"batch": 2, "sequence": sequence}.get(str(n), 2) if isinstance(n, str) else n
                for n in info.shape
            ]
            if info.dtype.kind == "f":
                found[info.name] = rng.standard_normal(shape).astype(info.dtype)
            else:
                most = 2 if stored is None else max(int(stored.max()), 1)
                found[info.name] = rng.integers(0, most, shape, endpoint=True).astype(info.dtype)
        return found

    before = 0
    for sequence in (12, 7, 9, 5, 11, 6, 8, 10, 13, 4):
        feeds = inputs(sequence)
        before = changing.stats().traces
        for ours, theirs in zip(changing.run(None, feeds), numpy.run(None, feeds), strict=True):
            assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
        wait_for_background()
    assert changing.stats().traces == before


def test_what_is_irregular_is_traced() -> None:
    """The graph does something else for even sizes: no formula says what."""
    body = """two = Constant<value_ints = [2]>() n = Shape<start = 1, end = 2>(x)
        half = Div(n, two) f = Cast<to = 1>(half) y = Mul(x, f)"""
    changing = loaded_in_background(model(body))
    for size in (40, 33, 47, 35, 36, 44, 41):
        x, before = normal(2, size, 6), changing.stats().traces
        assert_allclose(changing(x), x * (size // 2), rtol=1e-6)
        assert changing.stats().traces > before
        wait_for_background()


def test_sizes_beyond_those_of_the_traces_are_traced() -> None:
    changing = loaded_in_background(model(GRAPHS["softmax"]))
    for size in (33, 40, 36, 500, 2, 1, 0, 501):
        x = normal(2, size, 6)
        shifted = np.exp(x - x.max(axis=1, keepdims=True, initial=-9))
        assert_allclose(changing(x), shifted / shifted.sum(axis=1, keepdims=True), rtol=1e-5)
        wait_for_background()


def check_that_replaced_weights_are_used(load: Callable[[onnx.ModelProto], sardonyx.Model]) -> None:
    """One that the steps read, and one that tracing reads."""
    proto = slicing("s = Slice (x, start, end, axis) y = Mul (s, w)")
    weight = onnx.numpy_helper.from_array(np.float32([2, 2, 2, 2, 2, 2]), "w")
    proto.graph.initializer.append(weight)
    changing = load(proto)
    for size in (33, 34, 36, 35):
        changing(normal(2, size, 6))
        wait_for_background()
    changing.params["w"] = np.full(6, 3, np.float32)
    x = normal(2, 37, 6)
    assert_allclose(changing(x), x[:, 1:5] * 3)
    changing.params["end"] = np.array([9])
    for size in (37, 38, 33, 39, 40):
        x = normal(2, size, 6)
        assert_allclose(changing(x), x[:, 1:9] * 3)
        wait_for_background()


def test_replaced_weights_are_used() -> None:
    check_that_replaced_weights_are_used(loaded_in_background)


def test_results_of_derived_calls_are_the_callers_own() -> None:
    changing = loaded_in_background(model("y = Add(x, x) z = Identity(x)", output="y"))
    kept = []
    for size in (33, 40, 36, 35, 37, 38):
        x = normal(2, size, 6)
        kept.append((x, x.copy(), changing(x)))
        wait_for_background()
    for x, copied, result in kept:
        assert_array_equal(x, copied)
        assert_array_equal(result, 2 * copied)


def test_calls_that_cannot_run_step_by_step_get_a_bucket_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each waits for a program, so that one for all of them is compiled without patience."""
    use_no_kernels(monkeypatch)
    monkeypatch.setattr(interpreter, "MOST_COLUMNS", 0)
    changing = calls_of_a_convolution((33, 40, 36, 35, 37, *range(41, 48)))
    assert changing.stats().compiles <= 4


def test_large_calls_that_have_to_wait_share_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small ones run step by step, large ones for a while: that is no time of theirs."""
    use_no_kernels(monkeypatch)
    monkeypatch.setattr(interpretation, "PATIENCE", 0.0)
    monkeypatch.setattr(interpreter, "MOST_COLUMNS", 20 * 2 * 6 * 3 * 4)
    sizes = (85, 46, 23, 3, 35, 24, 88, 43, 73, 97, 50, 82, 68, 47, 99, 36, 42, 4, 79, 45)
    changing = calls_of_a_convolution(sizes)
    # Two for their own sizes, and three for buckets.
    assert changing.stats().compiles <= 5


def use_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    none = onednn.loaded.Kernels(fault="a test wants none")
    monkeypatch.setattr(onednn.loaded, "_asked_for", [none])


def calls_of_a_convolution(sizes: Iterable[int]) -> sardonyx.Model:
    """Call a model with these sizes, each when the background has nothing to do any more."""
    proto = model("t = Transpose<perm = [0, 2, 1]>(x) y = Conv<group = 6>(t, w)")
    weight = np.random.default_rng(0).standard_normal((6, 1, 3)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    changing, numpy = loaded_in_background(proto), sardonyx.load(proto, backend="numpy")
    for size in sizes:
        x = normal(2, size, 6)
        assert_allclose(changing(x), numpy(x), rtol=1e-4, atol=1e-5)
        wait_for_background()
    return changing


def test_the_program_of_a_bucket_takes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned_calls, "SECONDS_PER_STEP", 0.0)
    changing = loaded_in_background(model(GRAPHS["softmax"]))
    for size in (33, 40, 36, 35, 37, 38, 39, 34, 41, 42):
        changing(normal(2, size, 6))
        wait_for_background()
    before = changing.stats()
    for size in (*range(33, 43), *range(43, 48)):
        changing(normal(2, size, 6))
    after = changing.stats()
    assert (after.traces, after.compiles) == (before.traces, before.compiles)
    # The first two sizes came before it was known that sizes change.
    assert after.interpreted <= before.interpreted + 2


def test_a_model_whose_sizes_change_is_freed() -> None:
    changing = loaded_in_background(model(GRAPHS["softmax"]))
    for size in (33, 40, 36, 35, 37):
        changing(normal(2, size, 6))
        wait_for_background()
    form = weakref.ref(changing._plain)
    del changing
    gc.collect()
    assert form() is None


def test_threads_derive_recordings_at_once() -> None:
    changing = loaded_in_background(model(GRAPHS["attention"]))
    assert not wrong_sizes_in_threads(changing, "attention", range(20, 65))
    wait_for_background()


def test_all_of_a_step_is_taken_apart() -> None:
    assert OpenStep._fields == tuple(each.name for each in fields(Step) if each.init)


def test_merged_structures_differ_in_numbers_only() -> None:
    sampled = [(4,), (9,), (5,), (7,)]

    def merged(*values: Any) -> Any:
        merger = Merger(sampled)
        part, numbers = merger.merged(values), merger.numbers()
        return None if numbers is None else part.at(numbers((6,)))

    assert merged(*((n, "a", (2 * n + 1, None)) for (n,) in sampled)) == (6, "a", (13, None))
    assert merged(*({"k": [n]} for (n,) in sampled)) == {"k": [6]}
    assert_array_equal(merged(*(np.arange(n) for (n,) in sampled)), np.arange(6))
    assert_array_equal(merged(*(np.array([n, 1]) for (n,) in sampled)), [6, 1])
    assert merged(*(n // 2 for (n,) in sampled)) is None
    for values in (
        [n % 2 == 0 for (n,) in sampled],
        [float(n) for (n,) in sampled],
        ["even" if n % 2 == 0 else "odd" for (n,) in sampled],
        [(0,) * n for (n,) in sampled],
        [np.arange(n)[::-1] for (n,) in sampled],
        [np.zeros(n, f"f{8 if n > 4 else 4}") for (n,) in sampled],
        [{n: 1} for (n,) in sampled],
        [1, 1, 1.0, 1],
    ):
        with pytest.raises(Irregular):
            Merger(sampled).merged(values)


@dataclass(frozen=True)
class Packed:
    """As a weight for so many pixels, which is packed in one of two forms."""

    pixels: int
    form: str

    looked_up: ClassVar[tuple[str, ...]] = ("form",)

    @classmethod
    def look_up(cls, *, pixels: int) -> Packed:
        return cls(pixels, "narrow" if pixels in (6, 50) else "wide")


def test_what_is_looked_up_may_have_to_stay() -> None:
    """Between sizes for which it is the same it may be something else."""
    for sampled, keeps, is_kept in (
        ([(4,), (9,), (5,), (7,)], True, True),
        ([(4,), (9,), (5,), (7,)], False, False),
        ([(4,), (50,), (5,), (7,)], True, False),
    ):
        merger = Merger(sampled, keeps_looked_up=keeps)
        part = merger.merged([Packed.look_up(pixels=n) for (n,) in sampled])
        numbers = merger.numbers()
        assert numbers is not None
        assert part.at(numbers((8,))) == Packed(8, "wide")
        if is_kept:
            with pytest.raises(Irregular):
                part.at(numbers((6,)))
        else:
            assert part.at(numbers((6,))) == Packed(6, "narrow")


def recorded_by_patient_calls(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads that record calls from now on, of which each waits as long as a search takes."""
    monkeypatch.setattr(searching, "MOST_SECONDS_TO_BEGIN", PATIENCE_OF_TESTS)
    monkeypatch.setattr(searching, "MOST_SECONDS_TO_END", PATIENCE_OF_TESTS)
    threads, record = [], Form.record

    def noted(*arguments: Any, **options: Any) -> Any:
        threads.append(threading.current_thread())
        return record(*arguments, **options)

    monkeypatch.setattr(Form, "record", noted)
    return threads


def test_calls_wait_for_what_derives_their_recordings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trace of their own would slow the search down, and so the calls after them."""
    recorded = recorded_by_patient_calls(monkeypatch)
    loaded = loaded_in_background(model(GRAPHS["softmax"]))
    for n in (7, 9, 12, 13, 15):
        assert_allclose(loaded(normal(n, 5, 6)).sum(axis=1), 1, rtol=1e-5)
    assert recorded == [threading.current_thread()] * 2


def test_no_call_waits_for_a_search_behind_a_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "MOST_SECONDS_TO_END", PATIENCE_OF_TESTS)
    monkeypatch.setattr(patience, "MOST_TIMES", 0.0)  # Nor does a slow call search itself.
    began, released = threading.Event(), threading.Event()

    def wait() -> None:
        began.set()
        released.wait(PATIENCE_OF_TESTS)

    for _ in range(background.MOST_THREADS):
        COMPILES.submit(wait)
    try:
        assert began.wait(PATIENCE_OF_TESTS)
        loaded = loaded_in_background(model(GRAPHS["softmax"]))
        for n in (7, 9, 12, 13, 15):
            assert_allclose(loaded(normal(n, 5, 6)).sum(axis=1), 1, rtol=1e-5)
        assert loaded.stats().traces == 5
    finally:
        released.set()
        wait_for_background()
