"""Subgraphs as Python functions: which arrays they take, and what the call of them returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TypeProto

from sardonyx.errors import InvalidInput
from sardonyx.recording.graph import Frame
from sardonyx.recording.types import (
    dimensions_in,
    dtype_in,
    merged,
    tensor_type,
)


def body_inputs(op_type: str, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> list[Any]:
    """Return the types of the arrays that the body of a call takes."""
    if op_type == "Loop":
        carried = [each._type for each in inputs[2:]]
        count, condition = np.dtype(np.int64), np.dtype(np.bool_)
        return [tensor_type(count, ()), tensor_type(condition, ()), *carried]
    if op_type == "Scan":
        scanned = int(attributes["num_scan_inputs"])
        states, sequences = inputs[: len(inputs) - scanned], inputs[len(inputs) - scanned :]
        return [*(each._type for each in states), *(_slice_of(each._type) for each in sequences)]
    if op_type == "SequenceMap":
        return [_element_of(each._type) for each in inputs]
    if op_type == "If":
        return []
    raise InvalidInput(f"The subgraph of {op_type} cannot be a Python function: pass a GraphProto.")


def result_types(
    op_type: str,
    inputs: Sequence[Any],
    attributes: Mapping[str, Any],
    bodies: Mapping[str, Frame],
) -> list[TypeProto]:
    """Return the types of the results of a call with bodies."""
    each = [[out._type for out in body.outputs] for body in bodies.values()]
    if op_type == "If":
        first, second = each
        if len(first) != len(second):
            raise InvalidInput(
                f"The branches of If return {len(first)} and {len(second)} arrays: let both return "
                "as many."
            )
        return [merged(a, b) for a, b in zip(first, second, strict=True)]
    (outputs,) = each
    if op_type == "Loop":
        carried = len(inputs) - 2
        if len(outputs) < carried + 1:
            raise InvalidInput(
                f"The body of Loop returns {len(outputs)} arrays: let it return the condition, the "
                f"{carried} carried arrays, and then the slices to collect."
            )
        return [*outputs[1 : carried + 1], *map(_stack_of, outputs[carried + 1 :])]
    if op_type == "Scan":
        states = len(inputs) - int(attributes["num_scan_inputs"])
        return [*outputs[:states], *map(_stack_of, outputs[states:])]
    return [_sequence_of(kind) for kind in outputs]


def _slice_of(kind: TypeProto) -> TypeProto:
    dtype, dims = dtype_in(kind), dimensions_in(kind)
    assert dtype is not None
    return tensor_type(dtype, None if dims is None else dims[1:])


def _stack_of(kind: TypeProto) -> TypeProto:
    dtype, dims = dtype_in(kind), dimensions_in(kind)
    if dtype is None:
        return kind
    return tensor_type(dtype, None if dims is None else (None, *dims))


def _element_of(kind: TypeProto) -> TypeProto:
    return kind.sequence_type.elem_type if kind.HasField("sequence_type") else kind


def _sequence_of(kind: TypeProto) -> TypeProto:
    sequence = TypeProto()
    sequence.sequence_type.elem_type.CopyFrom(kind)
    return sequence
