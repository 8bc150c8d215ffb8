"""A ModelProto becomes a checked `Source`: plain data that the rest of the house can trust.

Structure is checked here, once: names, order, opsets, functions, attributes. Types and shapes are
checked where they are known, by `types_check` for what the file declares and while tracing for
the rest.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto

from sardonyx.errors import InvalidModel, LimitExceeded, SardonyxError, UnsupportedModel
from sardonyx.graph.ir import (
    AttributeReference,
    Dimension,
    Function,
    FunctionKey,
    Graph,
    Node,
    Source,
    ValueInfo,
)
from sardonyx.graph.loading import devices
from sardonyx.graph.loading.order import in_order
from sardonyx.graph.loading.tensors import decode, decode_sparse
from sardonyx.graph.standard import schema
from sardonyx.graph.standard.types import dtype_of, type_name

DEEPEST_NESTING = 64


def load_source(model: onnx.ModelProto, file: Path | None) -> Source:
    """Check `model` and take it over; external weights are mapped from the folder of its `file`."""
    return _Loader(model, file).source()


def load_function(body: onnx.FunctionProto, opset: int) -> Function:
    """Take over the body that the standard gives an operator."""
    model = onnx.ModelProto()
    model.opset_import.add(domain="", version=opset)
    return _Loader(model, None).function(body)


class _Loader:
    """What holds for the whole file while its parts are taken over."""

    def __init__(self, model: onnx.ModelProto, file: Path | None) -> None:
        self.model = model
        self.file = file
        self.opsets = _opsets(model.opset_import, "the model")
        self.configurations = devices.configurations(model)
        self.depth = 0

    def source(self) -> Source:
        if self.model.ir_version > onnx.IR_VERSION:
            raise UnsupportedModel(
                f"The model has IR version {self.model.ir_version}, and the installed onnx "
                f"{onnx.__version__} knows versions up to {onnx.IR_VERSION}: upgrade onnx."
            )
        if self.model.ir_version < 1:
            raise InvalidModel("The model names no IR version, so it cannot be an ONNX model.")
        if not self.opsets:
            raise InvalidModel("The model imports no opset, so its operators have no meaning.")
        functions = self.functions()
        graph = self.graph(self.model.graph, frozenset())
        if not graph.outputs:
            raise InvalidModel(f"Graph '{graph.name}' has no outputs, so there is nothing to run.")
        return Source(
            graph,
            self.opsets,
            functions,
            self.model.ir_version,
            self.metadata(),
            self.configurations,
        )

    def metadata(self) -> dict[str, str]:
        told = {
            "graph": self.model.graph.name,
            "producer": f"{self.model.producer_name} {self.model.producer_version}".strip(),
            "domain": self.model.domain,
            "description": self.model.doc_string,
            "model_version": str(self.model.model_version or ""),
        }
        properties = {p.key: p.value for p in self.model.metadata_props}
        return {name: text for name, text in told.items() if text} | properties

    def functions(self) -> dict[FunctionKey, Function]:
        functions: dict[FunctionKey, Function] = {}
        for proto in self.model.functions:
            key = (_domain(proto.domain), proto.name, proto.overload)
            if key in functions:
                raise InvalidModel(f"Function '{proto.name}' is defined twice.")
            if not proto.name:
                raise InvalidModel("A function of the model has no name.")
            functions[key] = self.function(proto)
        return functions

    def function(self, proto: onnx.FunctionProto) -> Function:
        where = f"function '{proto.name}'"
        opsets = _opsets(proto.opset_import, where) or self.opsets
        defaults: dict[str, Any] = dict.fromkeys(proto.attribute)
        defaults |= {a.name: self.attribute(a, where, frozenset()) for a in proto.attribute_proto}
        _refuse_doubled(proto.input, f"{where} has two inputs named")
        _refuse_doubled(proto.output, f"{where} has two outputs named")
        if "" in proto.input or "" in proto.output:
            raise InvalidModel(f"An input or output of {where} has no name.")
        known = frozenset(proto.input)
        nodes = self.nodes(proto.node, known, where, in_function=True)
        _refuse_undeclared(nodes, defaults, where)
        made = known.union(*(node.outputs for node in nodes))
        if missing := [name for name in proto.output if name not in made]:
            raise InvalidModel(f"In {where} nothing makes the output '{missing[0]}'.")
        return Function(
            proto.name,
            _domain(proto.domain),
            proto.overload,
            tuple(proto.input),
            tuple(proto.output),
            defaults,
            nodes,
            opsets,
        )

    def graph(
        self, proto: onnx.GraphProto, outer: frozenset[str], *, in_function: bool = False
    ) -> Graph:
        where = f"graph '{proto.name}'"
        self.depth += 1
        if self.depth > DEEPEST_NESTING:
            raise LimitExceeded(f"Subgraphs are nested more than {DEEPEST_NESTING} deep.")
        initializers = self.initializers(proto, where)
        inputs = tuple(_value_info(value, where) for value in proto.input)
        own = [value.name for value in inputs]
        _refuse_doubled(own, f"{where} has two inputs named")
        known = outer.union(own, initializers)
        if shadowed := outer.intersection((*own, *initializers)):
            raise InvalidModel(f"In {where} '{min(shadowed)}' has the name of an outer value.")
        nodes = self.nodes(proto.node, known, where, in_function=in_function)
        outputs = tuple(_value_info(value, where) for value in proto.output)
        made = known.union(*(node.outputs for node in nodes))
        for output in outputs:
            if output.name not in made:
                raise InvalidModel(f"In {where} nothing makes the output '{output.name}'.")
        if not outer:
            _refuse_doubled((o.name for o in outputs), f"{where} has two outputs named")
        self.depth -= 1
        return Graph(proto.name, inputs, outputs, nodes, initializers)

    def initializers(self, proto: onnx.GraphProto, where: str) -> dict[str, Any]:
        dense = [tensor.name for tensor in proto.initializer]
        names = [*dense, *(tensor.values.name for tensor in proto.sparse_initializer)]
        _refuse_doubled(names, f"{where} has two initializers named")
        if "" in names:
            raise InvalidModel(f"An initializer of {where} has no name.")
        arrays = {tensor.name: self.tensor(tensor) for tensor in proto.initializer}
        for sparse in proto.sparse_initializer:
            arrays[sparse.values.name] = self.sparse_tensor(sparse)
        return arrays

    def tensor(self, proto: onnx.TensorProto) -> np.ndarray[Any, Any]:
        if self.file is None:
            return decode(proto, None)
        for entry in proto.external_data:
            if entry.key == "location" and os.path.normpath(entry.value) == self.file.name:
                raise InvalidModel(
                    f"Tensor '{proto.name}' has its data in '{entry.value}', which is the model "
                    "itself: keep external data in a file of its own."
                )
        return decode(proto, self.file.parent)

    def sparse_tensor(self, proto: onnx.SparseTensorProto) -> np.ndarray[Any, Any]:
        return decode_sparse(proto, self.file and self.file.parent)

    def nodes(
        self,
        protos: Iterable[onnx.NodeProto],
        known: frozenset[str],
        where: str,
        *,
        in_function: bool = False,
    ) -> tuple[Node, ...]:
        protos = list(protos)
        made = [name for proto in protos for name in proto.output if name]
        _refuse_doubled(made, f"In {where} two nodes make")
        if redefined := known.intersection(made):
            raise InvalidModel(
                f"In {where} a node makes '{min(redefined)}', which is an input, "
                "an initializer or an outer value already."
            )
        visible = known.union(made)
        earlier = set(known)
        nodes = []
        for proto in protos:
            # A subgraph does not see what comes after it, and may use such names for its own.
            hidden = visible.intersection(_inner_names(proto)).difference(earlier)
            seen = visible - hidden if hidden else visible
            nodes.append(self.node(proto, seen, where, in_function))
            earlier.update(proto.output)
        return in_order(nodes, known, where)

    def node(
        self, proto: onnx.NodeProto, visible: frozenset[str], where: str, in_function: bool
    ) -> Node:
        if not proto.op_type:
            raise InvalidModel(f"In {where} the node '{proto.name}' names no operator.")
        named = f"node '{proto.name}'"
        if not proto.name:
            named = f"node that makes '{next(filter(None, proto.output), '')}'"
        label = f"{named} ({proto.op_type}) of {where}"
        for name in proto.input:
            if name and name not in visible:
                raise InvalidModel(f"The {label} reads '{name}', which nothing makes.")
        _refuse_doubled((a.name for a in proto.attribute), f"The {label} has two attributes named")
        attributes = {
            a.name: self.attribute(a, label, visible, in_function) for a in proto.attribute
        }
        if not in_function:
            _refuse_references(attributes, label)
        return Node(
            proto.op_type,
            _domain(proto.domain),
            proto.overload,
            proto.name,
            tuple(proto.input),
            tuple(proto.output),
            attributes,
            devices.placements(proto, self.configurations, label),
        )

    def attribute(
        self,
        proto: AttributeProto,
        where: str,
        visible: frozenset[str],
        in_function: bool = False,
    ) -> Any:
        _check_content(proto, where)
        if proto.ref_attr_name:
            return AttributeReference(proto.ref_attr_name)
        if proto.type == AttributeProto.GRAPH:
            return self.graph(proto.g, visible, in_function=in_function)
        if proto.type == AttributeProto.GRAPHS:
            return tuple(self.graph(g, visible, in_function=in_function) for g in proto.graphs)
        try:
            return _PLAIN[proto.type](self, proto)
        except KeyError:
            raise InvalidModel(
                f"Attribute '{proto.name}' of {where} has the type {proto.type}, none that "
                "ONNX knows: the file is damaged, or newer than the installed onnx."
            ) from None
        except UnicodeDecodeError as error:
            raise InvalidModel(
                f"Attribute '{proto.name}' of {where} is {error.object!r:.100}, which is no valid "
                "UTF-8, as ONNX wants strings to be: encode it before the export."
            ) from None
        except SardonyxError as error:
            raise type(error)(f"Attribute '{proto.name}' of {where}: {error}") from None


_PLAIN: Mapping[int, Callable[[_Loader, AttributeProto], Any]] = {
    AttributeProto.FLOAT: lambda _, proto: float(proto.f),
    AttributeProto.INT: lambda _, proto: int(proto.i),
    AttributeProto.STRING: lambda _, proto: proto.s.decode(),
    AttributeProto.FLOATS: lambda _, proto: tuple(proto.floats),
    AttributeProto.INTS: lambda _, proto: tuple(proto.ints),
    AttributeProto.STRINGS: lambda _, proto: tuple(text.decode() for text in proto.strings),
    AttributeProto.TENSOR: lambda loader, proto: loader.tensor(proto.t),
    AttributeProto.TENSORS: lambda loader, proto: tuple(map(loader.tensor, proto.tensors)),
    AttributeProto.SPARSE_TENSOR: lambda loader, proto: loader.sparse_tensor(proto.sparse_tensor),
    AttributeProto.TYPE_PROTO: lambda _, proto: type_text(proto.tp),
}


# Where the value of an attribute is, by its type. Of numbers and lists some writers leave out zeros
# and empty ones.
_FIELDS = {
    AttributeProto.FLOAT: "f",
    AttributeProto.INT: "i",
    AttributeProto.STRING: "s",
    AttributeProto.TENSOR: "t",
    AttributeProto.GRAPH: "g",
    AttributeProto.SPARSE_TENSOR: "sparse_tensor",
    AttributeProto.TYPE_PROTO: "tp",
    AttributeProto.FLOATS: "floats",
    AttributeProto.INTS: "ints",
    AttributeProto.STRINGS: "strings",
    AttributeProto.TENSORS: "tensors",
    AttributeProto.GRAPHS: "graphs",
    AttributeProto.SPARSE_TENSORS: "sparse_tensors",
    AttributeProto.TYPE_PROTOS: "type_protos",
}
_NEVER_LEFT_OUT = {"t", "g", "sparse_tensor", "tp"}


def _check_content(proto: AttributeProto, where: str) -> None:
    """Refuse an attribute whose value is not where its type says, or in several places."""
    filled = {field.name for field, _ in proto.ListFields()}.intersection(_FIELDS.values())
    field = None if proto.ref_attr_name else _FIELDS.get(proto.type)
    if filled - {field} or (field in _NEVER_LEFT_OUT and not filled):
        of_type = "is a reference" if field is None else f"is of type {_type_name(proto)}"
        raise InvalidModel(
            f"Attribute '{proto.name}' of {where} {of_type}, but holds "
            f"{' and '.join(sorted(filled)) or 'nothing'}: export the model again."
        )


def _type_name(proto: AttributeProto) -> str:
    return str(AttributeProto.AttributeType.Name(proto.type))


def _inner_names(proto: onnx.NodeProto) -> set[str]:
    """The names of values that the subgraphs of a node make, at any depth."""
    names: set[str] = set()
    nodes = [proto]
    while nodes:
        for attribute in nodes.pop().attribute:
            for graph in (attribute.g, *attribute.graphs):
                names.update(value.name for value in (*graph.input, *graph.initializer))
                names.update(name for node in graph.node for name in node.output)
                nodes.extend(graph.node)
    return names


def type_text(proto: onnx.TypeProto) -> str | None:
    """ONNX's way of writing a type, such as `seq(tensor(float))`; None where it is left open."""
    match proto.WhichOneof("value"):
        case "tensor_type":
            return _element_type(proto.tensor_type.elem_type)
        case "sparse_tensor_type":
            dense = _element_type(proto.sparse_tensor_type.elem_type)
            return dense and f"sparse_{dense}"
        case "sequence_type":
            inner = type_text(proto.sequence_type.elem_type)
            return inner and f"seq({inner})"
        case "optional_type":
            inner = type_text(proto.optional_type.elem_type)
            return inner and f"optional({inner})"
        case "map_type":
            key = _element_type(proto.map_type.key_type) or "tensor(?)"
            value = type_text(proto.map_type.value_type)
            return value and f"map({key[len('tensor(') : -1]},{value})"
    return None


