"""Operators that convert maps to arrays and back. The keys of a map are static."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import DType, Host, Ints, Map, MapRows, Strings, Value, op
from sardonyx.ops.ml.lookup import one_of
from sardonyx.ops.ml.rows import (
    FLOAT32,
    INT64,
    STRING,
    are_strings,
    class_labels,
    require_choice,
    require_strings,
)


@op(domain="ai.onnx.ml")
def CastMap(
    xp: Backend, X: Map, *, cast_to: str = "TO_FLOAT", map_form: str = "DENSE", max_map: int = 1
) -> Array:
    """Return the values as one row, ordered by their keys or placed at them."""
    require_choice("map_form", map_form, ("DENSE", "SPARSE"))
    require_choice("cast_to", cast_to, _CASTS)
    keys = np.asarray(X.keys, INT64)
    values = _cast(xp, X.values, *_CASTS[cast_to])
    if map_form == "DENSE":
        return xp.expand_dims(_placed(xp, values, np.argsort(keys), "0.f"), axis=0)
    if max_map < 1 or (keys.size and not 0 <= keys.min() <= keys.max() < max_map):
        raise ValueError(f"the keys {X.keys} do not fit a row of max_map {max_map}")
    xp.allow((1, max_map), INT64)
    places = np.full(max_map, len(keys))
    places[keys] = np.arange(len(keys))
    return xp.expand_dims(_placed(xp, values, places, "0.f"), axis=0)


@op(domain="ai.onnx.ml")
def DictVectorizer(
    xp: Backend,
    X: Map,
    *,
    int64_vocabulary: Ints | None = None,
    string_vocabulary: Strings | None = None,
) -> Array:
    """Return the values in the order of the vocabulary; missing keys become zero or empty.

    The standard has a vector. As in onnxruntime it is a matrix of one row, because skl2onnx writes
    operators behind it that need one.
    """
    vocabulary = one_of("*_vocabulary", None, int64_vocabulary, string_vocabulary).tolist()
    place = {key: i for i, key in enumerate(X.keys)}
    unknown = [key for key in X.keys if key not in set(vocabulary)]
    if unknown:
        raise ValueError(f"the key {unknown[0]!r} is not in the vocabulary")
    places = np.asarray([place.get(word, len(place)) for word in vocabulary])
    return xp.expand_dims(_placed(xp, X.values, places, ""), axis=0)


@op(domain="ai.onnx.ml")
def ZipMap(
    xp: Backend,
    X: Value,
    *,
    classlabels_int64s: Ints | None = None,
    classlabels_strings: Strings | None = None,
) -> Value:
    """Return a map for each row, with the labels as keys; a vector is one row."""
    labels = class_labels(classlabels_int64s, classlabels_strings)
    if len(X.shape) not in (1, 2) or X.shape[-1] != len(labels):
        raise ValueError(
            f"X has shape {X.shape}, but must have one column for each of {len(labels)} labels"
        )
    return MapRows(tuple(labels.tolist()), X)


def _placed(xp: Backend, values: Array, places: Host, blank: str) -> Array:
    """Return the values at some places; the place after the last value is a zero, or `blank`."""
    nothing = np.asarray([blank if are_strings(xp, values) else 0], xp.numpy_dtype(values.dtype))
    return xp.take(xp.concat([values, xp.put(nothing)], axis=0), xp.put(places), axis=0)


def _cast(xp: Backend, values: Any, dtype: DType, convert: Callable[[Any], object]) -> Any:
    """Return the values in a dtype; `convert` parses strings, or formats numbers as in C++."""
    old = xp.numpy_dtype(values.dtype)
    if STRING not in (old, dtype):
        return xp.astype(values, xp.dtype(dtype))
    require_strings(xp, np.empty(0, dtype))
    if old == dtype:
        return values
    return xp.asarray([convert(value) for value in values.tolist()], dtype=dtype)


_CASTS: Mapping[str, tuple[DType, Callable[[Any], object]]] = {
    "TO_FLOAT": (FLOAT32, float),
    "TO_INT64": (INT64, int),
    "TO_STRING": (STRING, "{:f}".format),
}
