"""ONNX's own backend suite, as cases that pytest can run on any backend."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

from sardonyx.ops import OPS

# Operators that run although none of these has a definition here: by the body the standard gives.
EXPANDED = {
    "AffineGrid",
    "Attention",
    "BlackmanWindow",
    "CenterCropPad",
    "HammingWindow",
    "HannWindow",
    "NegativeLogLikelihoodLoss",
    "RotaryEmbedding",
    "SoftmaxCrossEntropyLoss",
    "SwiGLU",
}


@cache
def node_cases() -> tuple[TestCase, ...]:
    with warnings.catch_warnings():
        # Loading the suite computes its expectations, with overflows and in deprecated ways.
        warnings.simplefilter("ignore")
        return tuple(load_model_tests(kind="node"))


def cases_of_built_operators() -> list[TestCase]:
    """The node cases that need nothing but the operators that have a definition here."""
    return [case for case in node_cases() if operators(case.model.graph) <= set(OPS)]


def cases_by_expansion() -> list[TestCase]:
    """The node cases that also need an operator's expansion into others."""
    expanded = {("", name) for name in EXPANDED}
    wanted = ((case, operators(case.model.graph)) for case in node_cases())
    return [case for case, used in wanted if used & expanded and used <= expanded | set(OPS)]


def operators(graph: onnx.GraphProto) -> set[tuple[str, str]]:
    """Domain and name of each operator in a graph and its subgraphs."""
    used = set()
    for node in graph.node:
        used.add(("" if node.domain == "ai.onnx" else node.domain, node.op_type))
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                used |= operators(inner)
    return used


def feeds_of(case: TestCase, inputs: Sequence[Any]) -> dict[str, Any]:
    """A data set's inputs by name, as arrays; some are stored as protobufs."""
    names = [value.name for value in case.model.graph.input]
    return {name: as_array(value) for name, value in zip(names, inputs, strict=False)}


def as_array(value: Any) -> Any:
    match value:
        case onnx.TensorProto():
            return numpy_helper.to_array(value)
        case onnx.SequenceProto():
            return numpy_helper.to_list(value)
        case onnx.OptionalProto():
            return numpy_helper.to_optional(value)
    return value


def assert_same(found: Any, expected: Any, case: TestCase) -> None:
    """Equal dtype and shape; integers, strings and bits exactly, floats within the tolerance."""
    expected = as_array(expected)
    if expected is None or isinstance(expected, list):
        assert type(found) is type(expected)
        for one, other in zip(found or [], expected or [], strict=True):
            assert_same(one, other, case)
        return
    expected = np.asarray(expected)
    assert isinstance(found, np.ndarray), type(found)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if expected.dtype == object or expected.dtype.kind in "biu":
        np.testing.assert_array_equal(found, expected)
    elif expected.dtype.kind == "V":
        wide = found.astype(np.float32), expected.astype(np.float32)
        np.testing.assert_allclose(*wide, rtol=case.rtol, atol=case.atol)
    else:
        np.testing.assert_allclose(found, expected, rtol=case.rtol, atol=case.atol)
