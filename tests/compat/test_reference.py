"""`ReferenceEvaluator`: one body run with onnx's and with ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import helper
from onnx.reference.op_run import OpRun

import sardonyx.compat
from sardonyx.compat.exceptions import NotImplemented, RefusedCall, WrongType  # noqa: A004
from tests.compat.pairs import assert_equal
from tests.support.onnx_builders import STRING, function, graph, model, node, value, weight
from tests.support.raises import refused

EVALUATORS = (onnx.reference.ReferenceEvaluator, sardonyx.compat.ReferenceEvaluator)
x = np.array([1, 2, 2, 3], np.float32)
CHAIN = model(
    [node("Mul", ["x", "w"], ["h"]), node("Exp", ["h"], ["y"])],
    [value("x", ["n"])],
    ["y"],
    [weight("w", np.float32(-0.5))],
)


class InvAlpha(OpRun):
    op_domain = "mine"

    def _run(self, x: Any, alpha: float | None = None) -> Any:
        alpha = alpha or self.alpha  # type: ignore[attr-defined]
        return (1 / (x + alpha),)


class Counts(OpRun):
    op_domain = "mine"

    def _run(self, x: Any, y: Any = None, names: Any = None) -> Any:
        """The shapes of the results depend on the data, and the second input is optional."""
        values, counts = np.unique(x if y is None else np.concatenate([x, y]), return_counts=True)
        return values, counts * (1 if names is None else len(names))


class Upper(OpRun):
    op_domain = "mine"

    def _run(self, x: Any) -> Any:
        x[...] = [text.upper() for text in x]
        return (x,)


class Relu(OpRun):
    def _run(self, x: Any) -> Any:
        return (np.where(x > 0, x, x / 8),)


def same(body: Callable[[Any], Any]) -> Any:
    expected, found = (body(evaluator) for evaluator in EVALUATORS)
    assert_equal(found, expected)
    return expected


def own(nodes: list[onnx.NodeProto], inputs: Any = ("x",), outputs: Any = ("y",)) -> Any:
    return model(nodes, list(inputs), list(outputs), mine=1)


def test_a_model(tmp_path: Path) -> None:
    path = str(tmp_path / "model.onnx")
    onnx.save(CHAIN, path)
    for proto in (CHAIN, CHAIN.SerializeToString(), path):
        same(lambda kind, proto=proto: kind(proto).run(None, {"x": x}))
        same(lambda kind, proto=proto: kind(proto).run(["h", "y"], {"x": x, "more": x}))
        same(lambda kind, proto=proto: str(kind(proto)))


def test_all_values_by_name() -> None:
    values = [kind(CHAIN).run(None, {"x": x}, intermediate=True) for kind in EVALUATORS]
    assert [set(each) for each in values] == [{"", "x", "w", "h", "y"}] * 2
    for name in ("x", "h", "y"):
        assert_equal(values[1][name], values[0][name])


def test_facts() -> None:
    def body(kind: Any) -> Any:
        evaluator = kind(CHAIN)
        types = [t.SerializeToString() for t in (*evaluator.input_types, *evaluator.output_types)]
        return evaluator.input_names, evaluator.output_names, evaluator.opsets, types

    same(body)


def test_arrays_of_any_type_and_shape() -> None:
    proto = model([node("Exp", ["x"], ["y"])], [value("x", ["n"])], ["y"])
    for array in (x.astype(np.float64), x.reshape(2, 2), x[:0]):
        same(lambda kind, array=array: kind(proto).run(None, {"x": array}))


def test_a_node() -> None:
    same(lambda kind: kind(node("Softmax", ["x"], ["y"], axis=0)).run(None, {"x": x}))
    same(lambda kind: kind(node("Add", ["x", "x"], ["y"])).run(None, {"x": x}))


def test_a_graph_with_functions() -> None:
    twice = function("Twice", [node("Add", ["a", "a"], ["b"])], ["a"], ["b"])
    proto = graph([node("Twice", ["x"], ["y"], domain="mine")], ["x"], ["y"])
    opsets = {"": 18, "mine": 1}

    def body(kind: Any) -> Any:
        by_proto = kind(proto, opsets=opsets, functions=[twice]).run(None, {"x": x})
        return by_proto, kind(proto, opsets=opsets, functions=[kind(twice)]).run(None, {"x": x})

    same(body)
    same(lambda kind: kind(twice).run(None, {"a": x}, attributes={}))


def test_a_function_with_attributes() -> None:
    leaky = helper.make_function(
        "mine", "Leaky", ["a"], ["b"], [node("LeakyRelu", ["a"], ["b"])],
        [helper.make_opsetid("", 18)], ["alpha"],
    )  # fmt: skip
    attribute = leaky.node[0].attribute.add(name="alpha", ref_attr_name="alpha")
    attribute.type = onnx.AttributeProto.FLOAT
    evaluator = sardonyx.compat.ReferenceEvaluator(leaky)
    for alpha in (0.25, 0.5):
        (found,) = evaluator.run(None, {"a": -x}, attributes={"alpha": alpha})
        np.testing.assert_allclose(found, -alpha * x)
    with refused(WrongType, "attributes"):
        evaluator.run(None, {"a": x})


def test_operators_of_ones_own() -> None:
    inverse = own([node("InvAlpha", ["x"], ["y"], domain="mine", alpha=0.5)])
    same(lambda kind: kind(inverse, new_ops=[InvAlpha]).run(None, {"x": x}))
    relu = model([node("Relu", ["x"], ["y"])], ["x"], ["y"])
    same(lambda kind: kind(relu, new_ops=[Relu]).run(None, {"x": -x}))
    text = own([node("Upper", ["x"], ["y"], domain="mine")], [value("x", [None], STRING)], [value("y", [None], STRING)])  # fmt: skip  # noqa: E501
    given = np.array(["a", "b"], object)
    assert_equal(sardonyx.compat.ReferenceEvaluator(text, new_ops=[Upper]).run(None, {"x": given}), [np.array(["A", "B"], object)])  # fmt: skip  # noqa: E501
    assert given.tolist() == ["a", "b"]


class Broken(OpRun):
    op_domain = "mine"

    def _run(self, x: Any) -> Any:
        return x


def test_their_errors_pass_unchanged() -> None:
    proto = own([node("Broken", ["x"], ["y"], domain="mine")])
    for kind in EVALUATORS:
        with pytest.raises(TypeError, match="does not return a tuple"):
            kind(proto, new_ops=[Broken]).run(None, {"x": x})


def test_their_shapes_may_depend_on_data() -> None:
    counted = own(
        [
            node("Counts", ["x"], ["v", "c"], domain="mine", names=["a", "b"]),
            node("Counts", ["x", "v"], ["w", "d"], domain="mine"),
            node("Neg", ["w"], ["y"]),
        ],
        outputs=["c", "d", "y"],
    )
    evaluators = [kind(counted, new_ops=[Counts]) for kind in EVALUATORS]
    for array in (x, x[:1], np.arange(6, dtype=np.float32), x):
        expected, found = (evaluator.run(None, {"x": array}) for evaluator in evaluators)
        assert_equal(found, expected)


def test_what_it_prints(capsys: pytest.CaptureFixture[str]) -> None:
    sardonyx.compat.ReferenceEvaluator(CHAIN, verbose=3).run(None, {"x": x})
    printed = capsys.readouterr().out
    assert "Mul(x, w) -> h\n + h: float32:(4,) in" in printed
    assert " +I x: float32:(4,) in [1.0, 3.0]" in printed
    sardonyx.compat.ReferenceEvaluator(CHAIN, verbose=1).run(None, {"x": x})
    assert capsys.readouterr().out == ""


def test_errors() -> None:
    ours = sardonyx.compat.ReferenceEvaluator
    evaluator = ours(CHAIN)
    for names, feeds in ((["q"], {"x": x}), (None, {})):
        for kind in EVALUATORS:
            with pytest.raises(RuntimeError):
                kind(CHAIN).run(names, feeds)
    with refused(RefusedCall, "'q'", "x, h, y"):
        evaluator.run(["q"], {"x": x})
    for wrong in (5, None, [CHAIN]):
        for kind in EVALUATORS:
            with pytest.raises(TypeError):
                kind(wrong)
    for kind in EVALUATORS:
        with pytest.raises(ValueError, match="opsets"):
            kind(CHAIN, opsets={"": 18})
        with pytest.raises(TypeError):
            kind(CHAIN.graph)
    with refused(WrongType, "OpRun"):
        ours(CHAIN, new_ops=[int])
    with refused(WrongType, "FunctionProto"):
        ours(CHAIN.graph, opsets={"": 18}, functions=[5])
    branch = graph([node("Neg", ["x"], ["z"])], [], ["z"])
    nested = own([node("InvAlpha", ["x"], ["y"], domain="mine", body=branch)])
    with refused(NotImplemented, "subgraph"):
        ours(nested, new_ops=[InvAlpha])


def test_other_backends() -> None:
    evaluator = sardonyx.compat.ReferenceEvaluator(CHAIN, backend="jax")
    np.testing.assert_allclose(evaluator.run(None, {"x": x})[0], np.exp(x * np.float32(-0.5)))
