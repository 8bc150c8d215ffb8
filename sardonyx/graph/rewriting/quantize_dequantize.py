"""Numbers that are quantized and dequantized at once, as exporters mark what could be quantized.

Kernels of products read floats. So the integers in between would be written only to be read once,
by steps of which no kernel is a part.
"""

from __future__ import annotations

import numpy as np

from sardonyx.backends.operations.numbers import Levels
from sardonyx.graph.rewriting.rewriter import (
    Passage,
    Replacement,
    call_of,
    instead_of,
    parameters_of,
)
from sardonyx.graph.tracing.steps import Operand, Step
from sardonyx.ops.quantization import DequantizeLinear, QuantizeLinear, quantized_and_back

_FLOAT32 = np.dtype(np.float32)
# Of these all differences are whole numbers in float32, which is wide enough to round in.
_INTEGERS = frozenset(map(np.dtype, (np.int8, np.uint8, np.int16, np.uint16)))


def dequantize_at_once(passage: Passage, step: Step) -> Replacement:
    """Fuse a DequantizeLinear with a QuantizeLinear of the same scale and zero point."""
    quantize = passage.producer(step.operands[0], QuantizeLinear)
    if quantize is None or step.specs[0].dtype != _FLOAT32:
        return None
    before, after = parameters_of(quantize, QuantizeLinear), parameters_of(step, DequantizeLinear)
    numbers = _numbers(passage, before["y_scale"], before["y_zero_point"])
    if numbers is None or numbers != _numbers(passage, after["x_scale"], after["x_zero_point"]):
        return None
    dtype = quantize.specs[0].dtype
    is_of_floats = passage.spec(before["x"]).dtype == _FLOAT32
    if not is_of_floats or dtype not in _INTEGERS or before["precision"] not in (None, _FLOAT32):
        return None
    (scale, zero), bounds = numbers, np.iinfo(dtype)
    levels = Levels(scale, bounds.min - zero, bounds.max - zero, -zero)
    arguments = call_of(quantize).arguments
    return [instead_of(step, quantized_and_back, quantize.operands, arguments, levels=levels)]


def _numbers(
    passage: Passage, scale: Operand | None, zero_point: Operand | None
) -> tuple[float, float] | None:
    """Return both, if each is a known number, and the scale an ordinary one in float32."""
    if scale is None or zero_point is None or passage.spec(scale).dtype != _FLOAT32:
        return None
    step, zero = passage.scalar(scale), passage.scalar(zero_point)
    if step is None or zero is None or not np.finfo(np.float32).tiny <= step < np.inf:
        return None
    return step, zero
