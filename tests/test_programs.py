"""What a program does beyond a straight line of ops: cuts, branches, functions, fusions."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import sardonyx
from sardonyx.backends.base import Backend
from tests.support.counting_backends import COUNTING, CountingJax
from tests.support.onnx_builders import (
    BOOL,
    FLOAT,
    INT64,
    STRING,
    graph,
    model,
    node,
    value,
    weight,
)

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)

RESHAPE_BY_INPUT = model(
    [node("Reshape", ["x", "shape"], ["r"]), node("Exp", ["r"], ["y"])],
    ["x", value("shape", None, INT64)],
    ["y"],
)
# The largest element decides a size, so the device must be read in the middle.
SIZE_FROM_DATA = model(
    [
        node("Neg", ["x"], ["negative"]),
        node("ReduceMax", ["x"], ["largest"], keepdims=0),
        node("Cast", ["largest"], ["size"], to=INT64),
        node("Unsqueeze", ["size", "axes"], ["shape"]),
        node("Expand", ["negative", "shape"], ["y"]),
    ],
    [value("x", [1])],
    ["y"],
    [weight("axes", np.array([0]))],
)


def branching(then: list[Any], otherwise: list[Any]) -> onnx.ModelProto:
    """If over a condition given as an input; the branches make `t` and `e` from `x`."""
    return model(
        [
            node("Abs", ["x"], ["before"]),
            node(
                "If",
                ["condition"],
                ["chosen"],
                then_branch=graph(then, [], ["t"]),
                else_branch=graph(otherwise, [], ["e"]),
            ),
            node("Neg", ["chosen"], ["y"]),
        ],
        ["x", value("condition", [], BOOL)],
        ["y"],
    )


ALIKE = branching([node("Exp", ["before"], ["t"])], [node("Sin", ["before"], ["e"])])
UNLIKE = branching(
    [node("Flatten", ["before"], ["t"])], [node("ReduceSum", ["before"], ["e"], keepdims=0)]
)


def array(found: Any) -> np.ndarray[Any, Any]:
    return np.asarray(found)


def test_an_input_that_decides_a_shape_is_static(xp: Backend) -> None:
    loaded = sardonyx.load(RESHAPE_BY_INPUT, backend=xp)
    for shape in ([4, 6], [24], [-1, 2], [4, 6]):
        expected = np.exp(X.reshape(shape))
        np.testing.assert_allclose(array(loaded(X, np.array(shape))), expected, rtol=1e-6)
    program = loaded.trace(X, np.array([4, 6]))
    assert program.kind("shape") == "static"
    assert program.static["shape"].tolist() == [4, 6]


@pytest.mark.parametrize("library", COUNTING)
def test_a_known_path_is_replayed_and_a_new_one_recorded(library: type[Any]) -> None:
    counting = library()
    loaded = sardonyx.load(RESHAPE_BY_INPUT, backend=counting)
    for shape in ([4, 6], [24], [4, 6], [24]):
        loaded(X, np.array(shape))
    before = (counting.looks, counting.compilations)
    for shape in ([24], [4, 6], [24]):
        loaded(X, np.array(shape))
    assert (counting.looks, counting.compilations) == before
    loaded(X, np.array([2, 12]))
    assert counting.looks > before[0]


def test_a_size_from_data_cuts_the_program(xp: Backend) -> None:
    loaded = sardonyx.load(SIZE_FROM_DATA, backend=xp)
    for size in (3, 5, 3, 0):
        found = array(loaded(np.array([size], np.float32)))
        np.testing.assert_array_equal(found, np.full(size, -size, np.float32))
    program = loaded.trace(np.array([3], np.float32))
    assert len(program.segments) == 2
    assert program.kind("size") == "device"


def test_what_comes_before_a_cut_is_compiled_once() -> None:
    counting = CountingJax()
    loaded = sardonyx.load(SIZE_FROM_DATA, backend=counting)
    for size in (3, 5, 7, 5, 3):
        loaded(np.array([size], np.float32))
    assert counting.compilations == 1 + 3


@pytest.mark.parametrize("proto", [ALIKE, UNLIKE], ids=["alike", "unlike"])
def test_if_takes_the_branch_that_its_condition_says(proto: onnx.ModelProto, xp: Backend) -> None:
    loaded = sardonyx.load(proto, backend=xp)
    expected = {
        True: -np.exp(X) if proto is ALIKE else -X.reshape(2, 12),
        False: -np.sin(X) if proto is ALIKE else -X.sum(),
    }
    for condition in (True, False, True, False):
        found = array(loaded(X, np.array(condition)))
        np.testing.assert_allclose(found, expected[condition], rtol=1e-5)


def test_branches_alike_stay_on_the_device() -> None:
    program = sardonyx.load(ALIKE, backend="jax").trace(X, np.array(True))
    (segment,) = program.segments
    assert [step.node.op_type for step in segment.steps] == ["Abs", "If", "Neg"]
    assert program.kind("condition") == "device"


def test_branches_unlike_are_chosen_on_the_host() -> None:
    program = sardonyx.load(UNLIKE, backend="jax").trace(X, np.array(True))
    assert program.kind("condition") == "static"
    assert [s.node.op_type for g in program.segments for s in g.steps] == ["Abs", "Flatten", "Neg"]


def test_a_static_condition_leaves_no_trace(xp: Backend) -> None:
    proto = model(
        [
            node("Shape", ["x"], ["shape"]),
            node("Size", ["shape"], ["rank"]),
            node("Equal", ["rank", "three"], ["condition"]),
            node(
                "If",
                ["condition"],
                ["y"],
                then_branch=graph([node("Exp", ["x"], ["same"])], [], ["same"]),
                # A sibling branch may use the same names.
                else_branch=graph([node("Sin", ["x"], ["same"])], [], ["same"]),
            ),
        ],
        ["x"],
        ["y"],
        [weight("three", np.array(3))],
    )
    loaded = sardonyx.load(proto, backend=xp)
    np.testing.assert_allclose(array(loaded(X)), np.exp(X), rtol=1e-6)
    np.testing.assert_allclose(array(loaded(X[0])), np.sin(X[0]), rtol=1e-5)
    (segment,) = loaded.trace(X).segments
    assert [step.node.op_type for step in segment.steps] == ["Exp"]


def scaled_function() -> onnx.FunctionProto:
    """A function with an attribute that has a default, one that has none, and a nested call."""
    scale = node("Constant", [], ["factor"])
    scale.attribute.append(
        onnx.AttributeProto(name="value_float", ref_attr_name="factor", type=FLOAT)
    )
    return helper.make_function(
        "own",
        "Scaled",
        ["a"],
        ["b"],
        [scale, node("Mul", ["a", "factor"], ["b"])],
        [helper.make_opsetid("", 18)],
        attribute_protos=[helper.make_attribute("factor", 3.0)],
    )


def test_functions_are_inlined_with_their_attributes(xp: Backend) -> None:
    outer = helper.make_function(
        "own",
        "Twice",
        ["x"],
        ["y"],
        [
            node("Scaled", ["x"], ["x1"], domain="own"),
            node("Scaled", ["x1"], ["y"], domain="own", factor=0.5),
        ],
        [helper.make_opsetid("own", 1)],
    )
    proto = model(
        [node("Twice", ["x"], ["y"], domain="own")],
        ["x"],
        ["y"],
        functions=[scaled_function(), outer],
        own=1,
    )
    np.testing.assert_array_equal(array(sardonyx.load(proto, backend=xp)(X)), X * 1.5)


def test_operators_without_a_definition_are_expanded_as_the_standard_says(xp: Backend) -> None:
    proto = model(
        [node("SoftmaxCrossEntropyLoss", ["x", "labels"], ["y"], reduction="sum")],
        ["x", value("labels", None, INT64)],
        ["y"],
    )
    scores = np.log(np.array([[0.25, 0.75], [0.5, 0.5]], np.float32))
    try:
        loss = sardonyx.load(proto, backend=xp)(scores, np.array([1, 0]))
    except sardonyx.UnsupportedModel as refusal:
        pytest.fail(str(refusal))
    np.testing.assert_allclose(array(loss), -np.log(0.75) - np.log(0.5), rtol=1e-6)


def test_strings_are_host_work_between_device_segments() -> None:
    proto = model(
        [
            node("Exp", ["x"], ["e"]),
            node("Equal", ["words", "word"], ["same"]),
            node("Where", ["same", "e", "x"], ["y"]),
            node("Identity", ["words"], ["out"]),
        ],
        [value("x", [3]), value("words", [3], STRING)],
        ["y", value("out", [3], STRING)],
        [helper.make_tensor("word", STRING, [1], [b"b"])],
        opset=19,
    )
    x = np.ones(3, np.float32)
    words = np.array(["a", "b", "c"], object)
    for backend in ("numpy", "jax"):
        loaded = sardonyx.load(proto, backend=backend)
        for _ in range(2):
            y, out = loaded(x, words)
            np.testing.assert_allclose(y, [1, np.e, 1], rtol=1e-6)
            assert out is words
        assert loaded.trace(x, words).kind("words") == "host"
        assert loaded.trace(x, words).kind("out") == "alias"


def test_a_listing_tells_what_became_of_each_value() -> None:
    text = str(sardonyx.load(SIZE_FROM_DATA, backend="jax").trace(np.array([3], np.float32)))
    assert "segment 0 on jax: 4 steps" in text
    assert "axes = [0]" in text
    assert "y: float32[3] = Expand(negative)" in text


def test_a_listing_names_prepared_weights_after_their_weights() -> None:
    nodes = [node("MatMul", ["x", "w"], ["s"]), node("Mul", ["s", "c"], ["y"])]
    weights = [weight("w", np.ones((4, 3), np.float32)), weight("c", np.full(3, 2, np.float32))]
    proto = model(nodes, [value("x", (5, 4))], [value("y")], weights=weights)
    text = str(sardonyx.load(proto, backend="numpy").trace(np.ones((5, 4), np.float32)))
    assert "MatMul(x, ScaledWeight(w, ByOutput(c)))" in text


@pytest.mark.parametrize("nodes", [3000])
@pytest.mark.slow
def test_long_graphs_run(nodes: int, xp: Backend) -> None:
    chain = [node("Neg", [f"v{i}"], [f"v{i + 1}"]) for i in range(nodes)]
    loaded = sardonyx.load(model(chain, ["v0"], [f"v{nodes}"]), backend=xp)
    np.testing.assert_array_equal(array(loaded(X)), X)
