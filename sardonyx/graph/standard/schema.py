"""What the standard's own tables say of an operator: its versions, arity, attributes and types."""

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
from sardonyx.graph.standard.types import type_name

AttrType: TypeAlias = OpSchema.AttrType
_UNBOUNDED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Slot:
    """One formal input or output: its name, the variable that stands for its type, or the type."""

    name: str
    type: str
    allowed: frozenset[str]
    optional: bool
    variadic: bool
    homogeneous: bool


@dataclass(frozen=True, eq=False, slots=True)
class Signature:
    """An operator at one version."""

    name: str
    domain: str
    version: int
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    attributes: Mapping[str, AttrType]
    required: frozenset[str]
    arity: tuple[int, int]
    results: tuple[int, int]
    withdrawn: bool


def newest_version(domain: str) -> int | None:
    """The newest version of a domain that the installed onnx knows; None if it knows none."""
    return _newest_of_others().get(domain) if domain else onnx.defs.onnx_opset_version()


@cache
def _newest_of_others() -> Mapping[str, int]:
    """By domain; asked only where it is needed, since onnx takes 20 ms to list its schemas."""
    newest: dict[str, int] = {}
    for entry in onnx.defs.get_all_schemas_with_history():
        newest[entry.domain] = max(newest.get(entry.domain, 0), entry.since_version)
    return newest


def refuse_future(domain: str, version: int, where: str) -> None:
    newest = newest_version(domain)
    if newest is not None and version > newest:
        raise UnsupportedModel(
            f"{where[0].upper()}{where[1:]} imports opset {version} of '{domain or 'ai.onnx'}', "
            f"and the installed onnx {onnx.__version__} knows versions up to {newest}: upgrade "
            "onnx, or convert the model with onnx.version_converter."
        )


@cache
def signature(op_type: str, domain: str, opset: int) -> Signature | None:
    """The operator as `opset` has it, or None where the standard does not know it."""
    try:
        schema = onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None
    return Signature(
        op_type,
        domain,
        schema.since_version,
        tuple(_slot(parameter) for parameter in schema.inputs),
        tuple(_slot(parameter) for parameter in schema.outputs),
        {name: attribute.type for name, attribute in schema.attributes.items()},
        frozenset(name for name, a in schema.attributes.items() if a.required),
        (schema.min_input, schema.max_input),
        (schema.min_output, schema.max_output),
        schema.deprecated and schema.since_version == _newest(op_type, domain),
    )


def _newest(op_type: str, domain: str) -> int:
    """The newest version of an operator; what is deprecated before it was defined anew."""
    return int(onnx.defs.get_schema(op_type, domain).since_version)


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
    """The opset that introduced an operator, or None where no opset has it."""
    versions = [
        entry.since_version
        for entry in onnx.defs.get_all_schemas_with_history()
        if entry.name == op_type and entry.domain == domain
    ]
    return min(versions, default=None)


def check_node(node: Node, known: Signature, opset: int) -> None:
    """Refuse a node whose inputs, outputs or attributes the operator does not have."""
    where = f"{node.label[0].upper()}{node.label[1:]} ({node.operator}, opset {opset})"
    if known.withdrawn:
        raise UnsupportedModel(f"{where} uses an operator that this opset has withdrawn.")
    _check_count(where, "input", len(node.inputs), known.arity)
    _check_count(where, "output", len(node.outputs), known.results)
    for slot, name in zip(known.inputs, node.inputs, strict=False):
        if not name and not slot.optional and not slot.variadic:
            raise InvalidModel(f"{where} lacks its input '{slot.name}'.")
    for name, value in node.attributes.items():
        if name not in known.attributes:
            has = ", ".join(sorted(known.attributes)) or "none"
            raise InvalidModel(
                f"{where} has an attribute '{name}', which is unknown; known: {has}."
            )
        check_attribute(where, name, value, known.attributes[name])
    if missing := known.required.difference(node.attributes):
        raise InvalidModel(f"{where} lacks its attribute '{min(missing)}'.")


