"""Recordings in a cache's folder: what a later process runs without tracing is what it would trace.

Here a second model of the same file stands for the other process. A real one is started in
test_memory_and_compilation.py.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Spec
from sardonyx.backends.private_folder import PrivateFolder
from sardonyx.errors import SardonyxError
from sardonyx.graph.model.model import Model
from sardonyx.graph.programs import recording_format
from sardonyx.graph.programs.replay import Recording
from sardonyx.graph.values.kinds import Static
from sardonyx.ops.definition import Map
from sardonyx.types import Array
from tests.support.onnx_builders import BOOL, INT64, graph, model, node, value, weight
from tests.test_exporter_models import FOLDER, NAMES, recorded_calls

X = np.arange(1, 13, dtype=np.float32).reshape(3, 4)


def loaded(source: Any, folder: Path, **options: Any) -> Model:
    return sardonyx.load(source, backend="jax", cache=folder, **options)


def traced_nothing(found: Model) -> bool:
    """Whether the backend was never asked for a shape, which tracing asks for at each step."""
    return not found._shared.inferred._inferences


# -- that it is the same --------------------------------------------------------------------------


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", NAMES)
def test_exporters_models_go_on_from_what_was_kept(name: str, tmp_path: Path) -> None:
    path = FOLDER / f"{name}.onnx"
    first, second = loaded(path, tmp_path), loaded(path, tmp_path)
    for feeds, expected in recorded_calls(name):
        for found in (first, second, second):
            for made, wanted in zip(
                found.run(list(expected), feeds), expected.values(), strict=True
            ):
                np.testing.assert_allclose(made, wanted, rtol=2e-4, atol=2e-5)
    assert traced_nothing(second)
    feeds, _ = recorded_calls(name)[0]
    assert str(second.trace(**feeds)) == str(first.trace(**feeds))


def test_memory_and_stats_are_told_of_it_too(tmp_path: Path) -> None:
    proto = model([node("MatMul", ["x", "w"], ["y"])], ["x"], ["y"], [weight("w", X.T.copy())])
    first, second = loaded(proto, tmp_path), loaded(proto, tmp_path)
    for found in (first, second):
        found(X)
    assert second.memory(X) == first.memory(X)
    stats = second.stats()
    assert (stats.calls, stats.hits, stats.compiles) == (1, 0, 1)
    assert stats.bytes_held == first.stats().bytes_held


def test_large_constants_are_not_written_again(tmp_path: Path) -> None:
    for count in (2**10, 2**22 + 1):
        whole = numpy_helper.from_array(np.arange(count, dtype=np.float32))
        nodes = [node("Constant", [], ["c"], value=whole), node("Add", ["x", "c"], ["y"])]
        for _ in range(2):
            found = loaded(model(nodes, [value("x", [1])], ["y"]), tmp_path)
            assert found(np.ones(1, np.float32))[-1] == count
        assert traced_nothing(found) == (count < 2**22)
    assert sum(file.stat().st_size for file in tmp_path.glob("*.kept")) < 2**20


def test_step_by_step_too(tmp_path: Path) -> None:
    for _ in range(2):
        np.testing.assert_allclose(loaded(leaky(0.1), tmp_path, jit=False)(-X), -0.1 * X, rtol=1e-6)
        np.testing.assert_allclose(loaded(leaky(0.1), tmp_path)(-X), -0.1 * X, rtol=1e-6)


def test_what_is_compiled_ahead_is_kept(tmp_path: Path) -> None:
    proto = model([node("MatMul", ["x", "w"], ["y"])], ["x"], ["y"], [weight("w", X.T.copy())])
    loaded(proto, tmp_path).compile({"x": X.shape})
    second = loaded(proto, tmp_path)
    np.testing.assert_allclose(second(X), X @ X.T, rtol=1e-6)
    assert traced_nothing(second)


def test_random_numbers_follow_the_key(tmp_path: Path) -> None:
    drawn = model([node("RandomUniformLike", ["x"], ["y"])], ["x"], ["y"])
    first, second = loaded(drawn, tmp_path), loaded(drawn, tmp_path)
    expected = first.bind(key=3)(X)
    np.testing.assert_array_equal(second.bind(key=3)(X), expected)
    assert traced_nothing(second)
    assert not np.array_equal(second(X), second(X))


def test_what_is_given_up_is_part_of_it(tmp_path: Path) -> None:
    step = model([node("Add", ["past", "x"], ["now"])], ["past", "x"], ["now"])
    first, second = loaded(step, tmp_path), loaded(step, tmp_path)
    for found in (first, second):
        past, x = jnp.ones(4), jnp.ones(4)
        found(past, x)
        assert not past.is_deleted()
        assert found.bind(donate=["past"])(past, x).tolist() == [2] * 4
        assert past.is_deleted()
    assert traced_nothing(second)


def test_ways_that_depend_on_data(tmp_path: Path) -> None:
    sized = model(
        [node("NonZero", ["x"], ["places"]), node("Neg", ["places"], ["y"])],
        [value("x", ["n"])],
        [value("y", None, INT64)],
    )
    first, second = loaded(sized, tmp_path), loaded(sized, tmp_path)
    calls = [np.array([0, 1, 1]), np.array([1, 0, 0]), np.array([0, 0, 0])]
    for x in calls[:2]:
        first(x.astype(np.float32))
    for x in calls:
        np.testing.assert_array_equal(second(x.astype(np.float32)), -np.flatnonzero(x)[None])


def test_branches_and_loops_on_the_device(tmp_path: Path) -> None:
    then, other = (graph([node(op, ["x"], [op])], [], [op]) for op in ("Neg", "Abs"))
    branches = {"then_branch": then, "else_branch": other}
    proto = model(
        [node("If", ["c"], ["y"], **branches)], [value("c", [], BOOL), value("x", [3])], ["y"]
    )
    for found in (loaded(proto, tmp_path), loaded(proto, tmp_path)):
        for c in (True, False, True):
            made = found(np.array(c), np.float32([-1, 0, 2]))
            assert made.tolist() == ([1, 0, -2] if c else [1, 0, 2])


def test_sequences_and_maps_are_told_apart_by_what_is_in_them(tmp_path: Path) -> None:
    joined = model(
        [node("ConcatFromSequence", ["xs"], ["y"], axis=0)],
        [onnx.helper.make_tensor_sequence_value_info("xs", 1, None)],
        ["y"],
    )
    several = [[X, X], [X[:1], X], [X, X[:1]], [X]]
    for _ in range(2):
        found = loaded(joined, tmp_path)
        for arrays in several:
            np.testing.assert_array_equal(found(arrays), np.concatenate(arrays))
    assert traced_nothing(found)


# -- that nothing else is taken for it ------------------------------------------------------------


def reshaped(shape: list[int]) -> onnx.ModelProto:
    nodes = [node("Reshape", ["x", "shape"], ["y"])]
    return model(nodes, ["x"], ["y"], [weight("shape", np.array(shape))])


def resized(scale: float) -> onnx.ModelProto:
    """Scales are floats, no static integers: they are read while tracing."""
    nodes = [node("Resize", ["x", "", "scales"], ["y"], mode="nearest")]
    return model(nodes, ["x"], ["y"], [weight("scales", np.float32([1, scale]))])


def multiplied(factor: float) -> onnx.ModelProto:
    return model([node("Mul", ["x", "w"], ["y"])], ["x"], ["y"], [weight("w", X * factor)])


def leaky(alpha: float) -> onnx.ModelProto:
    return model([node("LeakyRelu", ["x"], ["y"], alpha=alpha)], ["x"], ["y"])


def branching(op: str) -> onnx.ModelProto:
    """Different in a subgraph alone."""
    inner = graph([node(op, ["x"], ["inner"])], [], ["inner"])
    always = weight("c", np.array(True))
    return model(
        [node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)], ["x"], ["y"], [always]
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (reshaped([4, 3]), reshaped([2, 6])),
        (resized(2), resized(3)),
        (multiplied(2), multiplied(3)),
        (leaky(0.1), leaky(0.2)),
        (branching("Neg"), branching("Abs")),
    ],
    ids=["shapes", "scales", "weights", "attributes", "subgraphs"],
)
def test_models_that_differ_share_a_folder(
    one: onnx.ModelProto, other: onnx.ModelProto, tmp_path: Path
) -> None:
    for proto in (one, other, one):
        expected = sardonyx.load(proto, backend="numpy")(-X)
        np.testing.assert_allclose(loaded(proto, tmp_path)(-X), expected)


def test_params_that_were_replaced(tmp_path: Path) -> None:
    loaded(reshaped([4, 3]), tmp_path)(X)
    for shape in ([2, 6], [6, 2]):
        found = loaded(reshaped([4, 3]), tmp_path)
        found.params["shape"] = np.array(shape)
        assert found(X).shape == tuple(shape)
    assert loaded(reshaped([4, 3]), tmp_path)(X).shape == (4, 3)
    loaded(multiplied(2), tmp_path)(X)
    found = loaded(multiplied(2), tmp_path)
    found(X)
    found.params["w"] = X
    np.testing.assert_array_equal(found(X), X * X)


def test_precisions_have_recordings_of_their_own(tmp_path: Path) -> None:
    proto = model([node("MatMul", ["x", "w"], ["y"])], ["x"], ["y"], [weight("w", X.T / 7)])
    made = {}
    for precision in ("highest", "bfloat16", "highest"):
        made[precision] = loaded(proto, tmp_path, precision=precision)(X / 3)
        alone = sardonyx.load(proto, backend="jax", precision=precision)(X / 3)
        np.testing.assert_array_equal(made[precision], alone)
    assert not np.array_equal(made["highest"], made["bfloat16"])


def test_operators_of_ones_own_are_traced_again(tmp_path: Path) -> None:
    for factor in (2, 3):

        @sardonyx.op(domain="my.domain")
        def Scale(xp: Backend, x: Array) -> Array:
            return x * factor  # noqa: B023  (called in this turn)

        own = model(
            [node("Scale", ["x"], ["y"], domain="my.domain")], ["x"], ["y"], **{"my.domain": 1}
        )
        np.testing.assert_array_equal(loaded(own, tmp_path, ops=[Scale])(X), factor * X)


def test_what_is_refused_is_refused_again(tmp_path: Path) -> None:
    unknown = model([node("NoSuchThing", ["x"], ["y"])], ["x"], ["y"])
    # At this opset the standard has no such type for the operator.
    narrow = model(
        [node("Relu", ["x"], ["y"])],
        [value("x", [2], onnx.TensorProto.BFLOAT16)],
        [value("y", [2], onnx.TensorProto.BFLOAT16)],
        opset=12,
    )
    loaded(narrow, tmp_path, strict=False)
    for proto in (unknown, unknown, narrow, narrow):
        with pytest.raises(SardonyxError):
            loaded(proto, tmp_path)


# -- what is in the files -------------------------------------------------------------------------


def kept_files(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in sorted(folder.iterdir())}


def test_what_is_damaged_is_made_again(tmp_path: Path) -> None:
    loaded(leaky(0.1), tmp_path)(X)
    before = kept_files(tmp_path)
    for file, whole in before.items():
        flipped = bytearray(whole)
        flipped[len(whole) // 2] ^= 16
        for damaged in (b"", b"nothing", whole[:-9], whole[: len(whole) // 2], bytes(flipped)):
            file.write_bytes(damaged)
            np.testing.assert_allclose(loaded(leaky(0.1), tmp_path)(-X), -0.1 * X, rtol=1e-6)
            assert kept_files(tmp_path).keys() == before.keys()
            if file.suffix == ".kept":
                assert file.read_bytes() == whole


def test_files_that_were_swapped_are_made_again(tmp_path: Path) -> None:
    for alpha in (0.1, 0.2):
        loaded(leaky(alpha), tmp_path)(X)
    before = kept_files(tmp_path)
    programs = [file for file in before if file.suffix == ".xla"]
    for one, other in (programs, list(before)[:2]):
        one.write_bytes(before[other])
        other.write_bytes(before[one])
    for alpha in (0.1, 0.2):
        found = loaded(leaky(alpha), tmp_path)
        np.testing.assert_allclose(found(-X), np.float32(-alpha) * X, rtol=1e-6)


class Payload:
    """What runs a command where it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.marker}",)


