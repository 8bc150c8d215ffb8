"""SVMClassifier and SVMRegressor."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import Floats, Host, Ints, Strings, Value, Walk, op
from sardonyx.ops.ml import rows
from sardonyx.ops.ml.coupling import coupled, pair_places, square

FLOAT64 = rows.FLOAT64
KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


# -- kernels --------------------------------------------------------------------------------------


def _kernels(
    xp: Backend,
    x: Array,
    count: int,
    *,
    kernel_params: Floats | None = None,
    kernel_type: str = "LINEAR",
    support_vectors: Floats | None = None,
) -> Array:
    """Return the kernel of each row and each support vector."""
    rows.require_choice("kernel_type", kernel_type, KERNELS)
    if kernel_params and len(kernel_params) != 3:
        raise ValueError(f"kernel_params has {len(kernel_params)} numbers, but must have 3")
    gamma, offset, degree = kernel_params or (0.0, 0.0, 0.0)
    vectors = rows.matrix(xp, "support_vectors", support_vectors, count, x)
    if kernel_type == "RBF":
        return xp.exp(-gamma * xp.astype(_squared_distances(xp, x, vectors), x.dtype))
    alike = xp.matmul(x, xp.matrix_transpose(vectors))
    if kernel_type == "LINEAR":
        return alike
    alike = alike * gamma + offset
    return alike**degree if kernel_type == "POLY" else xp.tanh(alike)


def _squared_distances(xp: Backend, x: Array, vectors: Array) -> Array:
    """Return squared distances, computed in float64, as the squares cancel."""
    x, vectors = (xp.astype(v, xp.dtype(FLOAT64)) for v in (x, vectors))
    squares = xp.sum(xp.square(x), axis=1, keepdims=True)
    others = xp.sum(xp.square(vectors), axis=1)
    between = squares + others - 2 * xp.matmul(x, xp.matrix_transpose(vectors))
    # An infinite row is infinitely far away, though its square and its product cancel to NaN.
    is_far = xp.isnan(between) & ~xp.isnan(squares)
    return xp.where(is_far, xp.full_like(between, math.inf), xp.maximum(between, 0.0))


# -- operators -------------------------------------------------------------------------------------


@op(domain="ai.onnx.ml")
def SVMClassifier(
    walk: Walk,
    X: Array,
    *,
    classlabels_ints: Ints | None = None,
    classlabels_strings: Strings | None = None,
    coefficients: Floats | None = None,
    post_transform: str = "NONE",
    prob_a: Floats | None = None,
    prob_b: Floats | None = None,
    rho: Floats | None = None,
    vectors_per_class: Ints | None = None,
    **kernel: Annotated[Any, _kernels],
) -> tuple[Value, Value]:
    """Return labels and scores; with support vectors, each pair of classes has a score and a vote.

    The scores are those of the pairs, or the probabilities of the classes if `prob_a` is present.
    """
    return rows.classified(
        walk,
        support_vector_classes,
        X,
        rows.class_labels(classlabels_ints, classlabels_strings),
        coefficients=coefficients,
        post_transform=post_transform,
        prob_a=prob_a,
        prob_b=prob_b,
        rho=rho,
        vectors_per_class=vectors_per_class,
        **kernel,
    )


def support_vector_classes(
    xp: Backend,
    X: Array,
    *,
    labels: Host,
    coefficients: Floats | None,
    post_transform: str,
    prob_a: Floats | None,
    prob_b: Floats | None,
    rho: Floats | None,
    vectors_per_class: Ints | None,
    **kernel: Any,
) -> tuple[Array, Array]:
    x = rows.rows_of(xp, X)
    if not sum(vectors_per_class or ()):
        scores = rows.products(xp, x, "coefficients", coefficients, len(labels)) + _bias(rho)
        top = rows.chosen(xp, labels, xp.argmax(scores, axis=1))
        return top, rows.finished(xp, scores, post_transform)
    counts = _counts(vectors_per_class, len(labels))
    # Large coefficients of both signs cancel.
    x = xp.astype(x, xp.dtype(FLOAT64))
    kernels = _kernels(xp, x, sum(counts), **kernel)
    pairs = _pair_scores(xp, kernels, coefficients, counts)
    pairs = pairs + rows.per_column(xp, "rho", rho, pairs)
    wins = square(xp, xp.astype(pairs > 0, x.dtype), len(labels))
    top = rows.chosen(xp, labels, xp.argmax(xp.sum(wins, axis=2), axis=1))
    if prob_a:
        steepness = rows.per_column(xp, "prob_a", prob_a, pairs)
        offset = rows.per_column(xp, "prob_b", prob_b, pairs)
        likely = rows.logistic(xp, -(pairs * steepness + offset))
        pairs = coupled(xp, likely, len(labels))
    elif len(labels) == 2:
        pairs = rows.two_sided(xp, pairs[:, 0], is_probability=post_transform == "PROBIT")
    return top, rows.finished(xp, pairs, post_transform)


@op(domain="ai.onnx.ml")
def SVMRegressor(
    xp: Backend,
    X: Array,
    *,
    coefficients: Floats | None = None,
    n_supports: int = 0,
    one_class: int = 0,
    post_transform: str = "NONE",
    rho: Floats | None = None,
    **kernel: Annotated[Any, _kernels],
) -> Array:
    """Return scores; with `one_class`, 1 for members of the class and -1 for others."""
    x = rows.rows_of(xp, X)
    if n_supports > 0:
        x = _kernels(xp, x, n_supports, **kernel)
    scores = rows.products(xp, x, "coefficients", coefficients, 1) + _bias(rho)
    if one_class:
        scores = xp.where(scores > 0, xp.ones_like(scores), -xp.ones_like(scores))
    return rows.finished(xp, scores, post_transform)


def _bias(rho: Floats | None) -> float:
    if not rho:
        raise ValueError("rho is missing, but must have at least one number")
    return rho[0]


# -- pairs of classes -----------------------------------------------------------------------------


def _counts(vectors_per_class: Ints | None, classes: int) -> Ints:
    counts = vectors_per_class or ()
    if classes < 2 or len(counts) != classes or min(counts) < 0:
        raise ValueError(
            f"vectors_per_class {counts} must be non-negative numbers, one for each of {classes} "
            "classes, at least two"
        )
    return counts


def _pair_scores(xp: Backend, kernels: Array, coefficients: Floats | None, counts: Ints) -> Array:
    """Return the score of each pair; support vectors have a coefficient per other class."""
    others = len(counts) - 1
    weights = xp.matrix_transpose(rows.matrix(xp, "coefficients", coefficients, others, kernels))
    ends = np.cumsum(counts).tolist()
    against = [
        xp.matmul(kernels[:, end - count : end], weights[end - count : end, :])
        for end, count in zip(ends, counts, strict=True)
    ]
    first, second = pair_places(len(counts))
    flat = xp.concat(against, axis=1)
    one, other = (
        xp.take(flat, xp.put(places), axis=1)
        for places in (first * others + second - 1, second * others + first)
    )
    return one + other
