"""Matrix products of com.microsoft, fused with transpositions, factors and activations."""

from __future__ import annotations

from typing import Annotated, Any

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops import linalg
from sardonyx.ops.definition import op
from sardonyx.ops.microsoft.activation import FastGelu
from sardonyx.ops.microsoft.fused_activation import activated_by_attributes


@op(domain="com.microsoft")
def FusedMatMul(
    xp: Backend,
    A: Array,
    B: Array,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Array:
    """Return alpha A B, where A and B can be transposed in their last two axes.

    The first axis of a factor with `transBatch` belongs to its matrices: it follows the batch.
    """
    if (transBatchA or transBatchB) and (A.ndim != B.ndim or A.ndim < 3):
        raise ValueError(
            f"A has shape {A.shape} and B has shape {B.shape}, but with transBatchA or "
            "transBatchB both must have the same number of axes, at least three"
        )
    A = xp.moveaxis(A, 0, -2) if transBatchA else A
    B = xp.moveaxis(B, 0, -2) if transBatchB else B
    return _product(xp, A, B, alpha=alpha, transA=transA, transB=transB)


@op(domain="com.microsoft")
def TransposeMatMul(
    xp: Backend, A: Array, B: Array, *, alpha: float = 1.0, transA: int = 0, transB: int = 0
) -> Array:
    """Return alpha A B, where A and B can be transposed in their last two axes."""
    return _product(xp, A, B, alpha=alpha, transA=transA, transB=transB)


def _product(xp: Backend, A: Array, B: Array, *, alpha: float, transA: int, transB: int) -> Array:
    """Return alpha A B; a vector has nothing to transpose."""
    A = xp.matrix_transpose(A) if transA and A.ndim > 1 else A
    B = xp.matrix_transpose(B) if transB and B.ndim > 1 else B
    Y = linalg.MatMul(xp, A, B)
    return Y if alpha == 1 else Y * alpha


@op(domain="com.microsoft")
def FusedMatMulActivation(
    xp: Backend,
    A: Array,
    B: Array,
    *,
    activation: str,
    activation_alpha: float | None = None,
    activation_axis: int | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    **product: Annotated[Any, FusedMatMul],
) -> Array:
    return activated_by_attributes(
        xp,
        FusedMatMul(xp, A, B, **product),
        activation,
        alpha=activation_alpha,
        axis=activation_axis,
        beta=activation_beta,
        gamma=activation_gamma,
    )


@op(domain="com.microsoft")
def FusedGemm(
    xp: Backend,
    A: Array,
    B: Array,
    C: Array | None = None,
    *,
    activation: str | None = None,
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    **product: Annotated[Any, linalg.Gemm],
) -> Array:
    return activated_by_attributes(
        xp,
        linalg.Gemm(xp, A, B, C, **product),
        activation,
        alpha=activation_alpha,
        beta=activation_beta,
        gamma=activation_gamma,
    )


@op(domain="com.microsoft")
def GemmFastGelu(xp: Backend, X: Array, W: Array, bias: Array | None = None) -> Array:
    return FastGelu(xp, linalg.MatMul(xp, X, W), bias)
