"""A model around whatever proto an evaluator gets: a graph, a function, a node."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import helper
from onnx.model_container import ModelContainer

from sardonyx.compat.exceptions import WrongType
from sardonyx.errors import InvalidInput
from sardonyx.graph.loading.read import ReadModel, read_model

# The oldest version of the format in which a model has functions.
IR_VERSION = 10


@dataclass(frozen=True)
class Parts:
    """What an evaluator knows of its proto."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    opsets: Mapping[str, int]
    nodes: tuple[onnx.NodeProto, ...]
    input_types: list[onnx.TypeProto] | None
    output_types: list[onnx.TypeProto] | None
    functions: tuple[onnx.FunctionProto, ...]
    initializers: tuple[str, ...] = ()
    # The proto itself; None if it was read from a file or bytes.
    proto: Any = None
    read: ReadModel | None = None

    @classmethod
    def of(
        cls,
        proto: Any,
        opsets: Mapping[str, int] | None,
        functions: Sequence[onnx.FunctionProto],
    ) -> Parts:
        """Return the parts of a proto, or of the model in a path or bytes."""
        if isinstance(proto, ModelContainer):
            raise WrongType("A ModelContainer is no model: pass its file, or a ModelProto.")
        if isinstance(proto, (str, bytes, os.PathLike)):
            read = read_model(proto)
            parts = cls._of_graph(read.proto.graph, _opsets(read.proto), read.proto.functions)
            return cls(**{**vars(parts), "read": read})
        if isinstance(proto, onnx.ModelProto):
            parts = cls._of_graph(proto.graph, _opsets(proto), proto.functions)
            return cls(**{**vars(parts), "proto": proto})
        if isinstance(proto, onnx.GraphProto):
            if not isinstance(opsets, dict):
                raise WrongType("A graph has no opsets of its own: pass opsets={'': 22}.")
            return cls(**{**vars(cls._of_graph(proto, opsets, functions)), "proto": proto})
        if isinstance(proto, onnx.FunctionProto):
            if opsets is not None:
                raise InvalidInput("A function has opsets of its own: leave opsets out.")
            return cls._of_nodes(proto, _opsets(proto), tuple(proto.node), (*functions, proto))
        if isinstance(proto, onnx.NodeProto):
            newest = onnx.defs.onnx_opset_version()
            own = {proto.domain: 1 if proto.domain else newest, **dict(opsets or {})}
            return cls._of_nodes(proto, own, (proto,), functions)
        raise WrongType(
            f"A {type(proto).__name__} cannot be evaluated: pass a path, bytes, or a ModelProto, "
            "GraphProto, FunctionProto or NodeProto."
        )

    @classmethod
    def _of_graph(
        cls,
        graph: onnx.GraphProto,
        opsets: Mapping[str, int],
        functions: Sequence[onnx.FunctionProto],
    ) -> Parts:
        dense = [tensor.name for tensor in graph.initializer]
        return cls(
            tuple(info.name for info in graph.input),
            tuple(info.name for info in graph.output),
            opsets,
            tuple(graph.node),
            [info.type for info in graph.input],
            [info.type for info in graph.output],
            tuple(functions),
            (*dense, *(sparse.values.name for sparse in graph.sparse_initializer)),
        )

    @classmethod
    def _of_nodes(
        cls,
        proto: onnx.FunctionProto | onnx.NodeProto,
        opsets: Mapping[str, int],
        nodes: tuple[onnx.NodeProto, ...],
        functions: Sequence[onnx.FunctionProto],
    ) -> Parts:
        inputs = tuple(dict.fromkeys(filter(None, proto.input)))
        outputs = tuple(filter(None, proto.output))
        return cls(inputs, outputs, opsets, nodes, None, None, tuple(functions), proto=proto)

    @property
    def takes_attributes(self) -> bool:
        """Whether each call passes attributes, as those of a function do."""
        return isinstance(self.proto, onnx.FunctionProto)

    @property
    def values(self) -> tuple[str, ...]:
        """The names of all values that a call can return."""
        if self.takes_attributes:
            return self.outputs
        computed = (name for node in self.nodes for name in node.output if name)
        return tuple(dict.fromkeys((*self.initializers, *self.inputs, *computed)))

    def proto_of(self, source: Any) -> onnx.ModelProto:
        """Return the proto of a model that `model_with` returned."""
        proto: onnx.ModelProto = source.proto if isinstance(source, ReadModel) else source
        return proto

    def model_with(self, attributes: Mapping[str, Any]) -> ReadModel | onnx.ModelProto:
        """Return the model to load; a function is called with these attributes."""
        if self.read is not None:
            _forget_types(self.read.proto.graph)
            return self.read
        if isinstance(self.proto, onnx.ModelProto):
            copied = onnx.ModelProto()
            copied.CopyFrom(self.proto)
            _forget_types(copied.graph)
            return copied
        if isinstance(self.proto, onnx.GraphProto):
            model = self._model(self.proto, self.opsets)
            _forget_types(model.graph)
            return model
        node = self.proto
        opsets = dict(self.opsets)
        if isinstance(node, onnx.FunctionProto):
            taken = {*node.attribute, *(each.name for each in node.attribute_proto)}
            own = {name: value for name, value in attributes.items() if name in taken}
            opsets.setdefault(node.domain, 1)
            node = helper.make_node(
                node.name, list(node.input), list(node.output), domain=node.domain, **own
            )
        graph = onnx.GraphProto(name="evaluated", node=[node])
        graph.input.extend(onnx.ValueInfoProto(name=name) for name in self.inputs)
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in self.outputs)
        return self._model(graph, opsets)

    def _model(self, graph: onnx.GraphProto, opsets: Mapping[str, int]) -> onnx.ModelProto:
        imports = dict(opsets)
        for function in self.functions:
            imports.setdefault(function.domain, 1)
        return helper.make_model(
            graph,
            ir_version=IR_VERSION,
            opset_imports=[helper.make_opsetid(*entry) for entry in imports.items()],
            functions=list(self.functions),
        )


def _forget_types(graph: onnx.GraphProto) -> None:
    """Drop the declared types of tensors: an evaluator takes arrays of any type and shape."""
    for info in (*graph.input, *graph.output):
        if info.type.HasField("tensor_type"):
            info.ClearField("type")
    del graph.value_info[:]


def _opsets(proto: Any) -> dict[str, int]:
    return {each.domain: each.version for each in proto.opset_import}
