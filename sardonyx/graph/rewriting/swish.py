"""An input times a gate that is a function of it: Swish, Mish and HardSwish, one step each.

The operators compute the same; in narrow floats they round once, where the chain does each time.
Only the order of HardSwish's products may differ, by two units in the last place of the input.
"""

from __future__ import annotations

from typing import NamedTuple

from sardonyx.graph.rewriting.polynomial import is_about, polynomial, result_of
from sardonyx.graph.rewriting.rewriter import Passage, Replacement, calls, instead_of, parameters_of
from sardonyx.graph.tracing.steps import Operand, Step
from sardonyx.ops.activation import HardSigmoid, HardSwish, Mish, Sigmoid, Softplus, Swish
from sardonyx.ops.elementwise import Clip, Tanh, clip_to_attributes


def fuse_swish(passage: Passage, step: Step) -> Replacement:
    """Fuse `x` times a function of `x`, times a constant."""
    terms = result_of(passage, step) or {}
    if len(terms) != 1:
        return None
    ((registers, coefficient),) = terms.items()
    if len(registers) != 2:
        return None
    for x, gate in (registers, registers[::-1]):
        producer = passage.sole_producer(gate)
        if producer is None or passage.spec(x) != step.specs[0]:
            continue
        if coefficient == 1 and calls(producer, Sigmoid):
            line = polynomial(passage, producer.operands[0])
            if line and [*line] == [(x,)]:
                return [instead_of(step, Swish, (x,), alpha=line[(x,)])]
        if coefficient == 1 and _is_tanh_of_softplus(passage, producer, x):
            return [instead_of(step, Mish, (x,))]
        if _is_hard_sigmoid(passage, producer, x, coefficient):
            return [instead_of(step, HardSwish, (x,))]
    return None


def _is_tanh_of_softplus(passage: Passage, gate: Step, x: int) -> bool:
    softplus = passage.sole_producer(gate.operands[0], Softplus) if calls(gate, Tanh) else None
    return softplus is not None and softplus.operands[0] == x


def _is_hard_sigmoid(passage: Passage, gate: Step, x: int, coefficient: float) -> bool:
    """Whether the gate is a HardSigmoid, or `min(max(x + 3, 0), 6)` to be divided by 6."""
    dtype = gate.specs[0].dtype
    if calls(gate, HardSigmoid):
        values = parameters_of(gate, HardSigmoid)
        line = {(): values["beta"], (x,): values["alpha"]}
        is_of_x = coefficient == 1 and gate.operands[0] == x
        return is_of_x and is_about(line, {(): 0.5, (x,): 1 / 6}, dtype)
    clipped = clipping(passage, gate)
    if clipped is None or (clipped.low, clipped.high) != (0, 6):
        return False
    line_of_clip = polynomial(passage, clipped.source)
    is_sixth = is_about({(): coefficient}, {(): 1 / 6}, dtype)
    return is_sixth and is_about(line_of_clip, {(): 3.0, (x,): 1.0}, dtype)


class Clipping(NamedTuple):
    """What a Clip reads, and its limits; None where there is none, or it is no constant."""

    source: Operand
    low: float | None
    high: float | None


def clipping(passage: Passage, step: Step) -> Clipping | None:
    """The operand and the limits of a Clip, at any opset; None for other ops."""
    if calls(step, Clip):
        values = parameters_of(step, Clip)
        low, high = (
            None if limit is None else passage.scalar(limit)
            for limit in (values["min"], values["max"])
        )
        return Clipping(step.operands[0], low, high)
    if calls(step, clip_to_attributes):
        values = parameters_of(step, clip_to_attributes)
        return Clipping(step.operands[0], values["min"], values["max"])
    return None
