"""Shape is static metadata, Constant one device constant: neither costs anything at run time."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from onnx import helper

import sardonyx
from sardonyx.backends.base import Backend
from tests.support.onnx_builders import INT64, model, node, value, weight

SHAPE_CHAIN = model(
    [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["batch"]),
        node("Unsqueeze", ["batch", "axes"], ["batch1"]),
        node("Concat", ["batch1", "rest"], ["target"], axis=0),
        node("Reshape", ["x", "target"], ["y"]),
    ],
    [value("x", ["batch", 3, 4])],
    ["y"],
    [
        weight("zero", np.array(0)),
        weight("axes", np.array([0])),
        weight("rest", np.array([-1])),
    ],
)


def thousand_uses(content: np.ndarray[Any, Any]) -> Any:
    """1,000 Constant nodes of one content, each added to the running sum."""
    nodes = []
    for i in range(1000):
        nodes.append(node("Constant", [], [f"c{i}"], value=weight("c", content)))
        nodes.append(node("Add", [f"x{i}", f"c{i}"], [f"x{i + 1}"]))
    return model(nodes, ["x0"], ["x1000"])


def test_a_shape_chain_leaves_one_reshape() -> None:
    loaded = sardonyx.load(SHAPE_CHAIN, backend="jax")
    jaxpr = jax.make_jaxpr(loaded)(jnp.ones((2, 3, 4)))
    assert [equation.primitive.name for equation in jaxpr.eqns] == ["reshape"]
    assert jaxpr.eqns[0].params["new_sizes"] == (2, 12)


def test_a_shape_chain_moves_nothing_between_host_and_device() -> None:
    loaded = sardonyx.load(SHAPE_CHAIN, backend="jax")
    x = jax.device_put(np.ones((2, 3, 4), np.float32))
    with jax.transfer_guard("disallow"):
        for _ in range(2):
            assert loaded(x).shape == (2, 12)


def test_a_shape_chain_is_static(xp: Backend) -> None:
    program = sardonyx.load(SHAPE_CHAIN, backend=xp).trace(np.ones((2, 3, 4), np.float32))
    assert {program.kind(n) for n in ("shape", "batch", "batch1", "target")} == {"static"}
    assert program.static["target"].tolist() == [2, -1]
    assert [len(segment.steps) for segment in program.segments] == [1]


def test_shapes_are_those_of_the_call_and_not_of_the_first_one(xp: Backend) -> None:
    loaded = sardonyx.load(SHAPE_CHAIN, backend=xp)
    for batch in (2, 5, 0, 2):
        shape = (batch, 12) if batch else (0, 12)
        if batch:
            assert np.asarray(loaded(np.ones((batch, 3, 4), np.float32))).shape == shape


def test_a_shape_costs_no_work_even_of_a_value_nobody_else_reads(xp: Backend) -> None:
    proto = model(
        [node("Exp", ["x"], ["e"]), node("Shape", ["e"], ["y"])],
        ["x"],
        [value("y", None, INT64)],
    )
    program = sardonyx.load(proto, backend=xp).trace(np.ones((2, 3), np.float32))
    assert program.segments == []
    assert program.kind("y") == "static"


def test_dead_nodes_are_not_run(xp: Backend) -> None:
    proto = model(
        [
            node("Exp", ["x"], ["y"]),
            node("Log", ["x"], ["dead"]),
            node("Neg", ["dead"], ["deader"]),
        ],
        ["x"],
        ["y"],
    )
    (segment,) = sardonyx.load(proto, backend=xp).trace(np.ones(3, np.float32)).segments
    assert [step.node.op_type for step in segment.steps] == ["Exp"]


def test_a_thousand_uses_of_one_constant_hold_one_device_buffer() -> None:
    loaded = sardonyx.load(thousand_uses(np.full(100, 0.25, np.float32)), backend="jax")
    x = jnp.zeros(100, jnp.float32)
    before = jax.live_arrays()  # Held, so that none of them is freed meanwhile.
    y = loaded(x)
    assert len(jax.live_arrays()) - len(before) == 2  # The constant, and the result.
    assert len(loaded.trace(x).constants) == 1
    with jax.transfer_guard("disallow"):
        again = loaded(x)
    np.testing.assert_array_equal(y, np.full(100, 250.0, np.float32))
    np.testing.assert_array_equal(again, y)


@pytest.mark.parametrize("shape", [(), (3,), (1000,)])
@pytest.mark.sampled(3)
def test_constants_of_every_size_are_one(shape: tuple[int, ...], xp: Backend) -> None:
    loaded = sardonyx.load(thousand_uses(np.full(shape, 0.5, np.float32)), backend=xp)
    program = loaded.trace(np.zeros(shape, np.float32))
    assert len(program.constants) == 1
    assert program.kind("c7") == "static"


def test_constants_of_one_content_but_different_types_stay_apart(xp: Backend) -> None:
    proto = model(
        [
            node("Constant", [], ["a"], value=weight("a", np.zeros(200, np.float32))),
            node("Constant", [], ["b"], value=weight("b", np.zeros(200, np.int32))),
            node("Add", ["x", "a"], ["y"]),
            node("Add", ["i", "b"], ["z"]),
        ],
        [value("x", [200]), value("i", [200], 6)],
        ["y", value("z", None, 6)],
    )
    y, z = sardonyx.load(proto, backend=xp)(np.ones(200, np.float32), np.ones(200, np.int32))
    assert (np.asarray(y).dtype, np.asarray(z).dtype) == (np.float32, np.int32)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"value_float": 1.5}, np.array(1.5, np.float32)),
        ({"value_floats": [1.5, 2.5]}, np.array([1.5, 2.5], np.float32)),
        ({"value_int": -3}, np.array(-3, np.int64)),
        ({"value_ints": [1, 2]}, np.array([1, 2], np.int64)),
        ({"value_string": "ä"}, np.array("ä", object)),
        ({"value_strings": ["a", ""]}, np.array(["a", ""], object)),
        ({"value_floats": []}, np.zeros(0, np.float32)),
    ],
)
def test_a_constant_is_what_its_attribute_says(
    attributes: dict[str, Any], expected: np.ndarray[Any, Any], xp: Backend
) -> None:
    typed = {"value_floats": 6, "value_ints": 7}
    made = node("Constant", [], ["y"])
    for name, content in attributes.items():
        kind = typed.get(name)
        made.attribute.append(helper.make_attribute(name, content, attr_type=kind))
    dtype = {"f": 1, "i": 7, "O": 8}[expected.dtype.kind]
    found = sardonyx.load(model([made], [], [value("y", None, dtype)]), backend=xp)()
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (None, None, [2, 3, 4]),
        (1, None, [3, 4]),
        (-1, None, [4]),
        (None, -1, [2, 3]),
        (-99, 99, [2, 3, 4]),
        (2, 1, []),
        (5, None, []),
        (None, -7, []),
    ],
)
def test_shape_clamps_start_and_end(
    start: int | None, end: int | None, expected: list[int], xp: Backend
) -> None:
    given = {n: v for n, v in (("start", start), ("end", end)) if v is not None}
    proto = model([node("Shape", ["x"], ["y"], **given)], ["x"], [value("y", None, INT64)])
    found = sardonyx.load(proto, backend=xp)(np.zeros((2, 3, 4), np.float32))
    assert found.dtype == np.int64
    assert found.tolist() == expected


def test_an_optional_of_what_is_static_is_static_too(xp: Backend) -> None:
    """Its type is optional(tensor), and its array that of the tensor."""
    flags = np.array([True, False])
    wrapped = model(
        [node("Optional", ["flags"], ["o"]), node("OptionalGetElement", ["o"], ["y"])],
        [],
        ["y"],
        [weight("flags", flags)],
    )
    np.testing.assert_array_equal(sardonyx.load(wrapped, backend=xp)(), flags)
