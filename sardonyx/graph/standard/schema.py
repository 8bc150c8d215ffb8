"""Operator schemas of the ONNX standard, and checks of nodes against them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn, TypeAlias

import numpy as np
import onnx
from onnx.defs import OpSchema

from sardonyx.errors import InvalidModel, UnsupportedModel
from sardonyx.graph.ir import AttributeReference, Graph, Node

AttrType: TypeAlias = OpSchema.AttrType
_UNBOUNDED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Slot:
    """One formal input or output; `type` is a type, or the type variable that stands for it.

    If `allowed` is None, the op itself refuses types that it does not have.
    """

    name: str
    type: str
    allowed: frozenset[str] | None
    optional: bool
    variadic: bool
    homogeneous: bool

    def allows(self, actual: str) -> bool:
        allowed = self.allowed
        return allowed is None or actual in allowed or f"optional({actual})" in allowed


@dataclass(frozen=True, eq=False, slots=True)
class Signature:
    """The schema of an operator at one version."""

    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    attributes: Mapping[str, AttrType]
    required: frozenset[str]
    input_counts: tuple[int, int]
    output_counts: tuple[int, int]
    deprecated: bool


def newest_version(domain: str) -> int | None:
    """Return the newest version of a domain in the installed onnx; None for an unknown domain."""
    return _newest_of_others().get(domain) if domain else _newest_of_onnx()


_newest_of_onnx = cache(onnx.defs.onnx_opset_version)


@cache
def _newest_of_others() -> Mapping[str, int]:
    """Return the newest version by domain. Called only when needed: it takes 20 ms."""
    newest: dict[str, int] = {}
    for entry in onnx.defs.get_all_schemas_with_history():
        newest[entry.domain] = max(newest.get(entry.domain, 0), entry.since_version)
    return newest


def refuse_future(domain: str, version: int, where: str) -> None:
    """Refuse an opset version that is newer than the installed onnx."""
    newest = newest_version(domain)
    if newest is not None and version > newest:
        raise UnsupportedModel(
            f"{where[0].upper()}{where[1:]} imports opset {version} of '{domain or 'ai.onnx'}', "
            f"but the installed onnx {onnx.__version__} supports versions up to {newest}: upgrade "
            "onnx, or convert the model with onnx.version_converter."
        )


@cache
def signature(op_type: str, domain: str, opset: int) -> Signature | None:
    """Return the standard's schema of an operator at `opset`, or None if it has none."""
    try:
        schema = onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None
    return Signature(
        tuple(_slot(parameter) for parameter in schema.inputs),
        tuple(_slot(parameter) for parameter in schema.outputs),
        {name: attribute.type for name, attribute in schema.attributes.items()},
        frozenset(name for name, a in schema.attributes.items() if a.required),
        (schema.min_input, schema.max_input),
        (schema.min_output, schema.max_output),
        # An older version that is deprecated was defined again later.
        schema.deprecated
        and schema.since_version == onnx.defs.get_schema(op_type, domain).since_version,
    )


def _slot(parameter: OpSchema.FormalParameter) -> Slot:
    option = parameter.option
    return Slot(
        parameter.name,
        parameter.type_str,
        frozenset(parameter.types),
        option == OpSchema.FormalParameterOption.Optional,
        option == OpSchema.FormalParameterOption.Variadic,
        parameter.is_homogeneous,
    )


@cache
def first_version(op_type: str, domain: str) -> int | None:
    """Return the opset that introduced an operator, or None if no opset has it."""
    versions = [
        entry.since_version
        for entry in onnx.defs.get_all_schemas_with_history()
        if entry.name == op_type and entry.domain == domain
    ]
    return min(versions, default=None)


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
