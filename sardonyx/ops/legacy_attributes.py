"""What whole families of ops had in the first opsets, and later no more."""

from __future__ import annotations

from typing import Any

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import Ints, Op, R


def consumes_inputs(op: Op[R]) -> Op[R]:
    """Until opset 6 `consumed_inputs` told whose memory may be reused; no result differs."""
    op.ignores("consumed_inputs", Ints, before=6)
    return op


def outputs_sequence(op: Op[R]) -> Op[R]:
    """Until opset 7 `output_sequence` told whether Y is wanted, which the node's outputs tell."""
    op.ignores("output_sequence", int, 0, before=7)
    return op


def broadcasts_by_axis(op: Op[R]) -> Op[R]:
    """Until opset 7 `B` was broadcast on request alone, and along A's axes from `axis` on."""

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
    """`B` in a shape that broadcasts to A's as the first opsets meant it."""
    if A.shape == B.shape:
        return B
    if not broadcast:
        raise ValueError(f"shapes {A.shape} and {B.shape} differ, and broadcast is 0")
    if B.size == 1:
        return xp.reshape(B, ())
    first = A.ndim - B.ndim if axis is None else axis + (A.ndim if axis < 0 else 0)
    beside = A.shape[max(first, 0) : first + B.ndim]
    if len(beside) < B.ndim or any(b not in (1, a) for a, b in zip(beside, B.shape, strict=True)):
        raise ValueError(f"shape {B.shape} is no part of {A.shape} from axis {first} on")
    return xp.reshape(B, (*B.shape, *(1,) * (A.ndim - first - B.ndim)))
