"""Identity aliases its buffer: what comes out is what went in, not a copy of it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.backends.base import Backend
from tests.support.onnx_builders import model, node, value, weight

ONE = model([node("Identity", ["x"], ["y"])], ["x"], ["y"])
HUNDRED = model([node("Identity", [f"x{i}"], [f"x{i + 1}"]) for i in range(100)], ["x0"], ["x100"])
NO_NODES = model([], ["x"], ["x"])
THROUGH_IF = model(
    [
        node("Constant", [], ["c"], value=weight("c", np.array(True))),
        node(
            "If",
            ["c"],
            ["y"],
            then_branch=model([node("Identity", ["x"], ["t"])], [], ["t"]).graph,
            else_branch=model([node("Neg", ["x"], ["e"])], [], ["e"]).graph,
        ),
    ],
    ["x"],
    ["y"],
)
# Ops whose result is their argument, because there is nothing to do.
IDLE = model(
    [
        node("Reshape", ["x", "shape"], ["a"]),
        node("Transpose", ["a"], ["b"], perm=[0, 1]),
        node("Cast", ["b"], ["c"], to=onnx.TensorProto.FLOAT),
        node("Concat", ["c"], ["d"], axis=0),
        node("Dropout", ["d"], ["y"]),
    ],
    [value("x", [2, 3])],
    ["y"],
    [weight("shape", np.array([2, 3]))],
)
MODELS = {
    "one": ONE,
    "hundred": HUNDRED,
    "no nodes": NO_NODES,
    "static if": THROUGH_IF,
    "idle ops": IDLE,
}


@pytest.mark.parametrize("proto", MODELS.values(), ids=MODELS)
def test_numpy_arrays_come_back_as_the_same_memory(proto: onnx.ModelProto, xp: Backend) -> None:
    x = np.ones((2, 3), np.float32)
    loaded = sardonyx.load(proto, backend=xp)
    for _ in range(3):
        assert np.shares_memory(np.asarray(loaded(x)), x)


@pytest.mark.parametrize("proto", MODELS.values(), ids=MODELS)
def test_jax_arrays_come_back_as_the_same_buffer(proto: onnx.ModelProto) -> None:
    x = jnp.ones((2, 3), jnp.float32)
    loaded = sardonyx.load(proto, backend="jax")
    for _ in range(3):
        y = loaded(x)
        assert y.unsafe_buffer_pointer() == x.unsafe_buffer_pointer()
    program = loaded.trace(x)
    assert program.segments == []


def test_an_alias_is_named_as_one(xp: Backend) -> None:
    program = sardonyx.load(HUNDRED, backend=xp).trace(np.ones(3, np.float32))
    assert program.kind("x0") == "device"
    assert {program.kind(f"x{i}") for i in range(1, 101)} == {"alias"}
    assert program.aliases["x100"] == "x0"


def test_two_outputs_of_one_value_are_one_buffer(xp: Backend) -> None:
    proto = model([node("Exp", ["x"], ["y"]), node("Identity", ["y"], ["z"])], ["x"], ["y", "z"])
    # As arrays of the backend: on CuPy NumPy's are copies from the device.
    y, z = sardonyx.load(proto, backend=xp)(xp.put(np.ones(3, np.float32)))
    assert y is z or np.shares_memory(np.asarray(y), np.asarray(z))


def test_reshapes_are_views_where_the_library_has_views() -> None:
    proto = model([node("Flatten", ["x"], ["y"])], ["x"], ["y"])
    x = np.ones((2, 3, 4), np.float32)
    loaded = sardonyx.load(proto, backend="numpy")
    assert np.shares_memory(loaded(x), x)
    assert loaded.trace(x).kind("y") == "alias"
    # XLA gives a segment's outputs buffers of their own, so there it is no alias.
    assert sardonyx.load(proto, backend="jax").trace(x).kind("y") == "device"


def test_a_replay_of_identities_copies_no_byte() -> None:
    x = jnp.ones((256, 256), jnp.float32)
    loaded = sardonyx.load(HUNDRED, backend="jax")
    loaded(x)
    before = _live_bytes()
    with jax.transfer_guard("disallow"):
        kept = [loaded(x) for _ in range(10)]
    assert _live_bytes() == before
    assert all(y is x for y in kept)


def _live_bytes() -> int:
    # Two arrays may share a buffer; each buffer counts once.
    buffers: dict[Any, int] = {}
    for array in jax.live_arrays():
        buffers[array.unsafe_buffer_pointer()] = array.nbytes
    return sum(buffers.values())
