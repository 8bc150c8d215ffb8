"""Every operator of com.microsoft against the schemas of the installed onnxruntime."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

from sardonyx.graph.standard.types import number_of
from sardonyx.ops import _MODULES, OPS
from sardonyx.ops.definition import Definition, DType, Op
from sardonyx.ops.microsoft.default_domain import BESIDE_THE_STANDARD
from sardonyx.ops.microsoft.left_out import LEFT_OUT
from sardonyx.ops.microsoft.types import types_of
from tests.test_op_schemas import same

DOMAINS = ("com.microsoft", "com.microsoft.nchwc")
SCHEMAS = sorted(
    (s for s in get_all_operator_schema() if s.domain in DOMAINS and (s.domain, s.name) in OPS),
    key=lambda s: (s.domain, s.name),
)

BESIDE = (s for s in get_all_operator_schema() if s.since_version == 1)
TYPED = [*SCHEMAS, *(s for s in BESIDE if (s.domain, s.name) in BESIDE_THE_STANDARD)]


def label(schema: Any) -> str:
    return str(schema.name)


def definition_of(schema: Any) -> Definition:
    return OPS[schema.domain, schema.name].at(schema.since_version)


@pytest.mark.parametrize("schema", SCHEMAS, ids=label)
def test_inputs_are_those_of_the_schema(schema: Any) -> None:
    parameters = definition_of(schema).inputs
    assert [p.name for p in parameters] == [formal.name for formal in schema.inputs]
    for parameter, formal in zip(parameters, schema.inputs, strict=True):
        kind = str(formal.option).rpartition(".")[2]
        assert parameter.variadic == (kind == "Variadic"), formal.name
        assert parameter.required == (kind == "Single"), formal.name


@pytest.mark.parametrize("schema", SCHEMAS, ids=label)
def test_attributes_are_those_of_the_schema(schema: Any) -> None:
    attributes = definition_of(schema).attributes
    assert set(attributes) == set(schema.attributes)
    for name, formal in schema.attributes.items():
        default = onnx.AttributeProto.FromString(formal._default_value)
        assert attributes[name].required == bool(formal.required), name
        if default.name:
            value = attributes[name].default
            if attributes[name].type == DType:
                value = number_of(np.dtype(value))
            assert same(value, onnx.helper.get_attribute_value(default)), name


@pytest.mark.parametrize("schema", SCHEMAS, ids=label)
def test_as_many_results_as_the_schema_has(schema: Any) -> None:
    definition = definition_of(schema)
    assert definition.counts_outputs or definition.outputs == len(schema.outputs)


@pytest.mark.parametrize("schema", TYPED, ids=label)
def test_types_are_those_of_the_schema(schema: Any) -> None:
    types = types_of(schema.name)
    assert types is not None
    for side, formals in zip(types, (schema.inputs, schema.outputs), strict=True):
        assert [each.allowed for each in side] == [with_dense(f.types) for f in formals]
    ours = [each.name for side in types for each in side]
    theirs = [formal.typeStr for formal in (*schema.inputs, *schema.outputs)]
    variables = {name for name in theirs if not name.startswith("tensor")}
    for variable in variables:
        shared = [one for one, other in zip(ours, theirs, strict=True) if other == variable]
        assert len(set(shared)) == 1
        is_variable = not shared[0].startswith("tensor")
        several = len(types_of_variable(schema, variable)) > 1
        assert is_variable == (several and len(shared) > 1)


def with_dense(types: Iterable[str]) -> set[str]:
    """These types, and the dense ones of those that are sparse, as arrays are after loading."""
    return set(types) | {type_.removeprefix("sparse_") for type_ in types}


def types_of_variable(schema: Any, variable: str) -> list[str]:
    (types,) = (
        constraint.allowed_type_strs
        for constraint in schema.type_constraints
        if constraint.type_param_str == variable
    )
    return list(types)


def test_no_operator_is_written_twice() -> None:
    written = [
        (value.domain, value.name)
        for module in _MODULES
        for value in vars(import_module(f"sardonyx.ops.{module}")).values()
        if isinstance(value, Op) and value.__module__ == f"sardonyx.ops.{module}"
    ]
    assert len(written) == len(set(written))
    assert set(written) == set(OPS)


def test_every_operator_is_built_or_left_out_with_a_reason() -> None:
    names = {s.name for s in get_all_operator_schema() if s.domain == "com.microsoft"}
    built = {name for domain, name in OPS if domain == "com.microsoft"}
    assert names == (built & names) | set(LEFT_OUT)
    assert not built & set(LEFT_OUT)
