"""Operators that preprocess features."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import Listed, Within
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import Floats, Ints, Strings, op
from sardonyx.ops.ml.lookup import one_of, places_among
from sardonyx.ops.ml.rows import (
    FLOAT32,
    INT64,
    STRING,
    in_float,
    per_column,
    require_choice,
    to_float32,
)


@op(domain="ai.onnx.ml")
def ArrayFeatureExtractor(xp: Backend, X: Array, Y: Array) -> Array:
    """Select elements of the last axis; a vector is one row."""
    if not X.ndim:
        raise ValueError("X is a scalar, but must have an axis of features")
    if Y.size and not X.shape[-1]:
        raise ValueError("the last axis of X has no elements to extract")
    rows = X if X.ndim > 1 else xp.expand_dims(X, axis=0)
    xp.require(Y, Within("Y", -X.shape[-1], X.shape[-1] - 1))
    return xp.take(rows, xp.reshape(Y, (-1,)), axis=rows.ndim - 1)


@op(domain="ai.onnx.ml")
def Binarizer(xp: Backend, X: Array, *, threshold: float = 0.0) -> Array:
    return xp.astype(in_float(xp, X) > threshold, X.dtype)


@op(domain="ai.onnx.ml")
def FeatureVectorizer(xp: Backend, *X: Array, inputdimensions: Ints | None = None) -> Array:
    """Concatenate inputs, each truncated or zero-padded to its number of columns."""
    matrices = [x if x.ndim == 2 else xp.reshape(x, (1, -1)) for x in X if x.ndim in (1, 2)]
    rows = {x.shape[0] for x in matrices}
    if len(matrices) < len(X) or len(rows) != 1:
        raise ValueError("the inputs must be matrices or vectors with the same number of rows")
    widths = inputdimensions or tuple(x.shape[1] for x in matrices)
    if len(widths) != len(X) or min(widths) < 0:
        raise ValueError(
            f"inputdimensions {widths} must be {len(X)} non-negative numbers, one per input"
        )
    fitted = (_columns(xp, x, width) for x, width in zip(matrices, widths, strict=True))
    return xp.concat([*fitted], axis=1)


def _columns(xp: Backend, x: Array, width: int) -> Array:
    truncated = to_float32(xp, x[:, : min(width, x.shape[1])])
    return xp.pad(truncated, [(0, 0), (0, width - truncated.shape[1])], 0.0)


@op(domain="ai.onnx.ml")
def Imputer(
    xp: Backend,
    X: Array,
    *,
    imputed_value_floats: Floats | None = None,
    imputed_value_int64s: Ints | None = None,
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Array:
    """Replace a value by the imputed one, which is common to all features or one per feature."""
    is_float = xp.isdtype(X.dtype, "real floating")
    imputed = imputed_value_floats if is_float else imputed_value_int64s
    replaced = replaced_value_float if is_float else replaced_value_int64
    kind = "imputed_value_floats" if is_float else "imputed_value_int64s"
    dtype = xp.numpy_dtype(X.dtype)
    if not is_float and not _holds(dtype, (replaced, *(imputed or ()))):
        raise ValueError(f"{kind} {imputed} or replaced_value_int64 {replaced} exceeds {dtype}")
    missing = xp.isnan(X) if is_float and np.isnan(replaced) else xp.equal(X, replaced)
    return xp.where(missing, per_column(xp, kind, imputed, X, or_one=True), X)


def _holds(dtype: Any, values: Any) -> bool:
    return all(np.iinfo(dtype).min <= value <= np.iinfo(dtype).max for value in values)


@op(domain="ai.onnx.ml")
def Normalizer(xp: Backend, X: Array, *, norm: str = "MAX") -> Array:
    """Divide each row by its maximum, its L1 norm or its L2 norm, unless that is zero.

    The maximum is that of the numbers beside NaN.
    """
    require_choice("norm", norm, ("MAX", "L1", "L2"))
    if X.ndim not in (1, 2):
        raise ValueError(f"X has {X.ndim} axes, but must have 1 or 2")
    x = in_float(xp, X)
    if norm == "L1":
        divisor = xp.sum(xp.abs(x), axis=-1, keepdims=True)
    elif norm == "L2":
        divisor = xp.sqrt(xp.sum(xp.square(x), axis=-1, keepdims=True))
    else:
        numbers = xp.where(xp.isnan(x), xp.full_like(x, -np.inf), x)
        divisor = xp.max(numbers, axis=-1, keepdims=True) if x.size else x
    return to_float32(xp, x / xp.where(xp.equal(divisor, 0), xp.ones_like(divisor), divisor))


@op(domain="ai.onnx.ml")
def OneHotEncoder(
    xp: Backend,
    X: Array,
    *,
    cats_int64s: Ints | None = None,
    cats_strings: Strings | None = None,
    zeros: int = 1,
) -> Array:
    """Encode categories; without `zeros` an unknown one is an error, or NaN if unchecked."""
    categories = one_of("cats_*", None, cats_int64s, cats_strings)
    x = X if categories.dtype == STRING else xp.astype(X, xp.dtype(INT64))
    xp.allow((*X.shape, len(categories)), FLOAT32)
    places = xp.expand_dims(places_among(xp, x, categories), axis=X.ndim)
    chosen = to_float32(xp, xp.equal(places, xp.arange(len(categories), dtype=xp.dtype(INT64))))
    if zeros:
        return chosen
    unknown = xp.equal(places, len(categories))
    xp.require(places, Listed("X", len(categories)))
    return xp.where(unknown, xp.full_like(chosen, np.nan), chosen)


@op(domain="ai.onnx.ml")
def Scaler(
    xp: Backend, X: Array, *, offset: Floats | None = None, scale: Floats | None = None
) -> Array:
    """Shift, then scale; the numbers are common to all features or one per feature."""
    x = in_float(xp, X)
    if offset:
        x = x - per_column(xp, "offset", offset, x, or_one=True)
    if scale:
        x = x * per_column(xp, "scale", scale, x, or_one=True)
    return to_float32(xp, x)