def test_a_planted_pickle_never_runs(tmp_path: Path) -> None:
    """Even where its checksum is right."""
    folder, marker = tmp_path / "cache", tmp_path / "ran"
    loaded(leaky(0.1), folder)(X)
    before = {file: whole for file, whole in kept_files(folder).items() if file.suffix == ".kept"}
    planted = pickle.dumps(Payload(marker))
    for file in before:
        PrivateFolder(folder).write(file.name, planted)
        np.testing.assert_allclose(loaded(leaky(0.1), folder)(-X), -0.1 * X, rtol=1e-6)
    assert not marker.exists()
    assert os.path.getsize(max(before, key=lambda file: len(before[file]))) > len(planted)
    pickle.loads(planted)
    assert marker.exists()


@pytest.mark.parametrize(
    "table",
    [
        ["sardonyx.backends.jax.onednn.build", "_run", 1, ["function", 0, 1, 2]],
        ["os", "system", 1, ["function", 0, 1, 2]],
        ["sardonyx.ops.image", "import_module", 1, ["function", 0, 1, 2]],
        ["O", ["dtype", 0], 1, ["tuple", 2], 0, 8, ["bytes", 4, 5], ["array", 1, 3, 6]],
        ["O,O", ["dtype", 0], 1, ["tuple", 2], 0, 16, ["bytes", 4, 5], ["array", 1, 3, 6]],
        ["x", ["system", 0]],
        [["tuple", 7]],
        [],
        [["Stage", 0]],
    ],
    ids=str,
)
def test_recordings_reach_nothing_but_operators(table: list[Any]) -> None:
    proto = leaky(0.1)
    params = sardonyx.load(proto, backend="numpy").params
    text = json.dumps(table).encode()
    content = struct.pack("<Q", len(text)) + text + bytes(64)
    with pytest.raises((LookupError, TypeError)):
        recording_format.read(content, [], params, ())


