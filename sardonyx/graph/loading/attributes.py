"""Attributes of nodes and functions: plain values, and checks of what a file may get wrong."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

from onnx import AttributeProto

from sardonyx.errors import InvalidModel, SardonyxError
from sardonyx.graph.ir import AttributeReference, Node
from sardonyx.graph.loading.declarations import type_text
from sardonyx.graph.loading.refusals import invalid
from sardonyx.graph.loading.tensors import TensorReader


def plain_value(proto: AttributeProto, reader: TensorReader, where: str) -> Any:
    """Convert the value of an attribute that holds no graphs."""
    try:
        return _CONVERSIONS[proto.type](reader, proto)
    except KeyError:
        raise InvalidModel(
            f"Attribute '{proto.name}' of {where} has the type {proto.type}, which ONNX does not "
            "define: the file is damaged, or newer than the installed onnx."
        ) from None
    except UnicodeDecodeError as error:
        raise InvalidModel(
            f"Attribute '{proto.name}' of {where} is {error.object!r:.100}, which is not valid "
            "UTF-8: encode the string before the export."
        ) from None
    except SardonyxError as error:
        raise type(error)(f"Attribute '{proto.name}' of {where}: {error}") from None


_CONVERSIONS: Mapping[int, Callable[[TensorReader, AttributeProto], Any]] = {
    AttributeProto.FLOAT: lambda _, proto: float(proto.f),
    AttributeProto.INT: lambda _, proto: int(proto.i),
    AttributeProto.STRING: lambda _, proto: proto.s.decode(),
    AttributeProto.FLOATS: lambda _, proto: tuple(proto.floats),
    AttributeProto.INTS: lambda _, proto: tuple(proto.ints),
    AttributeProto.STRINGS: lambda _, proto: tuple(text.decode() for text in proto.strings),
    AttributeProto.TENSOR: lambda reader, proto: reader.dense(proto.t),
    AttributeProto.TENSORS: lambda reader, proto: tuple(map(reader.dense, proto.tensors)),
    AttributeProto.SPARSE_TENSOR: lambda reader, proto: reader.sparse(proto.sparse_tensor),
    AttributeProto.TYPE_PROTO: lambda _, proto: type_text(proto.tp),
}

# The protobuf field that holds an attribute's value, by its type.
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
# Some writers omit zeros and empty lists, but a message in one of these fields is always written.
_ALWAYS_WRITTEN = {"t", "g", "sparse_tensor", "tp"}


def check_fields(proto: AttributeProto, where: str) -> None:
    """Refuse an attribute unless its value is in the one field that its type requires."""
    filled = {field.name for field, _ in proto.ListFields()}.intersection(_FIELDS.values())
    field = None if proto.ref_attr_name else _FIELDS.get(proto.type)
    if filled - {field} or (field in _ALWAYS_WRITTEN and not filled):
        kind = "is a reference"
        if field is not None:
            kind = f"is of type {AttributeProto.AttributeType.Name(proto.type)}"
        raise invalid(
            f"Attribute '{proto.name}' of {where} {kind}, but holds "
            f"{' and '.join(sorted(filled)) or 'nothing'}"
        )


def refuse_undeclared_references(
    nodes: Iterable[Node], declared: Container[str], owner: str
) -> None:
    """Refuse references to attributes that the enclosing function, the owner, does not declare."""
    for node in nodes:
        for name, value in node.attributes.items():
            if isinstance(value, AttributeReference) and value.name not in declared:
                raise invalid(
                    f"Attribute '{name}' of {node.label} ({node.operator}) refers to the attribute "
                    f"'{value.name}' of {owner}"
                )
        for graph in node.subgraphs:
            refuse_undeclared_references(graph.nodes, declared, owner)
