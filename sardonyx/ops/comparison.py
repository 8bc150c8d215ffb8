"""Operators that compare, or combine truth values."""

from __future__ import annotations

from sardonyx.ops.legacy_attributes import broadcasts_by_axis
from sardonyx.ops.short_forms import binary

Equal = broadcasts_by_axis(binary("Equal", lambda xp, A, B: xp.equal(A, B)))
Greater = broadcasts_by_axis(binary("Greater", lambda xp, A, B: xp.greater(A, B)))
GreaterOrEqual = binary("GreaterOrEqual", lambda xp, A, B: xp.greater_equal(A, B))
Less = broadcasts_by_axis(binary("Less", lambda xp, A, B: xp.less(A, B)))
LessOrEqual = binary("LessOrEqual", lambda xp, A, B: xp.less_equal(A, B))
And = broadcasts_by_axis(binary("And", lambda xp, A, B: xp.logical_and(A, B)))
Or = broadcasts_by_axis(binary("Or", lambda xp, A, B: xp.logical_or(A, B)))
Xor = broadcasts_by_axis(binary("Xor", lambda xp, A, B: xp.logical_xor(A, B)))
