"""Attributes that whole families of operators had in early opsets only."""

from __future__ import annotations

from typing import Any

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import Ints, Op, R


def consumes_inputs(op: Op[R]) -> Op[R]:
    """Accept `consumed_inputs` before opset 6, a hint on memory that changes no result."""
    op.ignores("consumed_inputs", Ints, before=6)
    return op


def outputs_sequence(op: Op[R]) -> Op[R]:
    """Accept `output_sequence` before opset 7; the node's outputs say whether Y is needed."""
    op.ignores("output_sequence", int, 0, before=7)
    return op


def broadcasts_by_axis(op: Op[R]) -> Op[R]:
    """Before opset 7, broadcast `B` only on request, along the axes of `A` from `axis` on."""

    @op.before(7)
    def along_axis(
        xp: Backend,
        A: Array,
        B: Array,
        *,
        axis: int | None = None,
        broadcast: int = 0,
        consumed_inputs: Ints | None = None,
    ) -> Any:
        return op(xp, A, aligned(xp, A, B, axis, broadcast))

    return op


def aligned(xp: Backend, A: Array, B: Array, axis: int | None, broadcast: int) -> Array:
    """Return `B` reshaped so that it broadcasts to `A` as the first opsets define it."""
    if A.shape == B.shape:
        return B
    if not broadcast:
        raise ValueError(f"shapes {A.shape} and {B.shape} differ, but broadcast is 0")
    if B.size == 1:
        return xp.reshape(B, ())
    first = A.ndim - B.ndim if axis is None else axis + (A.ndim if axis < 0 else 0)
    beside = A.shape[max(first, 0) : first + B.ndim]
    if len(beside) < B.ndim or any(b not in (1, a) for a, b in zip(beside, B.shape, strict=True)):
        raise ValueError(f"shape {B.shape} does not match {A.shape} from axis {first} on")
    return xp.reshape(B, (*B.shape, *(1,) * (A.ndim - first - B.ndim)))
