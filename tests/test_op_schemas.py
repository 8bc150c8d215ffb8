"""Every op's signature against every historical schema that onnx ships: no drift can land."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.defs import OpSchema

import sardonyx
from sardonyx.graph.standard.types import number_of
from sardonyx.ops import OPS
from sardonyx.ops.definition import Definition, DType, Op
from sardonyx.ops.microsoft.default_domain import BESIDE_THE_STANDARD

SCHEMAS = sorted(
    (s for s in onnx.defs.get_all_schemas_with_history() if (s.domain, s.name) in OPS),
    key=lambda s: (s.domain, s.name, s.since_version),
)


def label(schema: OpSchema) -> str:
    return f"{schema.name}-{schema.since_version}"


def definition_of(schema: OpSchema) -> Definition:
    op: Op = OPS[schema.domain, schema.name]
    return op.at(schema.since_version)


@pytest.mark.parametrize("schema", SCHEMAS, ids=label)
def test_inputs_bear_their_names_in_order(schema: OpSchema) -> None:
    definition = definition_of(schema)
    if schema.deprecated:
        return
    for i, formal in enumerate(schema.inputs):
        if i >= len(definition.inputs):
            pytest.fail(f"no parameter for the input {formal.name}")
        parameter = definition.inputs[i]
        assert parameter.variadic == (formal.option == OpSchema.FormalParameterOption.Variadic)
        optional = formal.option == OpSchema.FormalParameterOption.Optional
        assert not (optional and parameter.required), formal.name


@pytest.mark.parametrize("schema", SCHEMAS, ids=label)
def test_the_newest_names_are_the_parameters_names(schema: OpSchema) -> None:
    newest = onnx.defs.get_schema(schema.name, schema.domain)
    if schema.since_version != newest.since_version:
        return
    names = [p.name for p in definition_of(schema).inputs]
    assert names[: len(schema.inputs)] == [formal.name for formal in schema.inputs]


@pytest.mark.parametrize("schema", SCHEMAS, ids=label)
def test_attributes_are_parameters_with_the_schemas_defaults(schema: OpSchema) -> None:
    definition = definition_of(schema)
    inputs = {parameter.name for parameter in definition.inputs}
    for name, attribute in schema.attributes.items():
        assert name in definition.attributes or name in inputs, f"no parameter for {name}"
        if name not in definition.attributes or not attribute.default_value.name:
            continue
        parameter = definition.attributes[name]
        expected = onnx.helper.get_attribute_value(attribute.default_value)
        found = parameter.default
        if parameter.type == DType:
            found = number_of(np.dtype(found)) if found else onnx.TensorProto.UNDEFINED
        assert same(found, expected), f"{name}: {found} is not {expected}"


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, bytes):
        expected = expected.decode()
    if isinstance(expected, float):
        return bool(np.float32(found) == np.float32(expected))
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    return bool(found == expected)


def test_a_float_by_default_is_the_one_that_a_file_would_hold() -> None:
    x = np.array([-1.0, 2.0])
    given = sardonyx.run_op("LeakyRelu", x, alpha=float(np.float32(0.01)))
    np.testing.assert_array_equal(sardonyx.run_op("LeakyRelu", x), given)


def test_what_is_deprecated_and_then_defined_anew_still_runs() -> None:
    x, each = np.ones((1, 4, 2), np.float32), np.ones(2, np.float32)
    y = sardonyx.run_op("GroupNormalization", x, each, each, num_groups=2, opset=18)
    np.testing.assert_array_equal(y, x)


def test_every_built_operator_is_one_that_the_standard_knows() -> None:
    known = {(s.domain, s.name) for s in onnx.defs.get_all_schemas_with_history()}
    own = {key for key in OPS if key[0].startswith("com.microsoft")}
    assert set(OPS) - own - set(BESIDE_THE_STANDARD) <= known
