"""Inputs and outputs of models on rows of features: features, scores and labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.operations.array_library import HoldsNoStrings
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import DType, Floats, Host, Ints, Strings, Value, Walk
from sardonyx.ops.ml.tables import once

FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)
INT64 = np.dtype(np.int64)
STRING = np.dtype(object)


def rows_of(xp: Backend, X: Array) -> Array:
    """Return `X` as a matrix of floats; a vector is one row, and integers become float64."""
    if X.ndim not in (1, 2):
        raise ValueError(f"X has shape {X.shape}, but must have one axis or two: rows of features")
    rows = X if X.ndim == 2 else xp.expand_dims(X, axis=0)
    return in_float(xp, rows)


def in_float(xp: Backend, X: Array) -> Array:
    """Return `X` in float32 if it is a float of at most 32 bits, else in float64."""
    if X.dtype in (xp.dtype(FLOAT32), xp.dtype(FLOAT64)):
        return X
    is_half = xp.isdtype(X.dtype, "real floating")
    return xp.astype(X, xp.dtype(FLOAT32 if is_half else FLOAT64))


def vector(xp: Backend, values: Floats | Ints | Host, like: Array) -> Array:
    """Return the numbers of an attribute as a vector in the dtype of `like`."""
    return xp.put(_vector(values, xp.numpy_dtype(like.dtype)))


@once
def _vector(values: Floats | Ints | Host, dtype: DType) -> Host:
    return np.asarray(values, dtype).reshape(-1)


def per_column(xp: Backend, name: str, values: Any, like: Array, *, or_one: bool = False) -> Array:
    """Return an attribute with one number per column of `like`, `or_one` for all columns."""
    columns = like.shape[-1] if like.ndim else 1
    count = 0 if values is None else np.size(values)
    if count != columns and not (or_one and count == 1):
        needed = f"{'1 or ' if or_one else ''}{columns}"
        raise ValueError(f"{name} has {count} numbers, but must have {needed}, one per column")
    return vector(xp, values, like)


def matrix(xp: Backend, name: str, values: Floats | None, rows: int, like: Array) -> Array:
    """Return the numbers of an attribute as a matrix with one column per feature of `like`."""
    columns, count = like.shape[1], len(values or ())
    if count != rows * columns:
        raise ValueError(f"{name} has {count} numbers, but must have {rows} x {columns}")
    return xp.reshape(vector(xp, values or (), like), (rows, columns))


def products(xp: Backend, x: Array, name: str, values: Floats | None, rows: int) -> Array:
    """Return the product of each row of `x` with each row of an attribute's matrix."""
    return xp.matmul(x, xp.matrix_transpose(matrix(xp, name, values, rows, x)))


def require_choice(name: str, value: str, choices: Collection[str]) -> None:
    if value not in choices:
        raise ValueError(f"{name} is {value!r}, but must be one of {', '.join(choices)}")


def to_float32(xp: Backend, scores: Array) -> Array:
    return xp.astype(scores, xp.dtype(FLOAT32))


# -- labels ---------------------------------------------------------------------------------------


def class_labels(integers: Ints | None, strings: Strings | None) -> Host:
    """Return the labels of the classes, which are either integers or strings."""
    return _class_labels(integers, strings)


@once
def _class_labels(integers: Ints | None, strings: Strings | None) -> Host:
    if bool(integers) == bool(strings):
        raise ValueError(
            "the labels of the classes must be either integers or strings, and not be empty"
        )
    return np.asarray(integers, INT64) if integers else np.asarray(strings, STRING)


def classified(
    walk: Walk,
    classify: Callable[..., tuple[Array, Array]],
    X: Array,
    labels: Host,
    names: Host | None = None,
    **options: Any,
) -> tuple[Value, Value]:
    """Record a classifier, and for labels that are strings the lookup of `names` behind it.

    The classifier then returns the places of the labels. So it runs on devices without strings.
    """
    if labels.dtype != STRING:
        label, scores = walk.apply(classify, X, labels=labels, **options)
        return label, scores
    place, scores = walk.apply(classify, X, labels=np.arange(len(labels)), **options)
    return walk.look_up(names_at, place, labels if names is None else names), scores


def names_at(xp: Backend, places: Array, *, names: Host) -> Array:
    require_strings(xp, names)
    return xp.take(xp.put(names), places, axis=0)


