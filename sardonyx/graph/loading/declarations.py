"""Declarations of a model: its opsets, and the types and shapes of its inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx

from sardonyx.deviations import (
    NAMELESS_DIMENSION,
    NEGATIVE_DIMENSION,
    REPEATED_IMPORT,
    Departure,
)
from sardonyx.errors import InvalidModel
from sardonyx.graph.ir import Dimension, ValueInfo
from sardonyx.graph.loading.refusals import invalid
from sardonyx.graph.standard.operators import newest_version
from sardonyx.graph.standard.schema import refuse_future
from sardonyx.graph.standard.types import dtype_of, type_name
from sardonyx.ops import OPS


def opset_versions(
    imports: Sequence[onnx.OperatorSetIdProto], where: str, departures: list[Departure]
) -> dict[str, int]:
    """Return the imported opset version of each domain, which is that of its last import."""
    importer = f"{where[0].upper()}{where[1:]}"
    opsets: dict[str, int] = {}
    for entry in imports:
        domain = canonical_domain(entry.domain)
        title = f"opset '{domain or 'ai.onnx'}'"
        if opsets.get(domain, entry.version) != entry.version:
            both = f"versions {opsets[domain]} and {entry.version} of {title}"
            departures.append(Departure(REPEATED_IMPORT, f"{importer} imports both {both}"))
        if entry.version < 1:
            raise invalid(
                f"{importer} imports version {entry.version} of {title}, but versions start at 1"
            )
        refuse_future(domain, entry.version, where)
        opsets[domain] = int(entry.version)
    return opsets


def newest_opset(domain: str) -> int | None:
    """Return the newest opset of a domain of sardonyx's operators; None for other domains."""
    newest = newest_version(domain)
    return 1 if newest is None and any(domain == each for each, _ in OPS) else newest


def canonical_domain(domain: str) -> str:
    """Return the domain, with the empty string for both spellings of ONNX's own."""
    return "" if domain == "ai.onnx" else domain


def value_info(proto: onnx.ValueInfoProto, where: str, departures: list[Departure]) -> ValueInfo:
    """Convert the declaration of an input or output."""
    if not proto.name:
        raise invalid(f"An input or output of {where} has no name")
    tensor = proto.type.tensor_type
    dtype = dtype_of(tensor.elem_type) if tensor.elem_type else None
    shape = None
    if tensor.HasField("shape"):
        title = f"'{proto.name}' of {where} is declared with a dimension of"
        shape = tuple(_dimension(d, title, departures) for d in tensor.shape.dim)
    return ValueInfo(proto.name, type_text(proto.type), dtype, shape)


def _dimension(proto: Any, title: str, departures: list[Departure]) -> Dimension:
    match proto.WhichOneof("value"):
        case "dim_value":
            if proto.dim_value < 0:
                if proto.dim_value == -1:
                    departures.append(Departure(NEGATIVE_DIMENSION, f"{title} -1"))
                    return None
                raise InvalidModel(
                    f"{title} {proto.dim_value}: declare a size of 0 or more, or a name."
                )
            return int(proto.dim_value)
        case "dim_param":
            if proto.dim_param == "?":
                departures.append(Departure(NAMELESS_DIMENSION, f"{title} '?'"))
                return None
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