def test_a_recording_is_read_as_it_was_written() -> None:
    shared = Spec((2, 0), np.dtype("float16"))
    values = [
        (shared, [shared, shared], {"a": (1, True, None, 2**70, "\ud800")}),
        (-0.0, math.inf, b"\0\xff", np.float32(-0.0), np.bool_(True)),
        [np.arange(6, dtype=np.int8).reshape(2, 3).T, np.zeros((0, 3)), np.array(3.5)],
        [np.array([["a", "\ud800"]], object), np.array([1, -2, 3], ml_dtypes.int4)],
        Map(("k", 1), Static(np.array([1, 2], ml_dtypes.bfloat16))),
    ]
    params = sardonyx.load(leaky(0.1), backend="numpy").params
    for value_ in values:
        content = recording_format.written(value_, [], ())
        read = recording_format.read(content, [], params, ())
        assert recording_format.written(read, [], ()) == content
        assert type(read) is type(value_)
    (spec, (first, second), _) = recording_format.read(
        recording_format.written(values[0], [], ()), [], params, ()
    )
    assert spec == shared == first
    assert first is second
    with pytest.raises(recording_format.Unwritable):
        recording_format.written(object(), [], ())


def test_kinds_of_calls_without_a_name_are_not_kept(tmp_path: Path) -> None:
    found = loaded(leaky(0.1), tmp_path)
    found(X)
    before = kept_files(tmp_path).keys()
    recording = next(iter(found._plain.entries.by_key.values())).recording
    recordings = found._plain.recordings
    assert recordings is not None
    recordings.keep(recording, object())
    assert kept_files(tmp_path).keys() == before
    assert not recordings.recall(Recording(recording.compiler, False), object())
