"""Prepared weights, compiled segments, donated inputs, and the memory of a model."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.errors import InvalidInput
from sardonyx.graph.programs.stages import Stage
from tests.support.onnx_builders import model, node, value, weight
from tests.test_derived_recordings import wait_for_background

RNG = np.random.default_rng(0)
W = RNG.normal(size=(4, 6)).astype(np.float32)
X = RNG.normal(size=(3, 4, 6)).astype(np.float32)

# max(x, transpose(w * 2)): all that concerns the weight alone can be done ahead.
OF_WEIGHT = model(
    [
        node("Constant", [], ["two"], value=numpy_helper.from_array(np.float32(2))),
        node("Mul", ["w", "two"], ["scaled"]),
        node("Transpose", ["scaled"], ["turned"], perm=[1, 0]),
        node("Max", ["x", "turned"], ["y"]),
    ],
    [value("x", ["batch", 4, 6])],
    ["y"],
    [weight("w", W.T.copy())],
)
ADD = model([node("Add", ["x", "x"], ["y"])], [value("x", ["n"])], ["y"])


def with_biases(count: int, dtype: Any = np.float32) -> onnx.ModelProto:
    nodes, weights, current = [], [], "x"
    for i in range(count):
        weights.append(weight(f"b{i}", np.full(5 + i % 3 * 0, i + 1, dtype)))
        nodes.append(node("Add", [current, f"b{i}"], [f"y{i}"]))
        current = f"y{i}"
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    ends = [value("x", ["n", 5], kind)], [value(current, None, kind)]
    return model(nodes, *ends, weights)


# -- what depends on weights alone ----------------------------------------------------------------


def test_steps_on_weights_run_ahead_of_the_calls(xp: Backend) -> None:
    loaded = sardonyx.load(OF_WEIGHT, backend=xp)
    (segment,) = loaded.trace(X).segments
    assert [step.title for step in segment.steps] == ["Max"]
    np.testing.assert_array_equal(np.asarray(loaded(X)), np.maximum(X, 2 * W))


def test_what_was_prepared_follows_a_weight_that_is_replaced(xp: Backend) -> None:
    loaded = sardonyx.load(OF_WEIGHT, backend=xp)
    loaded(X)
    for factor in (3, -1):
        loaded.params["w"] = factor * W.T
        np.testing.assert_array_equal(np.asarray(loaded(X)), np.maximum(X, 2 * factor * W))


def test_what_was_prepared_is_shared_by_signatures() -> None:
    loaded = sardonyx.load(OF_WEIGHT, backend="jax")
    for rows in range(1, 6):
        loaded(X[:1].repeat(rows, axis=0))
    assert len(loaded._shared.weights.bound) == 1
    assert loaded.stats().bytes_held == W.nbytes


def test_a_weight_that_would_grow_is_left_to_the_program(xp: Backend) -> None:
    grown = model(
        [
            node("Constant", [], ["shape"], value_ints=[1000, 1000]),
            node("Expand", ["w", "shape"], ["large"]),
            node("Add", ["large", "x"], ["y"]),
        ],
        [value("x", [1])],
        ["y"],
        [weight("w", np.ones(1, np.float32))],
    )
    (segment,) = sardonyx.load(grown, backend=xp).trace(np.ones(1, np.float32)).segments
    assert [step.title for step in segment.steps] == ["Expand", "Add"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
def test_small_vectors_travel_together(xp: Backend, dtype: Any) -> None:
    loaded = sardonyx.load(with_biases(9, dtype), backend=xp)
    x = np.ones((2, 5), dtype)
    for _ in range(2):
        np.testing.assert_array_equal(np.asarray(loaded(x)), np.full((2, 5), 46, dtype))
    loaded.params["b3"] = np.full(5, 100, dtype)
    np.testing.assert_array_equal(np.asarray(loaded(x)), np.full((2, 5), 142, dtype))


def test_weights_are_derived_by_under_a_transformation() -> None:
    loaded = sardonyx.load(OF_WEIGHT, backend="jax")
    loaded(jnp.asarray(X))
    slope = jax.grad(lambda x: loaded(x).sum())(jnp.asarray(X))
    np.testing.assert_array_equal(slope, X > 2 * W)


# -- signatures -----------------------------------------------------------------------------------


def test_signatures_are_bounded_and_counted(xp: Backend) -> None:
    loaded = sardonyx.load(ADD, backend=xp, max_signatures=3, buckets=None)
    for size in (1, 2, 3, 1, 4, 1, 2):
        x = np.full(size, size, np.float32)
        np.testing.assert_array_equal(np.asarray(loaded(x)), 2 * x)
    stats = loaded.stats()
    # 4 drives out 2, which was used longest ago; 2 then drives out 3.
    assert (stats.calls, stats.hits, stats.signatures, stats.evictions) == (7, 2, 3, 2)
    # What was forgotten may be found again, for as long as Python has not collected it.
    assert stats.compiles + stats.shared == (5 if xp.compiled else 0)
    assert "evictions" in str(stats)


def test_a_bound_below_one_is_refused() -> None:
    with pytest.raises(InvalidInput, match="at least one signature"):
        sardonyx.load(ADD, max_signatures=0)


def test_ways_that_data_takes_are_bounded() -> None:
    sized = model(
        [node("NonZero", ["x"], ["places"]), node("Neg", ["places"], ["y"])],
        [value("x", ["n"])],
        [value("y", None, onnx.TensorProto.INT64)],
    )
    loaded = sardonyx.load(sized, backend="numpy")
    for count in [*range(80), 5, 79]:
        x = np.zeros(100, np.float32)
        x[:count] = 1
        np.testing.assert_array_equal(np.asarray(loaded(x)), -np.arange(count)[None])


def test_equal_segments_are_compiled_once() -> None:
    # NonZero cuts the program; before and after it the same is done, to arrays of one shape.
    nodes = [
        node("Sin", ["x"], ["a"]),
        node("NonZero", ["a"], ["places"]),
        node("Squeeze", ["places", "axis"], ["place"]),
        node("Gather", ["a", "place"], ["b"]),
        node("Sin", ["b"], ["y"]),
        node("NonZero", ["y"], ["more"]),
    ]
    outputs = ["y", value("more", None, onnx.TensorProto.INT64)]
    proto = model(nodes, ["x"], outputs, [weight("axis", np.array([0], np.int64))])
    loaded = sardonyx.load(proto, backend="jax", compile="now")
    for _ in range(2):
        loaded(np.ones(4, np.float32))
        loaded(jnp.ones(4))
    assert loaded.stats().compiles == 2
    assert loaded.stats().shared == 2


# -- ahead of time --------------------------------------------------------------------------------


@pytest.mark.parametrize("background", [False, True])
def test_compiling_ahead(background: bool) -> None:
    loaded = sardonyx.load(OF_WEIGHT, backend="jax", compile="now")
    signatures = [{"x": (rows, 4, 6)} for rows in (1, 2, 3)]
    futures = loaded.compile(*signatures, background=background)
    assert [future.result(60).title.count("float32") > 0 for future in futures] == [True] * 3
    for rows in (1, 2, 3):
        loaded(np.ones((rows, 4, 6), np.float32))
        loaded(jnp.ones((rows, 4, 6)))
    assert loaded.stats().compiles == 3


def test_a_call_waits_for_what_is_being_compiled() -> None:
    loaded = sardonyx.load(with_biases(40), backend="jax")
    x = np.ones((2, 5), np.float32)
    calls = [threading.Thread(target=loaded, args=(x,)) for _ in range(4)]
    loaded.compile({"x": (2, 5)}, background=True)
    for call in calls:
        call.start()
    for call in calls:
        call.join()
    assert loaded.stats().compiles == 1


def test_compiling_for_what_the_model_does_not_take() -> None:
    loaded = sardonyx.load(OF_WEIGHT, backend="jax")
    with pytest.raises(InvalidInput, match="must have size 4"):
        loaded.compile({"x": (2, 5, 6)})
    with pytest.raises(InvalidInput, match="no input 'z'"):
        loaded.compile({"z": (2, 4, 6)})
    with pytest.raises(InvalidInput, match="cannot have the shape"):
        loaded.compile({"x": (-1, 4, 6)})


CACHED = """
import sys, numpy as np, sardonyx
loaded = sardonyx.load(sys.argv[1], backend="jax", cache=sys.argv[2], compile="now")
print(loaded(np.ones((2, 5), np.float32)).tolist())
"""


@pytest.mark.slow
def test_a_second_process_takes_what_the_first_compiled(tmp_path: Path) -> None:
    path, folder = tmp_path / "model.onnx", tmp_path / "cache"
    onnx.save(with_biases(9), path)
    said = []
    for _ in range(2):
        run = [sys.executable, "-c", CACHED, str(path), str(folder)]
        said.append(subprocess.run(run, capture_output=True, text=True, check=True).stdout)
        # That the model is sound, what was recorded of the call, and the program.
        kept = sorted(folder.iterdir(), key=lambda file: file.suffix)
        assert [file.suffix for file in kept] == [".kept", ".kept", ".xla"]
        said.append(str([file.stat().st_mtime_ns for file in kept]))
    assert said[:2] == said[2:]
    for file in kept:
        file.write_bytes(b"not kept")
    loaded = sardonyx.load(path, backend="jax", cache=folder)
    assert str(loaded(np.ones((2, 5), np.float32)).tolist()) == said[0].strip()
    assert all(file.read_bytes() != b"not kept" for file in kept)


def test_a_recording_is_kept_for_each_kind_of_call(tmp_path: Path) -> None:
    for count in (1, 2):
        loaded = sardonyx.load(ADD, backend="jax", cache=tmp_path)
        for size in (3, 4, 3):
            assert loaded(np.ones(size, np.float32)).tolist() == [2] * size
        assert loaded.stats().compiles == 2
        assert len(list(tmp_path.glob("*.kept"))) == 1 + 2, f"process {count}"


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, fault in (("file", "a file that `sardonyx"), ("file/below", "not a folder that can")):
        with pytest.raises(InvalidInput, match=fault):
            sardonyx.load(ADD, backend="jax", cache=tmp_path / path)


# -- memory ---------------------------------------------------------------------------------------

STEP = model(
    [
        node("Identity", ["past_key"], ["seen"]),
        node("Add", ["seen", "x"], ["key"]),
        node("ReduceSum", ["key"], ["y"], keepdims=0),
    ],
    [value("x", [1]), value("past_key", [1000])],
    ["y", "key"],
)


def test_donated_inputs_give_their_buffers_to_outputs() -> None:
    loaded = sardonyx.load(STEP, backend="jax")
    past, x = jnp.zeros(1000), jnp.ones(1)
    where = past.unsafe_buffer_pointer()
    for step in range(1, 4):
        total, key = loaded.bind(donate=["past_*"])(x, past)
        assert past.is_deleted()
        assert key.unsafe_buffer_pointer() == where
        assert float(total) == 1000 * step
        past = key
    assert not x.is_deleted()
    loaded(x, past)
    assert not past.is_deleted()


def test_donation_leaves_what_is_an_output_itself_and_numpy_arrays(xp: Backend) -> None:
    handed = model(
        [node("Identity", ["past"], ["y"]), node("Neg", ["past"], ["z"])], ["past"], "yz"
    )
    loaded = sardonyx.load(handed, backend=xp)
    past = np.ones(3, np.float32)
    for _ in range(2):
        y, z = loaded.bind(donate="p*")(past)
        np.testing.assert_array_equal(np.asarray(y), past)
        np.testing.assert_array_equal(np.asarray(z), -past)


def test_donating_what_is_not_there() -> None:
    loaded = sardonyx.load(STEP, backend="jax")
    with pytest.raises(InvalidInput, match="No input is called 'cache'"):
        loaded.bind(donate="cache")


def test_one_array_donated_for_two_inputs() -> None:
    two = model([node("Neg", ["a"], ["c"]), node("Abs", ["b"], ["d"])], "ab", "cd")
    same = jnp.ones(3)
    with pytest.raises(InvalidInput, match="passed for two inputs"):
        sardonyx.load(two, backend="jax").bind(donate=["a", "b"])(same, same)


def test_memory_tells_what_a_call_needs(xp: Backend) -> None:
    loaded = sardonyx.load(OF_WEIGHT, backend=xp)
    memory = loaded.memory(x=(3, 4, 6))
    assert (memory.inputs, memory.outputs) == (X.nbytes, X.nbytes)
    assert memory.weights + memory.prepared == W.nbytes
    assert memory.peak >= memory.prepared + memory.inputs + memory.outputs
    assert "peak" in str(memory)
    assert loaded.memory(X) == memory


def test_aliases_and_donations_are_memory_saved() -> None:
    memory = sardonyx.load(STEP, backend="jax").memory(x=(1,), past_key=(1000,))
    assert memory.saved_by_aliases == 4000


@pytest.mark.slow
def test_release_gives_all_of_it_back(xp: Backend) -> None:
    loaded = sardonyx.load(OF_WEIGHT, backend=xp)
    loaded.params["w"] = 3 * W.T
    expected = np.asarray(loaded(X))
    loaded.release()
    assert loaded.stats().bytes_held == 0
    assert loaded.stats().signatures == 0
    np.testing.assert_array_equal(np.asarray(loaded(X)), expected)


def test_released_buffers_are_freed() -> None:
    loaded = sardonyx.load(OF_WEIGHT, backend="jax")
    loaded(X)
    before = {id(a) for a in jax.live_arrays()}
    loaded.release()
    assert len({id(a) for a in jax.live_arrays()} & before) < len(before)


@pytest.mark.parametrize("fraction", [0, -1, 1.5, float("nan")])
def test_a_fraction_of_memory_is_one(fraction: float) -> None:
    with pytest.raises(InvalidInput, match="fraction of memory"):
        sardonyx.load(ADD, memory_fraction=fraction)


CAPPED = """
import os, sys, sardonyx
sardonyx.load(sys.argv[1], backend="jax", memory_fraction=0.25)
print(os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"])
"""


@pytest.mark.slow
def test_the_cap_is_set_before_jax_starts(tmp_path: Path) -> None:
    onnx.save(ADD, tmp_path / "add.onnx")
    run = [sys.executable, "-c", CAPPED, str(tmp_path / "add.onnx")]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout == "0.25\n"


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"backend": "numpy"}, {"backend": "jax", "jit": False}])
def test_recordings_that_left_the_cache_are_freed(options: dict[str, Any]) -> None:
    loaded = sardonyx.load(ADD, max_signatures=2, buckets=None, **options)
    before = _live_stages()
    for length in range(1, 30):
        loaded(np.ones(length, np.float32))
    assert _live_stages() - before <= 3 * 2


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"backend": "numpy"}, {"backend": "jax", "jit": False}])
def test_the_traces_that_recordings_are_derived_from_are_few(options: dict[str, Any]) -> None:
    loaded = sardonyx.load(ADD, max_signatures=2, **options)
    counts = []
    for lengths in (range(1, 60), range(60, 300)):
        for length in lengths:
            loaded(np.ones(length, np.float32))
        wait_for_background()
        counts.append(_live_stages())
    assert counts[1] <= counts[0] + 3
    assert loaded.stats().traces < 100


def _live_stages() -> int:
    gc.collect()
    return sum(isinstance(each, Stage) for each in gc.get_objects())
