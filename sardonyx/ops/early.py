"""What whole families of ops had in the first opsets, and later no more."""

from __future__ import annotations

import inspect
from functools import wraps
from typing import Any

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import Ints, Op


def consumes_inputs(op: Op) -> Op:
    """Until opset 6 `consumed_inputs` told whose memory may be reused; no result differs."""
    today = op.at(1).function

    @wraps(today)
    def consuming(*inputs: Any, consumed_inputs: Ints | None = None, **attributes: Any) -> Any:
        return today(*inputs, **attributes)

    hint = inspect.Parameter("consumed_inputs", inspect.Parameter.KEYWORD_ONLY, default=None)
    signature = inspect.signature(today)
    parameters = [*signature.parameters.values(), hint]
    consuming.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    consuming.__annotations__ = today.__annotations__ | {hint.name: Ints | None}
    op.before(6)(consuming)
    return op


def broadcasts_by_axis(op: Op) -> Op:
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
    if first < 0 or A.shape[first : first + B.ndim] != B.shape:
        raise ValueError(f"shape {B.shape} is no part of {A.shape} from axis {first} on")
    return xp.reshape(B, (*B.shape, *(1,) * (A.ndim - first - B.ndim)))
