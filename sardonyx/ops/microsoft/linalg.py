"""Matrix inverses and pairwise distances of com.microsoft."""

from __future__ import annotations

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import op
from sardonyx.ops.options import require_one_of
from sardonyx.ops.precision import at_least_float32


@op(domain="com.microsoft")
@at_least_float32
def Inverse(xp: Backend, X: Array) -> Array:
    """Return the inverse of each matrix; a singular matrix has no finite elements there."""
    if X.ndim < 2 or X.shape[-1] != X.shape[-2]:
        raise ValueError(f"X has shape {X.shape}, but its last two axes must form square matrices")
    return xp.inverse(X) if X.size else X


@op(domain="com.microsoft")
def CDist(xp: Backend, A: Array, B: Array, *, metric: str = "sqeuclidean") -> Array:
    """Return the distance of each row of A to each row of B."""
    require_one_of("metric", metric, ("euclidean", "sqeuclidean"))
    if A.ndim != 2 or B.ndim != 2 or A.shape[1] != B.shape[1]:
        raise ValueError(
            f"A has shape {A.shape} and B has shape {B.shape}, but both must be matrices with "
            "equally long rows"
        )
    a, b = (xp.sum(xp.square(x), axis=1) for x in (A, B))
    products = xp.matmul(A, xp.matrix_transpose(B))
    C = xp.expand_dims(a, axis=1) - 2 * products + b
    # A rounding error can make the distance of equal rows negative.
    C = xp.abs(C)
    return xp.sqrt(C) if metric == "euclidean" else C
