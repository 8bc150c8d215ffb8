"""Products with sparse matrices, and rows of an embedding as PyTorch has them."""

from __future__ import annotations

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import Value, op
from sardonyx.ops.indexing import Gather
from sardonyx.ops.linalg import MatMul


@op(domain="com.microsoft")
def SparseToDenseMatMul(
    xp: Backend, A: Array, B: Array, *, alpha: float = 1.0, transA: int = 0, transB: int = 0
) -> Array:
    """Multiply; sparse arrays are dense here, as those of a file are after loading."""
    if A.ndim != 2 or B.ndim < 2:
        raise ValueError(
            f"A has shape {A.shape} and B has shape {B.shape}, but A must be a matrix and B must "
            "have 2 axes or more"
        )
    a, b = (xp.matrix_transpose(x) if turned else x for x, turned in ((A, transA), (B, transB)))
    Y = MatMul(xp, a, b)
    if alpha == 1:
        return Y
    return Y * (int(alpha) if xp.isdtype(Y.dtype, "integral") else alpha)


@op(domain="com.microsoft")
def TorchEmbedding(
    xp: Backend,
    weight: Array,
    indices: Array,
    padding_idx: Value = None,
    scale_grad_by_freq: Value = None,
) -> Array:
    """Return rows of the weight; the two last inputs only matter when PyTorch trains it."""
    return Gather(xp, weight, indices)
