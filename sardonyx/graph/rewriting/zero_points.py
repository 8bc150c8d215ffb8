"""Zero points that are 0: no dequantization has to subtract them.

Exact: not a bit differs. XLA for GPUs fuses a dequantization into the product that reads it, if
nothing is subtracted.
"""

from __future__ import annotations

from sardonyx.graph.rewriting.rewriter import (
    Passage,
    Replacement,
    attributes_of,
    instead_of,
    parameters_of,
)
from sardonyx.graph.tracing.op_call import HOLE
from sardonyx.graph.tracing.steps import Step
from sardonyx.ops.quantization import DequantizeLinear


def drop_zero_point(passage: Passage, step: Step) -> Replacement:
    """Leave out a zero point that is known to be 0, for all elements."""
    values = parameters_of(step, DequantizeLinear)
    zero_point = values["x_zero_point"]
    if zero_point is None or not passage.is_zero(zero_point):
        return None
    operands = (values["x"], values["x_scale"])
    arguments = (HOLE, HOLE, None)
    return [instead_of(step, DequantizeLinear, operands, arguments, **attributes_of(step))]
