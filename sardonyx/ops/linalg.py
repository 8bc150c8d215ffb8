"""Matrix products and determinants."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import op
from sardonyx.ops.precision import at_least_float32


@op
def MatMul(xp: Backend, A: Array, B: Array) -> Array:
    if A.ndim == 0 or B.ndim == 0:
        raise ValueError(
            f"shapes {A.shape} and {B.shape} cannot be multiplied: a scalar is not a matrix"
        )
    if A.shape[-1] != B.shape[max(B.ndim - 2, 0)]:
        raise ValueError(
            f"shapes {A.shape} and {B.shape} cannot be multiplied: the last axis of A must have "
            "the size of the second to last axis of B"
        )
    return xp.matmul(A, B)


@op
def Gemm(
    xp: Backend,
    A: Array,
    B: Array,
    C: Array | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Array:
    """Return alpha A B + beta C, with C broadcast to the product's shape."""
    if A.ndim != 2 or B.ndim != 2:
        raise ValueError(
            f"A has shape {A.shape} and B has shape {B.shape}, but both must be matrices"
        )
    dtype = A.dtype
    if xp.isdtype(dtype, "integral") and not (alpha.is_integer() and beta.is_integer()):
        wide = xp.dtype(np.dtype(np.float64))
        A, B = xp.astype(A, wide), xp.astype(B, wide)
        C = None if C is None else xp.astype(C, wide)
    Y = MatMul(xp, xp.matrix_transpose(A) if transA else A, xp.matrix_transpose(B) if transB else B)
    Y = _times(xp, Y, alpha)
    if C is not None:
        _check_broadcasts(C, Y)
        Y = Y + _times(xp, C, beta) if beta != 0 else Y
    return xp.astype(Y, dtype)


@Gemm.before(7)
def gemm_that_broadcasts_on_request(
    xp: Backend,
    A: Array,
    B: Array,
    C: Array,
    *,
    broadcast: int = 0,
    **others: Annotated[Any, Gemm],
) -> Array:
    Y: Array = Gemm(xp, A, B, C, **others)
    if not broadcast and C.shape != Y.shape:
        raise ValueError(f"C has shape {C.shape}, but must have shape {Y.shape} as broadcast is 0")
    return Y


def _times(xp: Backend, x: Array, factor: float) -> Array:
    if factor == 1:
        return x
    return x * (int(factor) if xp.isdtype(x.dtype, "integral") else factor)


def _check_broadcasts(C: Array, Y: Array) -> None:
    tail = Y.shape[Y.ndim - C.ndim :]
    if C.ndim > Y.ndim or any(n not in (1, m) for n, m in zip(C.shape, tail, strict=True)):
        raise ValueError(f"C of shape {C.shape} does not broadcast to {Y.shape}")


@op
@at_least_float32
def Det(xp: Backend, X: Array) -> Array:
    if X.ndim < 2 or X.shape[-1] != X.shape[-2]:
        raise ValueError(f"X has shape {X.shape}, but its last two axes must form square matrices")
    return xp.det(X)
