"""LinearClassifier and LinearRegressor."""

from __future__ import annotations

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import Floats, Ints, Strings, op
from sardonyx.ops.ml import rows


@op(domain="ai.onnx.ml")
def LinearClassifier(
    xp: Backend,
    X: Array,
    *,
    classlabels_ints: Ints | None = None,
    classlabels_strings: Strings | None = None,
    coefficients: Floats,
    intercepts: Floats | None = None,
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> tuple[Array, Array]:
    """Return labels and scores; a single score for two labels is that of the second label."""
    labels = rows.class_labels(classlabels_ints, classlabels_strings)
    rows.require_strings(xp, labels)
    x = rows.rows_of(xp, X)
    count = len(coefficients) // max(x.shape[1], 1)
    if count not in (1, len(labels)):
        raise ValueError(f"there are coefficients for {count} scores, but {len(labels)} labels")
    scores = _linear(xp, x, coefficients, intercepts, count)
    if count == 1 and len(labels) == 2:
        scores = rows.two_sided(xp, scores[:, 0], is_probability=post_transform == "PROBIT")
    top = rows.top_labels(xp, scores, labels)
    return top, rows.to_float32(xp, rows.transformed(xp, scores, post_transform))


@op(domain="ai.onnx.ml")
def LinearRegressor(
    xp: Backend,
    X: Array,
    *,
    coefficients: Floats | None = None,
    intercepts: Floats | None = None,
    post_transform: str = "NONE",
    targets: int = 1,
) -> Array:
    if targets < 1:
        raise ValueError(f"targets is {targets}, but must be at least 1")
    scores = _linear(xp, rows.rows_of(xp, X), coefficients or (), intercepts, targets)
    return rows.to_float32(xp, rows.transformed(xp, scores, post_transform))


def _linear(
    xp: Backend, x: Array, coefficients: Floats, intercepts: Floats | None, count: int
) -> Array:
    weights = rows.matrix(xp, "coefficients", coefficients, count, x)
    scores = xp.matmul(x, xp.matrix_transpose(weights))
    if not intercepts:
        return scores
    if len(intercepts) != count:
        raise ValueError(f"there are {len(intercepts)} intercepts, but {count} scores")
    return scores + rows.vector(xp, intercepts, x)
