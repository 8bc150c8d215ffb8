"""Checks of nodes and of their results against the standard's schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

import numpy as np
import onnx

from sardonyx.errors import InvalidModel, UnsupportedModel
from sardonyx.graph.ir import AttributeReference, Graph, Node
from sardonyx.graph.standard.operators import AttrType, Signature, Slot, newest_version

_UNBOUNDED = 2**31 - 1


def refuse_future(domain: str, version: int, where: str) -> None:
    """Refuse an opset version that is newer than the installed onnx."""
    newest = newest_version(domain)
    if newest is not None and version > newest:
        raise UnsupportedModel(
            f"{where[0].upper()}{where[1:]} imports opset {version} of '{domain or 'ai.onnx'}', "
            f"but the installed onnx {onnx.__version__} supports versions up to {newest}: upgrade "
            "onnx, or convert the model with onnx.version_converter."
        )


def check_node(node: Node, schema: Signature, opset: int) -> None:
    """Refuse a node whose inputs, outputs or attributes do not fit the operator's schema."""
    if schema.deprecated:
        raise UnsupportedModel(
            f"{node.title(opset)} uses an operator that is deprecated in this opset: convert the "
            "model to an opset that has it."
        )
    _check_count(node, opset, "input", len(node.inputs), schema.input_counts)
    _check_count(node, opset, "output", len(node.outputs), schema.output_counts)
    for slot, name in zip(schema.inputs, node.inputs, strict=False):
        if not name and not slot.optional and not slot.variadic:
            raise InvalidModel(f"{node.title(opset)} needs the input '{slot.name}': connect it.")
    if node.attributes or schema.required:
        _check_attributes(node, schema, opset)


def _check_attributes(node: Node, schema: Signature, opset: int) -> None:
    for name, value in node.attributes.items():
        if name not in schema.attributes:
            where = node.title(opset)
            names = ", ".join(sorted(schema.attributes)) or "none"
            raise InvalidModel(
                f"{where} has the attribute '{name}', but the operator has {names}: remove it."
            )
        if not _fits(value, schema.attributes[name]):
            _refuse_attribute(node.title(opset), name, schema.attributes[name])
    if missing := schema.required.difference(node.attributes):
        raise InvalidModel(f"{node.title(opset)} needs the attribute '{min(missing)}': set it.")


def _check_count(node: Node, opset: int, side: str, count: int, bounds: tuple[int, int]) -> None:
    least, most = bounds
    if not least <= count <= most:
        expected = str(least) if least == most else f"{least} to {most}"
        if most >= _UNBOUNDED:
            expected = f"at least {least}"
        raise InvalidModel(
            f"{node.title(opset)} has {count} {side}s, but the operator takes {expected}."
        )


_ATTRIBUTE_TYPES: Mapping[AttrType, Any] = {
    AttrType.FLOAT: float,
    AttrType.INT: int,
    AttrType.STRING: str,
    AttrType.TENSOR: np.ndarray,
    AttrType.SPARSE_TENSOR: np.ndarray,
    AttrType.GRAPH: Graph,
    AttrType.FLOATS: (tuple, float),
    AttrType.INTS: (tuple, int),
    AttrType.STRINGS: (tuple, str),
}


def check_attribute(where: str, name: str, value: Any, kind: AttrType) -> None:
    """Refuse a value that is not of the attribute's type; references are accepted."""
    if not _fits(value, kind):
        _refuse_attribute(where, name, kind)


def _fits(value: Any, kind: AttrType) -> bool:
    expected = _ATTRIBUTE_TYPES.get(kind)
    if expected is None or isinstance(value, AttributeReference):
        return True
    if isinstance(expected, tuple):
        return isinstance(value, tuple) and all(isinstance(v, expected[1]) for v in value)
    return isinstance(value, expected)


def _refuse_attribute(where: str, name: str, kind: AttrType) -> NoReturn:
    raise InvalidModel(
        f"Attribute '{name}' of {where} must be of type {str(kind).rpartition('.')[2]}."
    )


def bind_types(
    node: Node, schema: Signature, types: Sequence[str | None], opset: int
) -> tuple[str | None, ...]:
    """Refuse input types that the operator does not allow; return the outputs' types.

    An unknown type (None) is accepted; types that depend on it are unknown too.
    """
    result = _bind_types(schema, tuple(types))
    if isinstance(result, _Misfit):
        _refuse_type(node, result, opset)
    bound: tuple[str | None, ...] = result
    return bound[: len(node.outputs)] + bound[-1:] * (len(node.outputs) - len(bound))


def check_result(node: Node, schema: Signature, actual: str, opset: int) -> None:
    """Refuse a result of a type that the operator cannot have at this opset."""
    slot = schema.outputs[0]
    if len(schema.outputs) == 1 and not slot.variadic and not slot.allows(actual):
        allowed = ", ".join(sorted(slot.allowed or ()))
        raise InvalidModel(
            f"{node.title(opset)} cannot return {actual}; this opset allows: {allowed}. Convert "
            "the model to a newer opset, or load it with strict=False."
        )


@dataclass(frozen=True, slots=True)
class _Misfit:
    """An input type that the schema refuses; `bound_by` says which input fixed its variable."""

    slot: Slot
    actual: str
    bound_by: str | None


@cache
def _bind_types(schema: Signature, types: tuple[str | None, ...]) -> Any:
    """Return the outputs' types, or a `_Misfit`."""
    variables: dict[str, tuple[str, str]] = {}
    for i, actual in enumerate(types):
        slot = schema.inputs[min(i, len(schema.inputs) - 1)]
        if actual is None:
            continue
        if not slot.allows(actual):
            return _Misfit(slot, actual, None)
        if slot.variadic and not slot.homogeneous:
            continue
        first, name = variables.setdefault(slot.type, (actual, slot.name))
        if first != actual and _is_variable(slot):
            return _Misfit(slot, actual, f"'{name}' is {first}")
    return tuple(_result_type(slot, variables) for slot in schema.outputs)


def _result_type(slot: Slot, variables: Mapping[str, tuple[str, str]]) -> str | None:
    if slot.variadic and not slot.homogeneous:
        return None
    if slot.type in variables and _is_variable(slot):
        return variables[slot.type][0]
    return next(iter(slot.allowed)) if slot.allowed and len(slot.allowed) == 1 else None


def _is_variable(slot: Slot) -> bool:
    """Whether the slot's type stands for one type throughout, and is not simply a list of types."""
    return not slot.type.startswith(("tensor", "seq", "optional", "map"))


def _refuse_type(node: Node, misfit: _Misfit, opset: int) -> NoReturn:
    where = node.title(opset)
    if misfit.bound_by:
        raise InvalidModel(
            f"{where} needs inputs of one type, but {misfit.bound_by} and '{misfit.slot.name}' is "
            f"{misfit.actual}: cast one of them."
        )
    allowed = ", ".join(sorted(misfit.slot.allowed or ()))
    newer = "convert the model to a newer opset, " if newest_version(node.domain) else ""
    raise InvalidModel(
        f"{where} does not accept {misfit.actual} for '{misfit.slot.name}'; this opset allows: "
        f"{allowed}. Cast the input, {newer}or load it with strict=False."
    )
