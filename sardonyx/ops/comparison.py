"""Operators that compare, or combine truth values."""

from __future__ import annotations

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import op
from sardonyx.ops.legacy_attributes import broadcasts_by_axis


@broadcasts_by_axis
@op
def Equal(xp: Backend, A: Array, B: Array) -> Array:
    return xp.equal(A, B)


@broadcasts_by_axis
@op
def Greater(xp: Backend, A: Array, B: Array) -> Array:
    return xp.greater(A, B)


@op
def GreaterOrEqual(xp: Backend, A: Array, B: Array) -> Array:
    return xp.greater_equal(A, B)


@broadcasts_by_axis
@op
def Less(xp: Backend, A: Array, B: Array) -> Array:
    return xp.less(A, B)


@op
def LessOrEqual(xp: Backend, A: Array, B: Array) -> Array:
    return xp.less_equal(A, B)


@broadcasts_by_axis
@op
def And(xp: Backend, A: Array, B: Array) -> Array:
    return xp.logical_and(A, B)


@broadcasts_by_axis
@op
def Or(xp: Backend, A: Array, B: Array) -> Array:
    return xp.logical_or(A, B)


@broadcasts_by_axis
@op
def Xor(xp: Backend, A: Array, B: Array) -> Array:
    return xp.logical_xor(A, B)
