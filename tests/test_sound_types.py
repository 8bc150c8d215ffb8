"""Types that contradict the standard: refused alike everywhere, and at load where possible."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.errors import InvalidInput, InvalidModel, LimitExceeded
from tests.support.onnx_builders import (
    BOOL,
    FLOAT,
    INT64,
    changed,
    function,
    graph,
    model,
    node,
    value,
    weight,
)
from tests.support.raises import refused

X = np.array([-1.5, 2.5], np.float32)
UNTYPED = onnx.ValueInfoProto(name="y")


def branch(*nodes: onnx.NodeProto, outputs: int = 1) -> onnx.GraphProto:
    names = [name for one in nodes for name in one.output][-outputs:]
    return graph(nodes, [], [onnx.ValueInfoProto(name=name) for name in names])


def choice(
    then: onnx.GraphProto,
    otherwise: onnx.GraphProto,
    *,
    dtype: int | None = FLOAT,
    condition: onnx.ValueInfoProto | onnx.TensorProto | None = None,
    outputs: int = 1,
) -> onnx.ModelProto:
    """A model of an If called 'choice', with x of some type and perhaps a condition as inputs."""
    x = onnx.ValueInfoProto(name="x") if dtype is None else value("x", None, dtype)
    names = [f"y{i}" for i in range(outputs)]
    chosen = node("If", ["c"], names, name="choice", then_branch=then, else_branch=otherwise)
    given = value("c", None, BOOL) if condition is None else condition
    is_weight = isinstance(given, onnx.TensorProto)
    return model(
        [chosen],
        [x] if is_weight else [x, given],
        [onnx.ValueInfoProto(name=name) for name in names],
        [given] if is_weight else [],
    )


RELU, NEG = branch(node("Relu", ["x"], ["a"])), branch(node("Neg", ["x"], ["b"]))
TO_INTEGERS = branch(node("Cast", ["x"], ["n"], to=INT64), node("Neg", ["n"], ["b"]))
SHAPE = branch(node("Shape", ["x"], ["b"]))
# Not of floats, and not of anything.
NOT = branch(node("Not", ["x"], ["b"], name="wrong"))

# -- If -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3,), (0,), (2, 1)])
@pytest.mark.parametrize("known", [True, False])
def test_one_condition(xp: Backend, shape: tuple[int, ...], known: bool) -> None:
    condition = np.ones(shape, np.bool_)
    made = choice(RELU, NEG, condition=weight("c", condition) if known else None)
    with refused(InvalidInput, "'choice'", "cond has shape", str(list(shape)), "one element"):
        sardonyx.load(made, backend=xp)(*[X] if known else [X, condition])


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_condition_may_have_axes(xp: Backend, shape: tuple[int, ...]) -> None:
    loaded = sardonyx.load(choice(RELU, NEG), backend=xp)
    for _ in range(2):
        assert loaded(X, np.full(shape, True)).tolist() == [0, 2.5]
        assert loaded(X, np.full(shape, False)).tolist() == [1.5, -2.5]


@pytest.mark.parametrize(
    ("outputs", "otherwise"),
    [
        (1, branch(node("Relu", ["x"], ["b"]), node("Neg", ["x"], ["c2"]), outputs=2)),
        (2, NEG),
        (2, branch(node("Relu", ["x"], ["b"]), node("Neg", ["x"], ["c2"]), outputs=2)),
    ],
)
@pytest.mark.parametrize("strict", [True, False])
def test_branches_have_as_many_outputs_as_the_node(
    xp: Backend, outputs: int, otherwise: onnx.GraphProto, strict: bool
) -> None:
    made = choice(RELU, otherwise, outputs=outputs)
    with refused(InvalidModel, "'choice'", f"{outputs} outputs", "branches return 1 and"):
        sardonyx.load(made, backend=xp, strict=strict)


def test_branches_in_a_function_have_as_many_outputs(xp: Backend) -> None:
    chosen = node("If", ["c"], ["b", "b2"], name="choice", then_branch=RELU, else_branch=NEG)
    inner = function("Inner", [chosen], ["x", "c"], ["b", "b2"])
    made = model(
        [node("Inner", ["x", "c"], ["y", "z"], domain="mine")],
        ["x", value("c", [], BOOL)],
        ["y", "z"],
        functions=[inner],
        mine=1,
    )
    with refused(InvalidModel, "'choice'", "2 outputs"):
        sardonyx.load(made, backend=xp)


def test_branches_make_one_type(xp: Backend) -> None:
    with refused(InvalidModel, "'choice'", "float32 in then_branch, but int64 in else_branch"):
        sardonyx.load(choice(RELU, SHAPE), backend=xp)
    # The type of x is known only at the call.
    loaded = sardonyx.load(choice(RELU, SHAPE, dtype=None), backend=xp)
    with refused(InvalidModel, "'choice'", "float32 in then_branch, but int64 in else_branch"):
        loaded(X, np.array(True))
    assert sardonyx.load(choice(RELU, SHAPE), backend=xp, strict=False)(
        X, np.array(False)
    ).tolist() == [2]


# -- branches that are not taken ------------------------------------------------------------------


@pytest.mark.parametrize("known", [True, False])
def test_a_branch_that_is_not_taken_is_checked(xp: Backend, known: bool) -> None:
    condition = weight("c", np.array(True)) if known else None
    with refused(InvalidModel, "'wrong'", "Not", "tensor(float)"):
        sardonyx.load(choice(RELU, NOT, condition=condition), backend=xp)
    loaded = sardonyx.load(choice(RELU, NOT, dtype=None, condition=condition), backend=xp)
    for _ in range(2):
        with refused(InvalidModel, "'wrong'", "Not", "tensor(float)"):
            loaded(*[X] if known else [X, np.array(True)])


def test_a_branch_of_a_branch_is_checked(xp: Backend) -> None:
    wrong = branch(node("Not", ["x"], ["deep"], name="wrong"))
    right = branch(node("Neg", ["x"], ["deeper"]))
    inner = node("If", ["c"], ["b"], name="inner", then_branch=wrong, else_branch=right)
    made = choice(RELU, branch(inner), dtype=None)
    with refused(InvalidModel, "'wrong'", "tensor(float)"):
        sardonyx.load(made, backend=xp)(X, np.array(True))


def test_a_branch_in_a_function_is_checked(xp: Backend) -> None:
    chosen = node("If", ["c"], ["b9"], name="choice", then_branch=RELU, else_branch=NOT)
    inner = function("Inner", [chosen], ["x", "c"], ["b9"])
    made = model(
        [node("Inner", ["x", "c"], ["y"], domain="mine")],
        [onnx.ValueInfoProto(name="x"), value("c", [], BOOL)],
        ["y"],
        functions=[inner],
        mine=1,
    )
    loaded = sardonyx.load(made, backend=xp)
    with refused(InvalidModel, "'wrong'", "tensor(float)"):
        loaded(X, np.array(True))
    relaxed = sardonyx.load(made, backend=xp, strict=False)
    assert relaxed(X, np.array(True)).tolist() == [0, 2.5]


def test_the_body_of_a_loop_without_iterations_is_checked(xp: Backend) -> None:
    body = graph(
        [
            node("Not", ["s"], ["t"], name="wrong"),
            node("Identity", ["c"], ["c2"]),
        ],
        [onnx.ValueInfoProto(name=name) for name in ("i", "c", "s")],
        [onnx.ValueInfoProto(name=name) for name in ("c2", "t")],
    )
    body.node[0].input[0] = "x"
    made = model(
        [node("Loop", ["m", "", "x"], ["y"], name="loop", body=body)],
        [onnx.ValueInfoProto(name="x")],
        [UNTYPED],
        [weight("m", np.array(0))],
    )
    with refused(InvalidModel, "'wrong'", "tensor(float)"):
        sardonyx.load(made, backend=xp)(X)


@pytest.mark.parametrize("known", [True, False])
def test_a_branch_that_does_not_fit_this_shape_is_let_pass(xp: Backend, known: bool) -> None:
    """As exporters write them: a squeeze of an axis that is of size one in the other case."""
    squeezed = branch(node("Squeeze", ["x", "axes"], ["b"]))
    condition = weight("c", np.array(True)) if known else None
    made = choice(RELU, squeezed, condition=condition)
    made.graph.initializer.append(weight("axes", np.array([0])))
    loaded = sardonyx.load(made, backend=xp)
    for _ in range(2):
        assert loaded(*[X] if known else [X, np.array(True)]).tolist() == [0, 2.5]


def test_many_branches_are_looked_at_once(xp: Backend) -> None:
    """A loop that is walked through looks at the branches of its body in its first iteration."""
    steps = [node("Neg", [f"n{i}" if i else "x"], [f"n{i + 1}"]) for i in range(500)]
    long = branch(*steps)
    body = graph(
        [
            node("If", ["c"], ["t"], then_branch=RELU, else_branch=long),
            node("Concat", ["s", "t"], ["s2"], axis=0),
            node("Identity", ["c"], ["c2"]),
        ],
        [value("i", [], INT64), value("c", [], BOOL), value("s")],
        [value("c2", [], BOOL), value("s2")],
    )
    made = model(
        [node("Loop", ["m", "", "x"], ["y"], body=body)],
        ["x"],
        ["y"],
        [weight("m", np.array(400))],
    )
    began = time.process_time()
    if xp.name == "numpy":
        assert sardonyx.load(made, backend=xp)(X).shape == (802,)
        assert time.process_time() - began < 3


# -- Loop -----------------------------------------------------------------------------------------


def loop(
    going: onnx.NodeProto, *, trips: int | None = None, cond: Any = None, typed: bool = False
) -> onnx.ModelProto:
    """Adds x to itself; `going` makes 'c2' of the iteration 'i', the condition 'c' or 's'."""
    body = graph(
        [node("Add", ["s", "s"], ["s2"]), going],
        [value("i", [], INT64), value("c", [], BOOL), value("s")],
        [onnx.ValueInfoProto(name="c2"), value("s2")],
    )
    weights = [weight("cond", np.asarray(cond))] if cond is not None else []
    inputs = ["m" if trips is None else "trips", "cond" if cond is not None else "", "x"]
    if trips is not None:
        weights.append(weight("trips", np.array(trips)))
    return model(
        [node("Loop", inputs, ["y"], name="loop", body=body)],
        [value("x")] if trips is not None else [value("m", None, INT64), value("x")],
        ["y"],
        weights,
    )


@pytest.mark.parametrize("trips", [3, 30, None])
@pytest.mark.parametrize("strict", [True, False])
def test_the_condition_of_a_body_is_boolean(xp: Backend, trips: int | None, strict: bool) -> None:
    floating = node("Cast", ["i"], ["c2"], to=FLOAT)
    summed = node("ReduceSum", ["s"], ["c2"], keepdims=0)
    given = [X] if trips else [np.array(20), X]
    for going, is_known in ((floating, False), (summed, True)):
        with refused(
            InvalidModel if is_known and strict else InvalidInput,
            "'loop'",
            "condition",
            "float32",
            "bool",
        ):
            made = loop(going, trips=trips, cond=True)
            sardonyx.load(made, backend=xp, strict=strict)(*given)


@pytest.mark.parametrize("trips", [3, 30, None])
def test_the_condition_of_a_body_is_one(xp: Backend, trips: int | None) -> None:
    several = node("Greater", ["s", "s"], ["c2"])
    given = [X] if trips else [np.array(20), X]
    with refused(InvalidInput, "'loop'", "its body returns has shape", "[2]", "one element"):
        sardonyx.load(loop(several, trips=trips, cond=True), backend=xp)(*given)


@pytest.mark.parametrize("cond", [[True, True], np.ones(0, np.bool_)])
def test_a_loop_begins_with_one_condition(xp: Backend, cond: Any) -> None:
    made = loop(node("Identity", ["c"], ["c2"]), trips=3, cond=cond)
    with refused(InvalidInput, "'loop'", "cond has shape", "one element"):
        sardonyx.load(made, backend=xp)(X)


@pytest.mark.parametrize("count", [np.array([2, 2]), np.ones(0, np.int64)])
def test_a_loop_has_one_trip_count(xp: Backend, count: Any) -> None:
    made = loop(node("Identity", ["c"], ["c2"]))
    with refused(InvalidInput, "'loop'", "M has shape", "one element"):
        sardonyx.load(made, backend=xp)(count, X)


def test_the_floats_of_a_condition_are_refused_at_load(xp: Backend) -> None:
    made = loop(node("Identity", ["c"], ["c2"]), trips=3, cond=np.float32(1))
    with refused(InvalidModel, "'loop'", "tensor(float)", "cond"):
        sardonyx.load(made, backend=xp)


def test_a_body_takes_and_makes_what_it_carries(xp: Backend) -> None:
    made = loop(node("Identity", ["c"], ["c2"]), trips=3)
    made.graph.node[0].attribute[0].g.input.pop()
    made.graph.node[0].attribute[0].g.node[0].input[:] = ["x", "x"]
    with refused(InvalidModel, "'loop'", "2 inputs", "needs 3"):
        sardonyx.load(made, backend=xp)
    made = loop(node("Identity", ["c"], ["c2"]), trips=3)
    made.graph.node[0].attribute[0].g.output.pop()
    with refused(InvalidModel, "'loop'", "1 outputs", "1 carried values"):
        sardonyx.load(made, backend=xp)
    made = loop(node("Identity", ["c"], ["c2"]), trips=3)
    made.graph.node[0].output.append("z")
    with refused(InvalidModel, "'loop'", "2 outputs"):
        sardonyx.load(made, backend=xp)


# -- attributes -----------------------------------------------------------------------------------


def with_function(
    inner: onnx.FunctionProto, *more: onnx.FunctionProto, **attributes: Any
) -> onnx.ModelProto:
    call = node(inner.name, ["x"], ["y"], name="call", domain="mine", **attributes)
    return model([call], ["x"], ["y"], functions=[inner, *more], mine=1)


def referring(operator: str, attribute: str, to: str, kind: int, **options: Any) -> onnx.NodeProto:
    made = node(operator, ["a"], ["b"], name="inner", **options)
    made.attribute.add(name=attribute, ref_attr_name=to, type=kind)
    return made


FLATTEN = function("F", [referring("Flatten", "axis", "k", AttributeProto.INT)], "a", "b", ["k"])


@pytest.mark.parametrize("given", [1.9, 1.0, "one", [1], weight("t", np.array(1))])
def test_a_reference_has_the_type_of_what_reads_it(xp: Backend, given: Any) -> None:
    assert sardonyx.load(with_function(FLATTEN, k=1), backend=xp)(X[None]).shape == (1, 2)
    with refused(InvalidModel, "'k'", "'call'", "INT"):
        sardonyx.load(with_function(FLATTEN, k=given), backend=xp)


def test_a_reference_through_two_functions(xp: Backend) -> None:
    call = referring("F", "k", "j", AttributeProto.INT, domain="mine")
    outer = function("Outer", [call], ["a"], ["b"], ["j"])
    assert sardonyx.load(with_function(outer, FLATTEN, j=1), backend=xp)(X[None]).shape == (1, 2)
    with refused(InvalidModel, "'j'", "'call'", "INT"):
        sardonyx.load(with_function(outer, FLATTEN, j=1.9), backend=xp)


def test_a_default_has_the_type_of_what_reads_it(xp: Backend) -> None:
    inner = function("F", [referring("Flatten", "axis", "k", AttributeProto.INT)], ["a"], ["b"])
    inner.attribute_proto.add(name="k", type=AttributeProto.FLOAT, f=1.9)
    with refused(InvalidModel, "'k'", "function 'F'", "INT"):
        sardonyx.load(with_function(inner), backend=xp)


def test_a_reference_in_a_branch(xp: Backend) -> None:
    inner = branch(referring("Flatten", "axis", "k", AttributeProto.INT))
    inner.node[0].input[0] = "a"
    always = node("Constant", [], ["c"], value=weight("c", np.array(True)))
    other = branch(node("Identity", ["a"], ["b2"]))
    chosen = node("If", ["c"], ["b3"], then_branch=inner, else_branch=other)
    made = function("F", [always, chosen], ["a"], ["b3"], ["k"])
    assert sardonyx.load(with_function(made, k=1), backend=xp)(X[None]).shape == (1, 2)
    with refused(InvalidModel, "'k'", "'call'", "INT"):
        sardonyx.load(with_function(made, k=1.9), backend=xp)
    undeclared = function("F", [always, chosen], ["a"], ["b3"], ["other"])
    with refused(InvalidModel, "'inner'", "'k'", "function 'F'", "other"):
        sardonyx.load(with_function(undeclared), backend=xp)


def test_a_reference_to_what_is_not_declared(xp: Backend) -> None:
    inner = function("F", [referring("Flatten", "axis", "k", AttributeProto.INT)], ["a"], ["b"])
    with refused(InvalidModel, "'inner'", "'axis'", "'k'", "function 'F'", "none"):
        sardonyx.load(with_function(inner), backend=xp)


@sardonyx.op(domain="mine")
def Shifted(xp: Backend, x: Any, *, by: int) -> Any:
    return x + by


@pytest.mark.parametrize("given", [1.9, float("nan"), float("inf")])
def test_an_own_operator_gets_whole_numbers(xp: Backend, given: float) -> None:
    made = model([node("Shifted", ["x"], ["y"], name="it", domain="mine", by=given)], ["x"], ["y"])
    made.opset_import.add(domain="mine", version=1)
    with refused(InvalidInput, "'it'", "'by'", "whole number"):
        sardonyx.load(made, backend=xp, ops=[Shifted])(X)


def attribute_of(change: Callable[[AttributeProto], Any]) -> onnx.ModelProto:
    flat = node("Flatten", ["x"], ["y"], name="flat", axis=1)
    return changed(model([flat], ["x"], ["y"]), lambda m: change(m.graph.node[0].attribute[0]))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: (a.ClearField("i"), setattr(a, "f", 1.9)), ["INT", "holds f"]),
        (lambda a: setattr(a, "f", 1.9), ["INT", "f and i"]),
        (lambda a: a.ints.append(1), ["INT", "i and ints"]),
        (lambda a: a.g.node.add(), ["INT", "g and i"]),
        (lambda a: setattr(a, "type", AttributeProto.FLOAT), ["FLOAT", "holds i"]),
        (lambda a: setattr(a, "type", AttributeProto.GRAPH), ["GRAPH", "holds i"]),
        (
            lambda a: (a.ClearField("i"), setattr(a, "type", AttributeProto.GRAPH)),
            ["GRAPH", "nothing"],
        ),
        (
            lambda a: (a.ClearField("i"), setattr(a, "type", AttributeProto.TENSOR)),
            ["TENSOR", "nothing"],
        ),
        (lambda a: setattr(a, "ref_attr_name", "k"), ["reference", "holds i"]),
    ],
)
def test_an_attribute_is_where_its_type_says(change: Any, words: list[str]) -> None:
    with refused(InvalidModel, "'axis'", "'flat'", *words):
        sardonyx.load(attribute_of(change), backend="numpy")
    with refused(InvalidModel, "'axis'", "'flat'", *words):
        sardonyx.load(attribute_of(change).SerializeToString(), backend="numpy")


def test_a_zero_may_be_left_out() -> None:
    made = attribute_of(lambda a: a.ClearField("i"))
    assert sardonyx.load(made, backend="numpy")(X[None]).shape == (1, 2)


# -- single operators -----------------------------------------------------------------------------


def test_mod_of_floats_is_refused_at_load(xp: Backend) -> None:
    made = model([node("Mod", ["x", "x"], ["y"], name="rest")], ["x"], ["y"])
    with refused(InvalidModel, "'rest'", "fmod", "float32"):
        sardonyx.load(made, backend=xp)
    rest = branch(node("Mod", ["x", "x"], ["b"], name="rest"))
    made = choice(branch(node("Abs", ["x"], ["a"])), rest, dtype=None)
    loaded = sardonyx.load(made, backend=xp)
    with refused(InvalidModel, "'rest'", "fmod", "float32"):
        loaded(X, np.array(True))
    assert loaded(np.array([-3, 5]), np.array(False)).tolist() == [0, 0]


@pytest.mark.parametrize("size", [2, 2**24 + 1])
def test_a_tensor_of_equal_strings_is_refused(xp: Backend, size: int) -> None:
    text = helper.make_tensor("value", TensorProto.STRING, [1], ["a"])
    constant = node("ConstantOfShape", ["s"], ["c"], name="text", value=text)
    last = node("Shape", ["c"], ["y"])
    made = model([constant, last], [], [UNTYPED], [weight("s", np.array([size]))])
    with refused(InvalidModel, "'text'", "tensor(string)"):
        sardonyx.load(made, backend=xp)
    relaxed = sardonyx.load(made, backend="numpy", strict=False)
    assert np.asarray(relaxed()).tolist() == [size]


def test_a_hundred_thousand_axes_are_refused_soon(xp: Backend) -> None:
    axes = weight("axes", np.arange(100_000))
    made = model([node("Unsqueeze", ["x", "axes"], ["y"], name="many")], ["x"], ["y"], [axes])
    began = time.process_time()
    with pytest.raises((InvalidInput, LimitExceeded), match="'many'"):
        sardonyx.load(made, backend=xp)(X)
    assert time.process_time() - began < 5


# -- text -----------------------------------------------------------------------------------------


def every_text() -> onnx.ModelProto:
    made = model(
        [node("Add", ["x", "the_weight"], ["y"], doc_string="the_node_text")],
        ["x"],
        ["y"],
        [weight("the_weight", np.ones(2, np.float32))],
    )
    made.doc_string = "the_model_text"
    made.graph.doc_string = "the_graph_text"
    made.graph.input[0].doc_string = "the_input_text"
    tensor = made.graph.initializer[0]
    tensor.doc_string = "the_tensor_text"
    tensor.metadata_props.add(key="the_tensor_key", value="the_tensor_value")
    made.graph.node[0].metadata_props.add(key="the_node_key", value="the_node_value")
    made.graph.metadata_props.add(key="the_graph_key", value="the_graph_value")
    made.graph.input[0].type.denotation = "the_denotation"
    made.graph.input[0].type.tensor_type.shape.dim.add(denotation="the_size")
    return made


TEXTS = (
    "node_text model_text graph_text input_text tensor_text tensor_key tensor_value node_key "
    "node_value graph_key graph_value denotation size"
)


@pytest.mark.parametrize("text", TEXTS.split())
def test_every_text_is_utf8(text: str) -> None:
    content = every_text().SerializeToString()
    assert content.count(f"the_{text}".encode()) == 1
    sardonyx.load(content, backend="numpy")
    with refused(InvalidModel, "UTF-8", f"__{text}"):
        damaged = content.replace(f"the_{text}".encode(), b"\xff\xfe__" + text.encode())
        sardonyx.load(damaged, backend="numpy")
