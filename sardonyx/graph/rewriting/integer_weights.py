"""Products of 8-bit integers with weights, which are prepared ahead of all calls.

The integers are the same. It is tried where the backend's kernel reads the weight transposed and
padded, and where zero points need the sums of its columns.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sardonyx.backends.executable import Spec
from sardonyx.backends.operations.products import LONGEST_SUM
from sardonyx.graph.rewriting.rewriter import (
    Passage,
    Replacement,
    attributes_of,
    call_of,
    calls,
    instead_of,
    parameters_of,
)
from sardonyx.graph.tracing.op_call import HOLE
from sardonyx.graph.tracing.steps import Operand, Step
from sardonyx.ops.definition import Op, Parameter
from sardonyx.ops.microsoft.quantized_attention import QAttention
from sardonyx.ops.microsoft.quantized_products import DynamicQuantizeMatMul, MatMulIntegerToFloat
from sardonyx.ops.prepared_factors import (
    PreparedInput,
    prepared_columns,
    prepared_sums,
    with_prepared_factor,
)
from sardonyx.ops.quantization import MatMulInteger, QLinearMatMul

INT8, INT32 = np.dtype(np.int8), np.dtype(np.int32)
# The zero points of integers that are centred, once they are signed.
CENTRES = {INT8: 0, np.dtype(np.uint8): 128}


class _Inputs(NamedTuple):
    """The names of an op's inputs: both factors, and the zero point of the right one."""

    left: str
    weight: str
    zero_point: str


_INPUTS: Mapping[Op[Any], _Inputs] = {
    MatMulInteger: _Inputs("A", "B", "b_zero_point"),
    QLinearMatMul: _Inputs("a", "b", "b_zero_point"),
    MatMulIntegerToFloat: _Inputs("A", "B", "b_zero_point"),
    DynamicQuantizeMatMul: _Inputs("A", "B", "b_zero_point"),
    QAttention: _Inputs("input", "weight", "weight_zero_point"),
}
WITH_INTEGER_WEIGHTS = tuple(_INPUTS)


def prepare_integer_weight(passage: Passage, step: Step) -> Replacement:
    """Divide a product: its weight and the sums of that, which are fixed, and the rest."""
    op = next(op for op in _INPUTS if calls(step, op))
    names, values = _INPUTS[op], parameters_of(step, op)
    left, weight, zero_point = (values[name] for name in names)
    if passage.is_fixed(left) or not passage.is_fixed(weight):
        return None
    if not _can_prepare(passage.spec(left), passage.spec(weight)):
        return None
    spec = passage.spec(weight)
    of_columns = passage.backend.columns_spec(spec)
    of_sums = Spec((*spec.shape[:-2], 1, spec.shape[-1]), INT32)
    columns, sums = (
        passage.ahead_of(step, result, function, (weight,), title=title)
        for result, function, title in (
            (of_columns, prepared_columns, "PreparedWeight"),
            (of_sums, prepared_sums, "SumsOfWeight"),
        )
    )
    is_centred = _is_all(passage, zero_point, CENTRES[spec.dtype])
    dropped = names.zero_point if is_centred else None
    operands, arguments = _other_inputs(step, op, names.weight, dropped)
    position = [parameter.name for parameter in _parameters(op)].index(names.weight)
    function = call_of(step).function
    product = instead_of(
        step,
        with_prepared_factor,
        (*columns.results, *sums.results, *operands),
        (HOLE, HOLE, *arguments),
        title=step.title,
        prepared=PreparedInput(function, position, spec.shape, spec.dtype, is_centred),
        **attributes_of(step),
    )
    return [columns, sums, product]


def _can_prepare(left: Spec, weight: Spec) -> bool:
    if weight.dtype not in CENTRES or len(weight.shape) < 2 or not left.shape:
        return False
    is_empty = not math.prod(left.shape) or not math.prod(weight.shape)
    return not is_empty and weight.shape[-2] <= LONGEST_SUM


def _is_all(passage: Passage, zero_point: Operand | None, centre: int) -> bool:
    """Whether a zero point is known to be this number everywhere; an absent one is 0."""
    if zero_point is None:
        return centre == 0
    value = passage.constant(zero_point)
    return value is not None and bool((value == centre).all())


def _other_inputs(
    step: Step, op: Op[Any], weight: str, dropped: str | None
) -> tuple[list[Operand], list[Any]]:
    """Return the operands and arguments without the weight, and with None for a dropped input."""
    rest = iter(step.operands)
    operands: list[Operand] = []
    arguments: list[Any] = []
    for parameter, argument in zip(_parameters(op), call_of(step).arguments, strict=False):
        operand = next(rest) if argument is HOLE else None
        if parameter.name == weight:
            continue
        is_dropped = parameter.name == dropped
        arguments.append(None if is_dropped else argument)
        if operand is not None and not is_dropped:
            operands.append(operand)
    return operands, arguments


def _parameters(op: Op[Any]) -> Sequence[Parameter]:
    return op.at(sys.maxsize).inputs
