"""Sums and products as polynomials, so that the order in which they are written does not matter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import ml_dtypes

from sardonyx.graph.rewriting.rewriter import Passage, calls
from sardonyx.graph.tracing.steps import Operand, Step
from sardonyx.ops.definition import DType
from sardonyx.ops.elementwise import Add, Div, Mul, Neg, Pow, Sub

# The coefficient of each product of registers, which stand in ascending order.
Polynomial: TypeAlias = Mapping[tuple[int, ...], float]

# Enough for every activation; larger polynomials are something else.
_MOST_TERMS = 4
_HIGHEST_DEGREE = 4
_DEEPEST = 8


def polynomial(passage: Passage, operand: Operand, depth: int = 0) -> Polynomial | None:
    """The operand as a polynomial in registers that have several readers or another producer."""
    scalar = passage.scalar(operand)
    if scalar is not None:
        return {(): scalar}
    if not isinstance(operand, int):
        return None
    ops = (Add, Sub, Mul, Div, Neg, Pow)
    step = passage.sole_producer(operand, *ops) if depth < _DEEPEST else None
    return {(operand,): 1.0} if step is None else result_of(passage, step, depth + 1)


def result_of(passage: Passage, step: Step, depth: int = 0) -> Polynomial | None:
    """The step's result as such a polynomial."""
    first, *others = (polynomial(passage, operand, depth) for operand in step.operands)
    if first is None or None in others:
        return None
    if calls(step, Neg):
        return _product(first, {(): -1.0})
    second = others[0] or {}
    if calls(step, Add, Sub):
        return _sum(first, second, -1 if calls(step, Sub) else 1)
    if calls(step, Mul):
        return _product(first, second)
    divisor = second.get(())
    if len(second) != 1 or not divisor:
        return None
    return _power(first, divisor) if calls(step, Pow) else _product(first, {(): 1 / divisor})


def is_about(terms: Polynomial | None, expected: Polynomial, dtype: DType) -> bool:
    """Whether the coefficients are the expected ones, as far as the type can tell."""
    if terms is None or terms.keys() != expected.keys():
        return False
    closeness = 2 * float(ml_dtypes.finfo(dtype).eps)
    return all(abs(terms[key] - expected[key]) <= closeness * abs(expected[key]) for key in terms)


def _sum(one: Polynomial, other: Polynomial, sign: int) -> Polynomial | None:
    total = dict(one)
    for registers, coefficient in other.items():
        total[registers] = total.get(registers, 0.0) + sign * coefficient
    return total if len(total) <= _MOST_TERMS else None


def _product(one: Polynomial, other: Polynomial) -> Polynomial | None:
    total: dict[tuple[int, ...], float] = {}
    for left, a in one.items():
        for right, b in other.items():
            registers = tuple(sorted(left + right))
            total[registers] = total.get(registers, 0.0) + a * b
    degree = max(map(len, total), default=0)
    return total if len(total) <= _MOST_TERMS and degree <= _HIGHEST_DEGREE else None


def _power(base: Polynomial, exponent: float) -> Polynomial | None:
    if exponent not in (2, 3):
        return None
    square = _product(base, base)
    return square if exponent == 2 or square is None else _product(square, base)
