"""The standard's operators: which versions there are, and what each takes and returns.

onnx registers all operators as soon as it is asked for one, which takes 10 ms and 7 MB in each
process. So `operators.jsonl` holds what one release of onnx says; any other is asked itself. The
file is written by `python -m tests.operators_file > sardonyx/graph/standard/operators.jsonl`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import onnx
from onnx.defs import OpSchema

AttrType: TypeAlias = OpSchema.AttrType

_FILE = "operators.jsonl"


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
    if not domain:
        return onnx.defs.onnx_opset_version()
    table = _table()
    return (_newest_of_onnx() if table is None else table.newest).get(domain)


@cache
def signature(op_type: str, domain: str, opset: int) -> Signature | None:
    """Return the standard's schema of an operator at `opset`, or None if it has none."""
    table = _table()
    if table is None:
        return _signature_of_onnx(op_type, domain, opset)
    versions = [each for each in table.versions(op_type, domain) if each["since"] <= opset]
    return table.signature(versions[-1]) if versions else None


def first_version(op_type: str, domain: str) -> int | None:
    """Return the opset that introduced an operator, or None if no opset has it."""
    table = _table()
    if table is not None:
        return next((each["since"] for each in table.versions(op_type, domain)), None)
    every = onnx.defs.get_all_schemas_with_history()
    versions = [e.since_version for e in every if (e.name, e.domain) == (op_type, domain)]
    return min(versions, default=None)


@dataclass(frozen=True, eq=False, slots=True)
class _Table:
    """The file: a first line with what many operators share, then a line of JSON for each."""

    newest: Mapping[str, int]
    types: Sequence[frozenset[str]]
    # By operator and domain, with which they begin. Those that no model needs are never parsed.
    lines: Mapping[str, str]

    def versions(self, op_type: str, domain: str) -> Sequence[Mapping[str, Any]]:
        """Return the versions of an operator, oldest first; none if there is no such operator."""
        line = self.lines.get(f'["{op_type}","{domain}"')
        versions: Sequence[Mapping[str, Any]] = () if line is None else json.loads(line)[2]
        return versions

    def signature(self, version: Mapping[str, Any]) -> Signature:
        inputs, outputs = [tuple(map(self._slot, version[k])) for k in ("inputs", "outputs")]
        return Signature(
            inputs,
            outputs,
            {name: getattr(AttrType, kind) for name, kind in version["attributes"].items()},
            frozenset(version["required"]),
            tuple(version["input_counts"]),
            tuple(version["output_counts"]),
            version["deprecated"],
        )

    def _slot(self, fields: Sequence[Any]) -> Slot:
        name, type_, allowed, *flags = fields
        return Slot(name, type_, self.types[allowed], *map(bool, flags))


@cache
def _table() -> _Table | None:
    """Return the file's facts; None where another release of onnx is installed."""
    head, *lines = Path(__file__).with_name(_FILE).read_text("utf-8").splitlines()
    shared = json.loads(head)
    if not is_of_release(shared["onnx"], onnx.__version__):
        return None
    beginnings = {line.partition(",[")[0]: line for line in lines}
    return _Table(shared["newest"], list(map(frozenset, shared["types"])), beginnings)


def is_of_release(version: str, other: str) -> bool:
    """Whether two versions of onnx have the same operators.

    >>> is_of_release("1.23.0", "1.23.2"), is_of_release("1.23.0", "1.24.0")
    (True, False)
    """
    return version.split(".")[:2] == other.split(".")[:2]


@cache
def _newest_of_onnx() -> Mapping[str, int]:
    newest: dict[str, int] = {}
    for entry in onnx.defs.get_all_schemas_with_history():
        newest[entry.domain] = max(newest.get(entry.domain, 0), entry.since_version)
    return newest


def _signature_of_onnx(op_type: str, domain: str, opset: int) -> Signature | None:
    try:
        schema = onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None
    return signature_of_schema(schema)


def signature_of_schema(schema: OpSchema) -> Signature:
    """Return what onnx says of an operator at one version."""
    newest = onnx.defs.get_schema(schema.name, schema.domain)
    return Signature(
        tuple(_slot(parameter) for parameter in schema.inputs),
        tuple(_slot(parameter) for parameter in schema.outputs),
        {name: attribute.type for name, attribute in schema.attributes.items()},
        frozenset(name for name, a in schema.attributes.items() if a.required),
        (schema.min_input, schema.max_input),
        (schema.min_output, schema.max_output),
        # An older version that is deprecated was defined again later.
        schema.deprecated and schema.since_version == newest.since_version,
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
