"""Results that nothing reads need not be computed: ops are told how many are read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import parser

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.ops.definition import Op
from sardonyx.types import Array, Outputs, OutputsRead

HEAD = '<ir_version: 10, opset_import: ["" : 22, "mine" : 1, "own" : 1]> '
X = np.array([3, 1, 2, 1], np.float32)


def counting(seen: list[int]) -> Op[Any]:
    @sardonyx.op(domain="mine")
    def Parts(xp: Backend, x: Array, *, outputs: OutputsRead) -> tuple[Array, ...]:
        seen.append(outputs)
        return tuple(x + i for i in range(outputs))

    return Parts


GRAPHS = {
    "the first": ("g (float[n] x) => (float[n] y) { a, b, c = mine.Parts(x) y = Neg(a) }", 1),
    "the second": ("g (float[n] x) => (float[n] y) { a, b, c = mine.Parts(x) y = Neg(b) }", 2),
    "an output": ("g (float[n] x) => (float[n] y) { a, b, y = mine.Parts(x) z = Neg(a) }", 3),
    "none": ("g (float[n] x) => (float[n] y) { a, b, c = mine.Parts(x) y = Neg(x) }", 1),
    "without a name": ('g (float[n] x) => (float[n] y) { a, "", c = mine.Parts(x) y = Neg(c) }', 3),
    "in a body": (
        """g (float[n] x, bool t) => (float[n] y) { a, b, c = mine.Parts(x)
        y = If<then_branch = one () => (float[n] d) { d = Neg(b) },
               else_branch = other () => (float[n] e) { e = Neg(x) }> (t) }""",
        2,
    ),
}


@pytest.mark.parametrize(("text", "read"), GRAPHS.values(), ids=GRAPHS)
def test_ops_are_told_how_many_results_are_read(xp: Backend, text: str, read: int) -> None:
    seen: list[int] = []
    proto = parser.parse_model(HEAD + text)
    model = sardonyx.load(proto, backend=xp, ops=[counting(seen)])
    inputs = (X, np.array(True)) if len(proto.graph.input) == 2 else (X,)
    assert model(*inputs).shape == X.shape
    assert set(seen) == {read}


def test_in_a_function_its_own_nodes_decide(xp: Backend) -> None:
    seen: list[int] = []
    model = sardonyx.load(
        parser.parse_model(
            HEAD
            + "g (float[n] x) => (float[n] y) { a, b = own.Two(x) y = Neg(a) }"
            + '<opset_import: ["mine" : 1], domain: "own">'
            + "Two (x) => (p, r) { p, q, r, s = mine.Parts(x) }"
        ),
        backend=xp,
        ops=[counting(seen)],
    )
    np.testing.assert_array_equal(model(X), -X)
    assert set(seen) == {3}


def test_what_is_asked_for_is_read(xp: Backend) -> None:
    seen: list[int] = []
    text = "g (float[n] x) => (float[n] y) { a, b, c = mine.Parts(x) y = Neg(a) }"
    model = sardonyx.load(parser.parse_model(HEAD + text), backend=xp, ops=[counting(seen)])
    np.testing.assert_array_equal(model(X), -X)
    y, captured = model(X, capture=["b", "c"])
    np.testing.assert_array_equal(y, -X)
    np.testing.assert_array_equal(captured["c"], X + 2)
    np.testing.assert_array_equal(model.run(["b"], {"x": X})[0], X + 1)
    np.testing.assert_array_equal(model(X), -X)


def test_all_declared_outputs_are_counted_where_that_matters(xp: Backend) -> None:
    seen: list[int] = []

    @sardonyx.op(domain="mine")
    def Parts(xp: Backend, x: Array, *, outputs: Outputs) -> tuple[Array, ...]:
        seen.append(outputs)
        return tuple(x + i for i in range(outputs))

    text = """g (float[n] x) => (float[n] y, float[2] s)
        { a, b = mine.Parts(x) y = Neg(a) s, t = Split(x) }"""
    model = sardonyx.load(parser.parse_model(HEAD + text), backend=xp, ops=[Parts])
    y, first = model(X)
    np.testing.assert_array_equal(y, -X)
    np.testing.assert_array_equal(first, X[:2])
    assert set(seen) == {2}


UNREAD = {
    "Unique": "values, first, inverse, counts = Unique(x) y = Neg(values)",
    "MaxPool": "r = Reshape(x, to) p, places = MaxPool<kernel_shape = [2]>(r) y = Neg(p)",
    "Dropout": "d, mask = Dropout(x) y = Neg(d)",
}


@pytest.mark.parametrize("body", UNREAD.values(), ids=UNREAD)
def test_operators_leave_out_what_nothing_reads(xp: Backend, body: str) -> None:
    text = f"g (float[n] x) => (float y) <int64[3] to = {{1, 1, 4}}> {{ {body} }}"
    proto = parser.parse_model(HEAD + text)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    names = [name for node in proto.graph.node for name in node.output[1:]]
    model = sardonyx.load(proto, backend=xp)
    values = model(X)
    # The same with all results read.
    same, captured = sardonyx.load(proto, backend=xp)(X, capture=names)
    np.testing.assert_array_equal(values, same)
    assert list(captured) == names
    np.testing.assert_array_equal(model(X[::-1].copy()), sardonyx.load(proto)(X[::-1].copy()))
