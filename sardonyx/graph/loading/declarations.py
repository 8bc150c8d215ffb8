"""Declarations of a model: its opsets, and the types and shapes of its inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx

from sardonyx.errors import InvalidModel
from sardonyx.graph.ir import Dimension, ValueInfo
from sardonyx.graph.loading.refusals import invalid
from sardonyx.graph.standard.schema import refuse_future
from sardonyx.graph.standard.types import dtype_of, type_name


def opset_versions(imports: Sequence[onnx.OperatorSetIdProto], where: str) -> dict[str, int]:
    """Return the imported opset version of each domain."""
    importer = f"{where[0].upper()}{where[1:]}"
    opsets: dict[str, int] = {}
    for entry in imports:
        domain = canonical_domain(entry.domain)
        title = f"opset '{domain or 'ai.onnx'}'"
        if opsets.get(domain, entry.version) != entry.version:
            raise InvalidModel(
                f"{importer} imports both versions {opsets[domain]} and {entry.version} of "
                f"{title}: remove one of them."
            )
        if entry.version < 1:
            raise invalid(
                f"{importer} imports version {entry.version} of {title}, but versions start at 1"
            )
        refuse_future(domain, entry.version, where)
        opsets[domain] = int(entry.version)
    return opsets


def canonical_domain(domain: str) -> str:
    """Return the domain, with the empty string for both spellings of ONNX's own."""
    return "" if domain == "ai.onnx" else domain


def value_info(proto: onnx.ValueInfoProto, where: str) -> ValueInfo:
    """Convert the declaration of an input or output."""
    if not proto.name:
        raise invalid(f"An input or output of {where} has no name")
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
                raise InvalidModel(
                    f"'{name}' of {where} is declared with a dimension of {proto.dim_value}: "
                    "declare a size of 0 or more, or a name."
                )
            return int(proto.dim_value)
        case "dim_param":
            return proto.dim_param or None
    return None


def type_text(proto: onnx.TypeProto) -> str | None:
    """Return a type as ONNX writes it, such as `seq(tensor(float))`; None if it is not declared."""
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