def _element_type(number: int) -> str | None:
    return type_name(dtype_of(number)) if number else None


def _value_info(proto: onnx.ValueInfoProto, where: str) -> ValueInfo:
    if not proto.name:
        raise InvalidModel(f"An input or output of {where} has no name.")
    tensor = proto.type.tensor_type
    dtype = dtype_of(tensor.elem_type) if tensor.elem_type else None
    shape = None
    if tensor.HasField("shape"):
        shape = tuple(_dimension(d, proto.name, where) for d in tensor.shape.dim)
    return ValueInfo(proto.name, type_text(proto.type), dtype, shape)


def _dimension(proto: Any, name: str, where: str) -> Dimension:
    match proto.WhichOneof("value"):
        case "dim_value":
            if proto.dim_value < 0:
                # Some exporters write -1 for a free dimension; anything else is a mistake.
                if proto.dim_value == -1:
                    return None
                raise InvalidModel(f"'{name}' of {where} has a dimension of {proto.dim_value}.")
            return int(proto.dim_value)
        case "dim_param":
            return proto.dim_param or None
    return None


def _opsets(imports: Sequence[onnx.OperatorSetIdProto], where: str) -> dict[str, int]:
    opsets: dict[str, int] = {}
    for entry in imports:
        domain = _domain(entry.domain)
        title = f"opset '{domain or 'ai.onnx'}'"
        if opsets.get(domain, entry.version) != entry.version:
            raise InvalidModel(
                f"{where[0].upper()}{where[1:]} imports versions {opsets[domain]} and "
                f"{entry.version} of {title}: leave one of them."
            )
        if entry.version < 1:
            raise InvalidModel(
                f"{where[0].upper()}{where[1:]} imports version {entry.version} of {title}; "
                "versions begin at 1."
            )
        schema.refuse_future(domain, entry.version, where)
        opsets[domain] = int(entry.version)
    return opsets


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _refuse_references(attributes: Mapping[str, Any], label: str) -> None:
    for name, value in attributes.items():
        if isinstance(value, AttributeReference):
            raise InvalidModel(
                f"Attribute '{name}' of {label} refers to the attribute '{value.name}' "
                "of a function, but the node is in no function."
            )


def _refuse_undeclared(nodes: Iterable[Node], declared: Mapping[str, Any], where: str) -> None:
    """Refuse references to attributes that the function around them does not have."""
    for node in nodes:
        for name, value in node.attributes.items():
            if isinstance(value, AttributeReference) and value.name not in declared:
                raise InvalidModel(
                    f"Attribute '{name}' of {node.label} ({node.operator}) refers to the attribute "
                    f"'{value.name}' of {where}, which has {', '.join(declared) or 'none'}: "
                    "export the model again."
                )
        for graph in node.subgraphs:
            _refuse_undeclared(graph.nodes, declared, where)


def _refuse_doubled(names: Iterable[str], complaint: str) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise InvalidModel(f"{complaint[0].upper()}{complaint[1:]} '{name}'.")