def _check_count(where: str, what: str, count: int, bounds: tuple[int, int]) -> None:
    least, most = bounds
    if not least <= count <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        if most >= _UNBOUNDED:
            wanted = f"at least {least}"
        raise InvalidModel(f"{where} has {count} {what}s; it takes {wanted}.")


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
    """Refuse a value of another type than an attribute has; references are let pass."""
    expected = _ATTRIBUTE_TYPES.get(kind)
    if expected is None or isinstance(value, AttributeReference):
        return
    if isinstance(expected, tuple):
        fits = isinstance(value, tuple) and all(isinstance(v, expected[1]) for v in value)
    else:
        fits = isinstance(value, expected)
    if not fits:
        raise InvalidModel(
            f"Attribute '{name}' of {where} must be of type {str(kind).rpartition('.')[2]}."
        )


def bind_types(
    node: Node, known: Signature, types: Sequence[str | None], opset: int
) -> tuple[str | None, ...]:
    """Refuse input types that the operator does not allow; return the outputs' types.

    A type that is not known (None) is let pass, and so is what depends on it.
    """
    found = _bind_types(known, tuple(types))
    if isinstance(found, _Misfit):
        _refuse_type(node, found, opset)
    bound: tuple[str | None, ...] = found
    return bound[: len(node.outputs)] + bound[-1:] * (len(node.outputs) - len(bound))


def check_result(node: Node, known: Signature, found: str, opset: int) -> None:
    """Refuse a constant of a type that the operator cannot yield at this opset."""
    slot = known.outputs[0]
    fits = found in slot.allowed or f"optional({found})" in slot.allowed
    if len(known.outputs) == 1 and not slot.variadic and not fits:
        allowed = ", ".join(sorted(slot.allowed))
        raise InvalidModel(
            f"{node.label[0].upper()}{node.label[1:]} ({node.operator}, opset {opset}) cannot make "
            f"{found}. At this opset it may be: {allowed}. Convert the model to a newer opset, or "
            "load it with strict=False."
        )


@dataclass(frozen=True, slots=True)
class _Misfit:
    slot: Slot
    found: str
    bound_by: str | None


@cache
def _bind_types(known: Signature, types: tuple[str | None, ...]) -> Any:
    variables: dict[str, tuple[str, str]] = {}
    for i, found in enumerate(types):
        slot = known.inputs[min(i, len(known.inputs) - 1)]
        if found is None:
            continue
        if found not in slot.allowed and f"optional({found})" not in slot.allowed:
            return _Misfit(slot, found, None)
        if slot.variadic and not slot.homogeneous:
            continue
        first, name = variables.setdefault(slot.type, (found, slot.name))
        if first != found and not slot.type.startswith(("tensor", "seq", "optional", "map")):
            return _Misfit(slot, found, f"'{name}' is {first}")
    return tuple(_result_type(slot, variables) for slot in known.outputs)


def _result_type(slot: Slot, variables: Mapping[str, tuple[str, str]]) -> str | None:
    if slot.variadic and not slot.homogeneous:
        return None
    if slot.type in variables:
        return variables[slot.type][0]
    return next(iter(slot.allowed)) if len(slot.allowed) == 1 else None


def _refuse_type(node: Node, misfit: _Misfit, opset: int) -> NoReturn:
    where = f"{node.label[0].upper()}{node.label[1:]} ({node.operator}, opset {opset})"
    if misfit.bound_by:
        raise InvalidModel(
            f"{where} takes inputs of one type, but {misfit.bound_by} and '{misfit.slot.name}' is "
            f"{misfit.found}: cast one of them."
        )
    allowed = ", ".join(sorted(misfit.slot.allowed))
    raise InvalidModel(
        f"{where} does not take {misfit.found} for '{misfit.slot.name}'. At this opset it may be: "
        f"{allowed}. Cast the input, convert the model to a newer opset, or load it with "
        "strict=False."
    )


def type_of_array(array: np.ndarray[Any, Any]) -> str:
    """The ONNX type of a NumPy array, such as `tensor(float)`."""
    return type_name(array.dtype)