def are_strings(xp: Backend, x: Array) -> bool:
    return xp.numpy_dtype(x.dtype) == STRING


def require_strings(xp: Backend, values: Host) -> None:
    """Raise `HoldsNoStrings`, so that a backend with strings takes over, if `values` has any."""
    if values.dtype == STRING and not xp.holds_strings:
        raise HoldsNoStrings


def chosen(xp: Backend, values: Host, places: Array) -> Array:
    """Return `values[places]`."""
    require_strings(xp, values)
    flat = xp.take(xp.put(values), xp.reshape(places, (-1,)), axis=0)
    return xp.reshape(flat, places.shape)


def top_labels(xp: Backend, scores: Array, labels: Host) -> Array:
    """Return the label of each row's highest score; a single score is tested for its sign."""
    if scores.shape[1] == 1:
        return xp.astype(scores[:, 0] > 0, xp.dtype(INT64))
    places = xp.argmax(scores, axis=1)
    is_place = np.array_equal(labels, np.arange(len(labels)))
    return xp.astype(places, xp.dtype(INT64)) if is_place else chosen(xp, labels, places)


def names_of_top(labels: Host) -> Host:
    """Return the names for the places from `top_labels`; a single label has none of its own."""
    return np.asarray(["0", "1"], STRING) if len(labels) == 1 else labels


# -- scores ---------------------------------------------------------------------------------------


def two_sided(xp: Backend, score: Array, *, is_probability: bool) -> Array:
    """Return the scores of both classes, computed from that of the second."""
    return xp.stack([1 - score if is_probability else -score, score], axis=1)


def transformed(xp: Backend, scores: Array, post_transform: str) -> Array:
    """Return the scores after a `post_transform` of each row."""
    require_choice("post_transform", post_transform, TRANSFORMS)
    return _TRANSFORMS[post_transform](xp, scores)


def finished(xp: Backend, scores: Array, post_transform: str) -> Array:
    """Return the transformed scores in float32."""
    return to_float32(xp, transformed(xp, scores, post_transform))


def logistic(xp: Backend, scores: Array) -> Array:
    """Return the logistic function, computed without overflow for either sign."""
    small = xp.exp(-xp.abs(scores))
    return xp.where(scores < 0, small, xp.ones_like(small)) / (1 + small)


def _unchanged(xp: Backend, scores: Array) -> Array:
    return scores


def _softmax(xp: Backend, scores: Array) -> Array:
    powers = xp.exp(scores - xp.max(scores, axis=1, keepdims=True))
    return powers / xp.sum(powers, axis=1, keepdims=True)


def _softmax_of_others_than_zero(xp: Backend, scores: Array) -> Array:
    """Return the softmax of nonzero scores; zeros stay zero, and a row of zeros becomes 0.5."""
    is_zero = xp.abs(scores) <= 1e-7
    powers = xp.exp(scores - xp.max(scores, axis=1, keepdims=True))
    powers = xp.where(is_zero, xp.zeros_like(powers), powers)
    total = xp.sum(powers, axis=1, keepdims=True)
    empty = xp.all(is_zero, axis=1, keepdims=True)
    shares = powers / xp.where(empty, xp.ones_like(total), total)
    return xp.where(empty, xp.full_like(shares, 0.5), shares)


def _probit(xp: Backend, scores: Array) -> Array:
    """Return the probit by Winitzki's formula for the inverse error function, as runtimes do."""
    x = 2 * scores - 1
    log = xp.where(xp.abs(x) < 0.5, xp.log1p(-x * x), xp.log((1 - x) * (1 + x)))
    half, rest = 2 / (math.pi * 0.147) + 0.5 * log, log / 0.147
    root = xp.sqrt(half * half - rest)
    # Of two equivalent forms, choose the one without cancellation.
    return math.sqrt(2) * xp.copysign(
        xp.sqrt(xp.where(half > 0, -rest / (root + half), root - half)), x
    )


_TRANSFORMS: dict[str, Callable[[Backend, Array], Array]] = {
    "NONE": _unchanged,
    "SOFTMAX": _softmax,
    "LOGISTIC": logistic,
    "SOFTMAX_ZERO": _softmax_of_others_than_zero,
    "PROBIT": _probit,
}
TRANSFORMS = tuple(_TRANSFORMS)
