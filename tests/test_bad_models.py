"""Graphs that are wrong: refused at load, soon, in words that say what and where."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import sardonyx
from sardonyx.errors import InvalidInput, InvalidModel, UnsupportedModel
from tests.support.onnx_builders import BOOL, changed, function, graph, model, node, value, weight
from tests.support.raises import refused

X = np.ones((2, 3), np.float32)


def load(source: Any) -> sardonyx.Model:
    return sardonyx.load(source, backend="numpy")


def calling(*functions: onnx.FunctionProto, **attributes: Any) -> onnx.ModelProto:
    """A model that is nothing but a call of the first function."""
    call = node(functions[0].name, ["x"], ["y"], name="call", domain="mine", **attributes)
    return model([call], ["x"], ["y"], functions=functions, mine=1)


# -- structure ------------------------------------------------------------------------------------


def case(name: str, bad: onnx.ModelProto, *words: str, error: Any = InvalidModel) -> Any:
    return pytest.param(bad, error, words, id=name)


def with_reference(output: str = "y") -> onnx.NodeProto:
    made = node("Softmax", ["x"], [output], name="soft")
    made.attribute.add(name="axis", ref_attr_name="outer", type=onnx.AttributeProto.INT)
    return made


def branch(nodes: list[onnx.NodeProto], output: str, *weights: Any) -> onnx.GraphProto:
    return graph(nodes, [], [output], weights, name="branch")


def choosing(then: onnx.GraphProto, other: onnx.GraphProto | None = None) -> onnx.ModelProto:
    choice = node("If", ["c"], ["y"], name="if", then_branch=then, else_branch=other or then)
    return model([choice], ["x", value("c", [], BOOL)], ["y"])


def one(operator: str, inputs: list[str], outputs: list[str], **attributes: Any) -> Any:
    """A model of one node, called 'it'; it returns its first result."""
    return model([node(operator, inputs, outputs, name="it", **attributes)], ["x"], outputs[:1])


def with_attributes(*attributes: onnx.AttributeProto) -> onnx.ModelProto:
    return changed(
        one("Softmax", ["x"], ["y"]), lambda m: m.graph.node[0].attribute.extend(attributes)
    )


NEG, RELU = node("Neg", ["x"], ["y"]), node("Relu", ["x"], ["y"])
FIRST = node("Add", ["x", "b"], ["a"], name="first")
RAGGED = TensorProto(name="t", dims=[3], data_type=TensorProto.FLOAT, raw_data=b"1234")

STRUCTURES = [
    case("cycle", model([FIRST, node("Relu", ["a"], ["b"])], ["x"], ["b"]), "'first'", "cycle"),
    case("reads itself", one("Add", ["x", "y"], ["y"]), "'it'", "Add", "own output"),
    case(
        "cycle via a branch", choosing(branch([node("Relu", ["y"], ["z"])], "z")), "'if'", "cycle"
    ),
    case("reads nothing", one("Relu", ["z"], ["y"]), "'it'", "Relu", "'z'", "no node"),
    case("output of nothing", model([RELU], ["x"], ["z"]), "output 'z'", "No node"),
    case("two makers", model([RELU, NEG], ["x"], ["y"]), "two nodes", "'y'"),
    case("makes an input", one("Relu", ["x"], ["x"]), "'x'", "already"),
    case("makes a weight", model([NEG], ["x"], ["y"], [weight("y", X)]), "'y'", "already"),
    case("two inputs", model([NEG], ["x", "x"], ["y"]), "two inputs", "'x'"),
    case("two outputs", model([NEG], ["x"], ["y", "y"]), "two outputs", "'y'"),
    case("two weights", model([NEG], ["x"], ["y"], [weight("w", X)] * 2), "two init", "'w'"),
    case("nameless input", model([NEG], ["x", ""], ["y"]), "no name"),
    case("nameless output", model([NEG], ["x"], ["y", ""]), "no name"),
    case("nameless weight", model([NEG], ["x"], ["y"], [weight("", X)]), "no name"),
    case("no operator", one("", ["x"], ["y"]), "'it'", "no operator"),
    case("no outputs", model([NEG], ["x"], []), "no outputs"),
    case("nothing at all", model([], [], []), "no outputs"),
    case("a branch shadows", choosing(branch([node("Relu", ["x"], ["c"])], "c")), "'c'", "outer"),
    case(
        "a branch reads its sibling",
        choosing(
            branch([node("Neg", ["x"], ["a"])], "a"), branch([node("Neg", ["a"], ["b"])], "b")
        ),
        "'a'",
        "no node",
    ),
    case("few inputs", one("Add", ["x"], ["y"]), "'it'", "Add, opset 18", "1 inputs", "takes 2"),
    case("many inputs", one("Relu", ["x", "x"], ["y"]), "'it'", "2 inputs", "takes 1"),
    case("many outputs", one("Relu", ["x"], ["y", "z"]), "'it'", "2 outputs", "takes 1"),
    case("left out", one("Add", ["", "x"], ["y"]), "'it'", "needs the input 'A'"),
    case("unknown attribute", one("Relu", ["x"], ["y"], slope=2), "'it'", "Relu", "'slope'"),
    case("later attribute", one("Cast", ["x"], ["y"], to=1, saturate=0), "opset 18", "'saturate'"),
    case("mistyped attribute", one("Softmax", ["x"], ["y"], axis=1.5), "'axis'", "'it'", "INT"),
    case("missing attribute", one("Concat", ["x", "x"], ["y"]), "Concat, opset 18", "'axis'"),
    case(
        "attribute twice",
        with_attributes(*[helper.make_attribute("axis", 1)] * 2),
        "'it'",
        "two attributes",
        "'axis'",
    ),
    case(
        "attribute of no type", with_attributes(onnx.AttributeProto(name="axis")), "'it'", "type 0"
    ),
    case(
        "reference",
        model([with_reference()], ["x"], ["y"]),
        "'axis'",
        "'soft'",
        "not in a function",
    ),
    case(
        "reference in a branch",
        choosing(branch([with_reference("z")], "z")),
        "'soft'",
        "not in a function",
    ),
    case(
        "a damaged tensor in a node",
        one("Constant", [], ["y"], value=RAGGED),
        "'value'",
        "'it'",
        "raw_data",
        "(3,)",
    ),
    case("a damaged weight", model([NEG], ["x"], ["y"], [RAGGED]), "'t'", "raw_data", "(3,)"),
    case("negative size", model([NEG], [value("x", [-7])], ["y"]), "'x'", "-7"),
    case("a dtype nobody knows", model([NEG], [value("x", None, 99)], ["y"]), "99", "is unknown"),
    case(
        "a deprecated operator",
        model([node("Upsample", ["x", "x"], ["y"], name="it")], ["x"], ["y"], opset=10),
        "Upsample",
        "'it'",
        error=UnsupportedModel,
    ),
    case(
        "types that differ",
        model([node("Add", ["x", "n"], ["y"], name="it")], ["x", value("n", None, 7)], ["y"]),
        "'it'",
        "Add, opset 18",
        "tensor(float)",
        "tensor(int64)",
        "cast",
    ),
    case(
        "a type not allowed",
        model([node("Not", ["x"], ["y"], name="it")], ["x"], ["y"]),
        "'it'",
        "Not, opset 18",
        "tensor(float)",
        "tensor(bool)",
        "strict=False",
    ),
]


@pytest.mark.parametrize(("bad", "error", "words"), STRUCTURES)
def test_structure(bad: onnx.ModelProto, error: Any, words: tuple[str, ...]) -> None:
    with refused(error, *words):
        load(bad)
    with refused(error, *words):
        load(bad.SerializeToString())


# -- functions ------------------------------------------------------------------------------------


def call(name: str, source: str = "a", result: str = "b", label: str = "") -> onnx.NodeProto:
    return node(name, [source], [result], label or name, domain="mine")


PLAIN = function("F", [node("Relu", ["a"], ["b"])], ["a"], ["b"])
FUNCTIONS = [
    case("itself", calling(function("F", [call("F")], ["a"], ["b"])), "'F'", "calls itself"),
    case(
        "through another",
        calling(function("F", [call("G")], ["a"], ["b"]), function("G", [call("F")], ["a"], ["b"])),
        "calls itself",
    ),
    case(
        "through a branch",
        calling(
            function(
                "F",
                [
                    node("Constant", [], ["c"], value=weight("c", np.array(True))),
                    node(
                        "If",
                        ["c"],
                        ["b"],
                        then_branch=branch([call("F", "a", "z")], "z"),
                        else_branch=branch([node("Relu", ["a"], ["z"])], "z"),
                    ),
                ],
                ["a"],
                ["b"],
            )
        ),
        "'F'",
        "calls itself",
    ),
    case("twice", calling(PLAIN, PLAIN), "'F'", "twice"),
    case("two inputs", calling(function("F", [], ["a", "a"], ["a"])), "'F'", "two inputs", "'a'"),
    case("two outputs", calling(function("F", [], ["a"], ["a", "a"])), "'F'", "two outputs"),
    case("nameless input", calling(function("F", [], ["a", ""], ["a"])), "'F'", "no name"),
    case("nameless", calling(function("", [], ["a"], ["a"])), "no name"),
    case("output of nothing", calling(function("F", [], ["a"], ["b"])), "'F'", "'b'", "No node"),
    case(
        "reads outside of itself",
        calling(function("F", [node("Relu", ["x"], ["b"], name="r")], ["a"], ["b"])),
        "'r'",
        "'x'",
        "no node",
    ),
    case(
        "many inputs",
        model(
            [node("F", ["x", "x"], ["y"], name="it", domain="mine")],
            ["x"],
            ["y"],
            functions=[PLAIN],
            mine=1,
        ),
        "'it'",
        "2 inputs",
        "function has 1: a",
    ),
    case(
        "many outputs",
        model(
            [node("F", ["x"], ["y", "z"], name="it", domain="mine")],
            ["x"],
            ["y"],
            functions=[PLAIN],
            mine=1,
        ),
        "'it'",
        "2 outputs",
    ),
    case("unknown attribute", calling(PLAIN, slope=1), "'call'", "'slope'", "none"),
]


@pytest.mark.parametrize(("bad", "error", "words"), FUNCTIONS)
def test_functions(bad: onnx.ModelProto, error: Any, words: tuple[str, ...]) -> None:
    with refused(error, *words):
        load(bad)


def test_a_function_called_without_an_input_it_reads() -> None:
    add = function("F", [node("Add", ["a", "b"], ["c"], name="inner")], ["a", "b"], ["c"])
    with refused(InvalidInput, "'inner'", "Add", "missing"):
        load(calling(add))(X)


# -- constants ------------------------------------------------------------------------------------

SPARSE = helper.make_sparse_tensor(
    weight("v", np.ones(1, np.float32)), weight("", np.array([9])), [3]
)
TWO = {"value_int": 1, "value_float": 2.0}


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_a_constant_has_exactly_one_value(backend: str) -> None:
    for attributes in (TWO, {}):
        loaded_and_run = model([node("Constant", [], ["y"], name="c", **attributes)], [], ["y"])
        given = " and ".join(sorted(attributes)) or "none"
        with refused(InvalidModel, "'c'", "Constant", "opset 18", "exactly one", f"has {given}"):
            sardonyx.load(loaded_and_run, backend=backend)()


def test_a_type_nobody_knows() -> None:
    cast = model([node("Cast", ["x"], ["y"], name="cast", to=99)], ["x"], ["y"])
    with refused(InvalidModel, "'cast'", "Cast, opset 18", "99", "is unknown"):
        load(cast)(X)


def test_a_sparse_index_out_of_range() -> None:
    with refused(InvalidModel, "'c'", "sparse_value", "sparse index", "(3,)"):
        load(model([node("Constant", [], ["y"], name="c", sparse_value=SPARSE)], [], ["y"]))


# -- what may look wrong, and is right ------------------------------------------------------------


def test_nodes_in_any_order() -> None:
    backwards = model([node("Relu", ["a"], ["y"]), node("Neg", ["x"], ["a"])], ["x"], ["y"])
    assert load(backwards)(-X).tolist() == X.tolist()


def test_an_output_that_is_an_input() -> None:
    assert load(model([], ["x"], ["x"]))(X) is X


def test_an_output_that_is_a_weight() -> None:
    assert load(model([], [], ["w"], [weight("w", X)]))().tolist() == X.tolist()


def test_siblings_may_use_the_same_names(xp: Any) -> None:
    then = branch([node("Neg", ["x"], ["same"])], "same")
    other = branch([node("Relu", ["x"], ["same"])], "same")
    chosen = sardonyx.load(choosing(then, other), backend=xp)
    assert chosen(X, np.array(True)).tolist() == (-X).tolist()
    assert chosen(X, np.array(False)).tolist() == X.tolist()


def test_a_node_whose_results_have_no_names() -> None:
    idle = model([node("Relu", ["x"], [""]), node("Neg", ["x"], ["y"])], ["x"], ["y"])
    assert load(idle)(X).tolist() == (-X).tolist()


def test_an_absent_input_after_an_absent_output() -> None:
    """The absent output is of floats, and the absent input of integers."""
    nodes = [
        node("TopK", ["x", "one"], ["", "place"]),
        node("Slice", ["place", "zero", "one", "", "one"], ["y"]),
    ]
    numbers = [weight(name, np.array([i])) for i, name in enumerate(("zero", "one"))]
    chosen = load(model(nodes, ["x"], ["y"], numbers))
    assert chosen(X).tolist() == X.argmax(axis=-1, keepdims=True)[:1].tolist()
