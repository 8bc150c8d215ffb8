"""Layer and root-mean-square normalization written in small operators: one step each.

Mean and variance are the same; the divisor may be rounded before it is applied, or after: results
differ by up to two units in the last place. Only in float32 and float64, because the operators
compute in float32 what a chain in narrower floats rounds at every step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sardonyx.graph.rewriting.rewriter import (
    Passage,
    Replacement,
    attributes_of,
    calls,
    instead_of,
    orders,
    parameters_of,
)
from sardonyx.graph.tracing.op_call import HOLE
from sardonyx.graph.tracing.steps import Embedded, Operand, Step
from sardonyx.ops.definition import Op
from sardonyx.ops.elementwise import Add, Div, Mul, Pow, Reciprocal, Sqrt, Sub
from sardonyx.ops.normalization import LayerNormalization, RMSNormalization
from sardonyx.ops.reduction import ReduceMean


def fuse_normalization(passage: Passage, step: Step) -> Replacement:
    """Normalize in one step; a product or sum that follows is its scale or bias."""
    if step.specs[0].dtype not in (np.float32, np.float64):
        return None
    return _normalized(passage, step) or _with_parameter(passage, step)


# -- scale and bias -------------------------------------------------------------------------------


def _with_parameter(passage: Passage, step: Step) -> Replacement:
    """Take a factor as the scale of a normalization that has none, or a term as its bias."""
    for operand, parameter in () if calls(step, Div) else orders(step):
        for op in (LayerNormalization, RMSNormalization):
            normalized = passage.sole_producer(operand, op)
            if normalized is None or not _fits(passage, parameter, step, normalized):
                continue
            source, scale = normalized.operands
            attributes = attributes_of(normalized)
            if calls(step, Mul) and _is_one(scale):
                return [_normalization(step, op, source, parameter, **attributes)]
            if calls(step, Add) and op is LayerNormalization:
                return [_normalization(step, op, source, scale, parameter, **attributes)]
    return None


def _fits(passage: Passage, parameter: Operand, step: Step, normalized: Step) -> bool:
    """Whether the parameter varies along the normalized axes alone, and there is no bias yet."""
    if len(normalized.operands) != 2 or normalized.specs != step.specs:
        return False
    spec, shape = passage.spec(parameter), step.specs[0].shape
    axis: int = attributes_of(normalized).get("axis", -1) % len(shape)
    beyond = len(spec.shape) - (len(shape) - axis)
    is_inside = len(spec.shape) <= len(shape) and set(spec.shape[: max(beyond, 0)]) <= {1}
    return is_inside and spec.dtype == step.specs[0].dtype


def _is_one(operand: Operand) -> bool:
    return isinstance(operand, Embedded) and operand.value.ndim == 0 and operand.value == 1


def _normalization(step: Step, op: Op[Any], *operands: Operand, **attributes: Any) -> Step:
    absent = [None] * (len(op.at(1).inputs) - len(operands))
    return instead_of(step, op, operands, [*(HOLE for _ in operands), *absent], **attributes)


# -- the chain ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Mean:
    """A mean over some axes, and the steps that compute it."""

    of: Operand
    axes: tuple[int, ...]
    chain: tuple[Step, ...]


def _normalized(passage: Passage, step: Step) -> Replacement:
    """Fuse a division by the root of a mean of squares."""
    quotient = _quotient(passage, step)
    if quotient is None:
        return None
    numerator, divisor, reciprocal = quotient
    root = passage.producer(divisor, Sqrt)
    total = None if root is None else passage.producer(root.operands[0], Add)
    squares, epsilon = (None, None) if total is None else _squares_and_epsilon(passage, total)
    mean = _mean_of_squares(passage, squares)
    if root is None or total is None or epsilon is None or mean is None:
        return None
    centred = _centred(passage, numerator, mean)
    if centred is None and mean.of != numerator:
        return None
    source = numerator if centred is None else centred.of
    chain = [*reciprocal, root, total, *mean.chain, *(centred.chain if centred else ())]
    spec = passage.spec(source)
    if spec != step.specs[0] or 0 in spec.shape or not passage.is_closed(chain, step):
        return None
    first, rank = min(mean.axes, default=0), len(spec.shape)
    if not mean.axes or mean.axes != tuple(range(first, rank)):
        return None
    op = RMSNormalization if centred is None else LayerNormalization
    one = Embedded(np.ones((), spec.dtype))
    return [_normalization(step, op, source, one, axis=first, epsilon=epsilon)]


def _quotient(passage: Passage, step: Step) -> tuple[Operand, Operand, list[Step]] | None:
    """Numerator and divisor of a Div, or of a Mul by a reciprocal, with the reciprocal's step."""
    if calls(step, Div):
        numerator, divisor = step.operands
        return numerator, divisor, []
    for numerator, inverse in orders(step) if calls(step, Mul) else ():
        reciprocal = passage.producer(inverse, Reciprocal, Div)
        if reciprocal is None:
            continue
        *ones, divisor = reciprocal.operands
        if all(passage.scalar(one) == 1 for one in ones):
            return numerator, divisor, [reciprocal]
    return None


def _squares_and_epsilon(passage: Passage, total: Step) -> tuple[Operand | None, float | None]:
    for squares, epsilon in orders(total):
        value = passage.scalar(epsilon)
        if value is not None:
            return squares, value
    return None, None


def _mean(passage: Passage, operand: Operand | None) -> _Mean | None:
    """A mean whose axes stay, with one element each."""
    step = passage.producer(operand, ReduceMean)
    if step is None:
        return None
    values, rank = parameters_of(step, ReduceMean), len(passage.spec(step.operands[0]).shape)
    if not values["keepdims"] or (not values["axes"] and values["noop_with_empty_axes"]):
        return None
    axes = tuple(sorted(axis % rank for axis in values["axes"] or range(rank)))
    return _Mean(step.operands[0], axes, (step,))


def _mean_of_squares(passage: Passage, operand: Operand | None) -> _Mean | None:
    mean = _mean(passage, operand)
    square = None if mean is None else passage.producer(mean.of, Mul, Pow)
    if mean is None or square is None:
        return None
    base, other = square.operands
    is_square = base == other if calls(square, Mul) else passage.scalar(other) == 2
    return _Mean(base, mean.axes, (*mean.chain, square)) if is_square else None


def _centred(passage: Passage, numerator: Operand, squares: _Mean) -> _Mean | None:
    """The mean that is subtracted from both the numerator and the array that is squared."""
    means: list[_Mean] = []
    for operand in {numerator, squares.of}:
        difference = passage.producer(operand, Sub)
        mean = None if difference is None else _mean(passage, difference.operands[1])
        if difference is None or mean is None or mean.of != difference.operands[0]:
            return None
        means.append(_Mean(mean.of, mean.axes, (difference, *mean.chain)))
    first = means[0]
    if any((mean.of, mean.axes) != (first.of, squares.axes) for mean in means):
        return None
    return _Mean(first.of, first.axes, tuple(step for mean in means for step in mean.chain))
