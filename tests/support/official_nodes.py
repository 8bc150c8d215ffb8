"""ONNX's cases of one node, as calls of an operator with arrays."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import onnx
from onnx import numpy_helper

import sardonyx
from tests.support.official import EXCLUDED, node_tests


class NodeCase(NamedTuple):
    """One call: the operator's function, its inputs (None if left out) and what is expected."""

    name: str
    model: onnx.ModelProto
    inputs: list[Any]
    expected: list[Any]

    @property
    def node(self) -> onnx.NodeProto:
        return self.model.graph.node[0]

    def namespace(self) -> Any:
        opsets = {entry.domain: entry.version for entry in self.model.opset_import}
        domains = {"ml": "ai.onnx.ml", "training": "ai.onnx.preview.training"}
        others = {k: opsets[d] for k, d in domains.items() if d in opsets}
        whole = sardonyx.opset(opsets.get("", onnx.defs.onnx_opset_version()), **others)
        by_domain = {"": whole, "ai.onnx.ml": whole.ml, "ai.onnx.preview.training": whole.training,
                     "ai.onnx.preview": whole.preview}  # fmt: skip
        return by_domain[self.node.domain]

    def call(self, *arrays: Any) -> list[Any]:
        """The named outputs of the operator, on the arrays of the graph's inputs."""
        by_name = dict(zip([v.name for v in self.model.graph.input], arrays, strict=True))
        inputs = [by_name[name] if name else None for name in self.node.input]
        attributes = {a.name: self._value(a) for a in self.node.attribute}
        count = len(self.node.output)
        function = getattr(self.namespace(), self.node.op_type)
        most = onnx.defs.get_schema(
            self.node.op_type, self.namespace().version, self.node.domain
        ).max_output
        named = {"outputs": count} if most > 1 else {}
        found = function(*inputs, **named, **attributes)
        values = list(found) if count > 1 else [found]
        return [v for v, name in zip(values, self.node.output, strict=True) if name]

    @staticmethod
    def _value(attribute: onnx.AttributeProto) -> Any:
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            return value.decode()
        if isinstance(value, list):
            return [v.decode() if isinstance(v, bytes) else v for v in value]
        return value


@cache
def node_cases() -> tuple[NodeCase, ...]:
    """All cases of one node without subgraphs."""
    return tuple(
        NodeCase(case.name, case.model, list(map(as_array, inputs)), list(map(as_array, expected)))
        for case in node_tests()
        if case.name not in EXCLUDED and is_plain(case.model)
        for inputs, expected in case.data_sets[:1]
    )


def is_plain(model: onnx.ModelProto) -> bool:
    graph = model.graph
    if len(graph.node) != 1 or graph.initializer or model.functions:
        return False
    return all(a.type != onnx.AttributeProto.GRAPH for a in graph.node[0].attribute)


def as_array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value
