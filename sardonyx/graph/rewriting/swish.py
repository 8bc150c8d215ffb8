"""An input times a gate made of itself: SiLU and its quick GELU, Mish and HardSwish, one step each.

The operators compute the same; in narrow floats they round once, where the chain does each time.
Only the order of HardSwish's products may differ, by two units in the last place of the input.
"""

from __future__ import annotations

from typing import Any

from sardonyx.graph.rewriting.polynomial import is_about, made_by, polynomial
from sardonyx.graph.rewriting.rewriter import Passage, Replacement, calling, calls, given
from sardonyx.graph.tracing.steps import Step
from sardonyx.ops.activation import HardSigmoid, HardSwish, Mish, Sigmoid, Softplus, Swish
from sardonyx.ops.definition import Op
from sardonyx.ops.elementwise import Clip, Tanh, clip_to_attributes


def fuse_swish(passage: Passage, step: Step) -> Replacement:
    """`x` times a function of `x`, times a constant."""
    found = made_by(passage, step)
    if found is None or len(found) != 1:
        return None
    ((registers, coefficient),) = found.items()
    if len(registers) != 2:
        return None
    for x, gate in (registers, registers[::-1]):
        if passage.spec(x) != step.specs[0] or not passage.is_read_once(gate):
            continue
        made = passage.maker(gate)
        if made is not None and (op := _gated(passage, made, x, coefficient)) is not None:
            return [calling(step, op[0], (x,), op[0].name, **op[1])]
    return None


def _gated(
    passage: Passage, gate: Step, x: int, coefficient: float
) -> tuple[Op[Any], dict[str, Any]] | None:
    """The op that multiplies by this gate, and its attributes."""
    if coefficient == 1:
        if calls(gate, Sigmoid):
            alpha = polynomial(passage, gate.operands[0])
            return (Swish, {"alpha": alpha[(x,)]}) if alpha and [*alpha] == [(x,)] else None
        if calls(gate, Tanh):
            softplus = passage.inner(gate.operands[0], Softplus)
            return (Mish, {}) if softplus is not None and softplus.operands[0] == x else None
    is_hard = _is_hard_sigmoid if calls(gate, HardSigmoid) else _is_clipped
    return (HardSwish, {}) if is_hard(passage, gate, x, coefficient) else None


def _is_hard_sigmoid(passage: Passage, gate: Step, x: int, coefficient: float) -> bool:
    bound = given(gate, HardSigmoid)
    line = {(): bound["beta"], (x,): bound["alpha"]}
    is_whole = coefficient == 1 and gate.operands[0] == x
    return is_whole and is_about(line, {(): 0.5, (x,): 1 / 6}, gate.specs[0].dtype)


def _is_clipped(passage: Passage, gate: Step, x: int, coefficient: float) -> bool:
    """`x` times `min(max(x + 3, 0), 6) / 6`."""
    clipped = limits(passage, gate)
    if clipped is None:
        return False
    source, low, high = clipped
    dtype = gate.specs[0].dtype
    sixth = is_about({(x,): coefficient}, {(x,): 1 / 6}, dtype)
    line = polynomial(passage, source)
    return sixth and (low, high) == (0, 6) and is_about(line, {(): 3.0, (x,): 1.0}, dtype)


def limits(passage: Passage, step: Step) -> tuple[Any, Any, Any] | None:
    """What a Clip clips, and between which numbers, where they are known."""
    if calls(step, Clip):
        bound = given(step, Clip)
        low, high = (None if b is None else passage.scalar(b) for b in (bound["min"], bound["max"]))
        return step.operands[0], low, high
    if calls(step, clip_to_attributes):
        bound = given(step, clip_to_attributes)
        return step.operands[0], bound["min"], bound["max"]
    return None
