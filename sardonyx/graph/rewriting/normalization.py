"""The spelled-out chains of layer and root-mean-square normalisation: one step each.

The same mean and the same variance; what divides may be rounded before it is applied, or after:
results differ by up to two units in the last place. Only in float32 and float64, since the
operators compute in float32 what a chain of narrower floats rounds at every step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sardonyx.graph.rewriting.rewriter import Passage, Replacement, call_of, calling, calls, given
from sardonyx.graph.tracing.op_call import HOLE
from sardonyx.graph.tracing.steps import Embedded, Operand, Step
from sardonyx.ops.definition import Op
from sardonyx.ops.elementwise import Add, Div, Mul, Pow, Reciprocal, Sqrt, Sub
from sardonyx.ops.normalization import LayerNormalization, RMSNormalization
from sardonyx.ops.reduction import ReduceMean


def fuse_normalization(passage: Passage, step: Step) -> Replacement:
    """Normalise in one step; a product or sum that follows is its scale or bias."""
    if step.specs[0].dtype not in (np.float32, np.float64):
        return None
    return _normalized(passage, step) or _with_scale(passage, step) or _with_bias(passage, step)


# -- scale and bias -------------------------------------------------------------------------------


def _with_scale(passage: Passage, step: Step) -> Replacement:
    """A product with what has no scale yet."""
    if not calls(step, Mul):
        return None
    for operand, scale in (step.operands, step.operands[::-1]):
        for op in (LayerNormalization, RMSNormalization):
            normalized = passage.inner(operand, op)
            if normalized is None or not _is_one(normalized.operands[1]):
                continue
            if len(normalized.operands) == 2 and _fits(passage, scale, step, normalized):
                return [_renewed(step, normalized, op, scale)]
    return None


def _with_bias(passage: Passage, step: Step) -> Replacement:
    if not calls(step, Add):
        return None
    for operand, bias in (step.operands, step.operands[::-1]):
        normalized = passage.inner(operand, LayerNormalization)
        if normalized is None or len(normalized.operands) != 2 or len(normalized.results) != 1:
            continue
        if _fits(passage, bias, step, normalized):
            return [_renewed(step, normalized, LayerNormalization, normalized.operands[1], bias)]
    return None


def _fits(passage: Passage, parameter: Operand, step: Step, normalized: Step) -> bool:
    """Whether the parameter varies along the axes that are normalised, and no others."""
    spec, (made,) = passage.spec(parameter), step.specs
    if spec is None or spec.dtype != made.dtype or made != normalized.specs[0]:
        return False
    rank = len(made.shape)
    axis: int = call_of(normalized).attributes.get("axis", -1) % rank
    outer = spec.shape[: max(len(spec.shape) - (rank - axis), 0)]
    return len(spec.shape) <= rank and set(outer) <= {1}


def _is_one(operand: Operand) -> bool:
    return isinstance(operand, Embedded) and operand.value.ndim == 0 and operand.value == 1


def _renewed(step: Step, normalized: Step, op: Op[Any], *parameters: Operand) -> Step:
    operands = (normalized.operands[0], *parameters)
    attributes = call_of(normalized).attributes
    return _calling(step, op, operands, **attributes)


def _calling(root: Step, op: Op[Any], operands: tuple[Operand, ...], **attributes: Any) -> Step:
    arguments = [HOLE] * len(operands) + [None] * (len(op.at(1).inputs) - len(operands))
    return calling(root, op, operands, op.name, arguments, **attributes)


# -- the chain ------------------------------------------------------------------------------------


def _normalized(passage: Passage, step: Step) -> Replacement:
    """What divides by a root of a mean of squares."""
    divided = _divided(passage, step)
    if divided is None:
        return None
    mean = _mean_of_squares(passage, divided.squares)
    if mean is None or (epsilon := divided.epsilon) is None:
        return None
    chain = [*divided.chain, *mean.chain]
    centred = _centred(passage, divided.numerator, mean)
    op = RMSNormalization if centred is None else LayerNormalization
    if centred is not None:
        chain += centred.chain
    elif mean.of != divided.numerator:
        return None
    source = divided.numerator if centred is None else centred.of
    spec = passage.spec(source)
    if spec is None or spec != step.specs[0] or not passage.is_closed(chain, step):
        return None
    axis = _first_of_last(mean.axes, len(spec.shape))
    if axis is None or 0 in spec.shape:
        return None
    one = Embedded(np.ones((), spec.dtype))
    return [_calling(step, op, (source, one), axis=axis, epsilon=epsilon)]


@dataclass(frozen=True, slots=True)
class _Divided:
    numerator: Operand
    squares: Operand
    epsilon: float | None
    chain: list[Step]


def _divided(passage: Passage, step: Step) -> _Divided | None:
    """`x / sqrt(y + epsilon)`, or `x` times the inverse of that."""
    if calls(step, Div):
        numerator, divisor = step.operands
        return _root(passage, numerator, divisor, [])
    if calls(step, Mul):
        for numerator, inverse in (step.operands, step.operands[::-1]):
            made = passage.maker(inverse, Reciprocal, Div)
            if made is None:
                continue
            if calls(made, Reciprocal):
                return _root(passage, numerator, made.operands[0], [made])
            if passage.scalar(made.operands[0]) == 1:
                return _root(passage, numerator, made.operands[1], [made])
    return None


def _root(
    passage: Passage, numerator: Operand, divisor: Operand, chain: list[Step]
) -> _Divided | None:
    root = passage.maker(divisor, Sqrt)
    total = None if root is None else passage.maker(root.operands[0], Add)
    if root is None or total is None:
        return None
    for squares, epsilon in (total.operands, total.operands[::-1]):
        value = passage.scalar(epsilon)
        if value is not None:
            return _Divided(numerator, squares, value, [*chain, root, total])
    return None


@dataclass(frozen=True, slots=True)
class _Mean:
    of: Operand
    axes: tuple[int, ...]
    chain: list[Step]


def _mean(passage: Passage, operand: Operand) -> _Mean | None:
    """A mean over axes that stay, with one element each."""
    step = passage.maker(operand, ReduceMean)
    source = None if step is None else passage.spec(step.operands[0])
    if step is None or source is None:
        return None
    bound = given(step, ReduceMean)
    rank = len(source.shape)
    if not bound["keepdims"] or (not bound["axes"] and bound["noop_with_empty_axes"]):
        return None
    axes = tuple(sorted(axis % rank for axis in bound["axes"] or range(rank)))
    return _Mean(step.operands[0], axes, [step])


def _mean_of_squares(passage: Passage, operand: Operand) -> _Mean | None:
    mean = _mean(passage, operand)
    square = None if mean is None else passage.maker(mean.of, Mul, Pow)
    if mean is None or square is None:
        return None
    base, other = square.operands
    is_square = base == other if calls(square, Mul) else passage.scalar(other) == 2
    return _Mean(base, mean.axes, [*mean.chain, square]) if is_square else None


def _centred(passage: Passage, numerator: Operand, mean_of_squares: _Mean) -> _Mean | None:
    """What both the numerator and the squares have their mean taken from."""
    chain: list[Step] = []
    found: list[_Mean] = []
    for operand in {numerator, mean_of_squares.of}:
        less = passage.maker(operand, Sub)
        mean = None if less is None else _mean(passage, less.operands[1])
        if less is None or mean is None or mean.of != less.operands[0]:
            return None
        found.append(mean)
        chain += [less, *mean.chain]
    is_same = {(mean.of, mean.axes) for mean in found} == {(found[0].of, mean_of_squares.axes)}
    return _Mean(found[0].of, found[0].axes, chain) if is_same else None


def _first_of_last(axes: tuple[int, ...], rank: int) -> int | None:
    """The first of the axes, if they are the last ones without a gap."""
    is_last = bool(axes) and axes == tuple(range(rank - len(axes), rank))
    return axes[0] if is_last else None
