"""Calls by default: the first run step by step, later ones written out or compiled, all alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest

import sardonyx
from tests.support.onnx_builders import STRING, model, node, value, weight

X = np.arange(12, dtype=np.float32).reshape(3, 4)
TEXTS = np.array(["a", "b", "zz"], object)


def answers(proto: onnx.ModelProto, x: Any) -> list[Any]:
    """What calls with such an input return, the first one first."""
    loaded = sardonyx.load(proto, backend="jax", compile="background")
    results = [loaded(x) for _ in range(3)]
    loaded.compile({"x": x})
    return results + [loaded(x) for _ in range(2)]


@pytest.mark.parametrize("turn", [np.ascontiguousarray, np.asfortranarray, lambda x: x[::-1]])
@pytest.mark.parametrize(
    "last",
    [
        node("Neg", ["t"], ["y"]),
        node("Concat", ["t", "t"], ["y"], axis=0),
        node("Softmax", ["t"], ["y"]),
        node("Clip", ["t", "one"], ["y"]),
    ],
    ids=lambda last: last.op_type,
)
def test_results_lie_by_rows(last: onnx.NodeProto, turn: Callable[[Any], Any]) -> None:
    one = weight("one", np.float32(1))
    nodes = [node("Transpose", ["x"], ["t"]), last]
    first, *others = answers(model(nodes, [value("x", ["n", 4])], ["y"], [one]), turn(X))
    assert first.flags.c_contiguous
    for other in others:
        assert other.flags.c_contiguous
        np.testing.assert_allclose(other, first, rtol=1e-6)


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Reshape", ["x", "column"], ["y"])],
        [node("Expand", ["x", "column"], ["y"])],
        [node("Slice", ["x", "one", "three"], ["y"])],
        [node("Unsqueeze", ["x", "one"], ["u"]), node("Transpose", ["u"], ["y"])],
    ],
    ids=lambda nodes: nodes[0].op_type,
)
def test_strings_belong_to_the_caller(nodes: Sequence[onnx.NodeProto]) -> None:
    places = {"column": [3, 1], "one": [1], "three": [3]}
    weights = [weight(name, np.array(numbers)) for name, numbers in places.items()]
    ends = [value("x", ["n"], STRING)], [value("y", None, STRING)]
    x = TEXTS.copy()
    for result in answers(model(nodes, *ends, weights), x):
        assert result.flags.writeable
        assert result.flags.c_contiguous
        result[...] = "changed"
        np.testing.assert_array_equal(x, TEXTS)
