"""LinearClassifier and LinearRegressor."""

from __future__ import annotations

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import Floats, Host, Ints, Strings, Value, Walk, op
from sardonyx.ops.ml import rows


@op(domain="ai.onnx.ml")
def LinearClassifier(
    walk: Walk,
    X: Array,
    *,
    classlabels_ints: Ints | None = None,
    classlabels_strings: Strings | None = None,
    coefficients: Floats,
    intercepts: Floats | None = None,
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> tuple[Value, Value]:
    """Return labels and scores; a single score for two labels is that of the second label."""
    labels = rows.class_labels(classlabels_ints, classlabels_strings)
    return rows.classified(
        walk,
        linear_classes,
        X,
        labels,
        rows.names_of_top(labels),
        coefficients=coefficients,
        intercepts=intercepts,
        post_transform=post_transform,
    )


def linear_classes(
    xp: Backend,
    X: Array,
    *,
    labels: Host,
    coefficients: Floats,
    intercepts: Floats | None,
    post_transform: str,
) -> tuple[Array, Array]:
    x = rows.rows_of(xp, X)
    count = len(coefficients) // max(x.shape[1], 1)
    if intercepts and len(intercepts) == len(labels) < count:
        # Onnxruntime reads no more of them, and a file that it comes with has twice as many.
        count = len(labels)
        coefficients = coefficients[: count * x.shape[1]]
    if count not in (1, len(labels)):
        raise ValueError(f"there are coefficients for {count} scores, but {len(labels)} labels")
    scores = _linear(xp, x, coefficients, intercepts, count)
    if count == 1 and len(labels) == 2:
        scores = rows.two_sided(xp, scores[:, 0], is_probability=post_transform == "PROBIT")
    top = rows.top_labels(xp, scores, labels)
    return top, rows.finished(xp, scores, post_transform)


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
    scores = _linear(xp, rows.rows_of(xp, X), coefficients, intercepts, targets)
    return rows.finished(xp, scores, post_transform)


def _linear(
    xp: Backend, x: Array, coefficients: Floats | None, intercepts: Floats | None, count: int
) -> Array:
    scores = rows.products(xp, x, "coefficients", coefficients, count)
    return scores + rows.per_column(xp, "intercepts", intercepts, scores) if intercepts else scores
