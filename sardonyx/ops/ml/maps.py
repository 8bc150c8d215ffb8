"""Operators that convert maps to arrays and back. The keys of a map are static."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import Host, Ints, Map, MapRows, Strings, Value, op
from sardonyx.ops.ml.lookup import one_of
from sardonyx.ops.ml.rows import (
    FLOAT32,
    INT64,
    STRING,
    are_strings,
    class_labels,
    require_choice,
    require_strings,
    to_float32,
)


@op(domain="ai.onnx.ml")
def CastMap(
    xp: Backend, X: Map, *, cast_to: str = "TO_FLOAT", map_form: str = "DENSE", max_map: int = 1
) -> Array:
    """Return the values as one row, ordered by their keys or placed at them."""
    require_choice("map_form", map_form, ("DENSE", "SPARSE"))
    require_choice("cast_to", cast_to, _CASTS)
    keys = np.asarray(X.keys, INT64)
    values = _CASTS[cast_to](xp, X.values)
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
    """Return the values in the order of the vocabulary; missing keys become zero or empty."""
    vocabulary = one_of("*_vocabulary", None, int64_vocabulary, string_vocabulary).tolist()
    place = {key: i for i, key in enumerate(X.keys)}
    unknown = [key for key in X.keys if key not in set(vocabulary)]
    if unknown:
        raise ValueError(f"the key {unknown[0]!r} is not in the vocabulary")
    places = np.asarray([place.get(word, len(place)) for word in vocabulary])
    return _placed(xp, X.values, places, "")


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


# -- casts, with strings formatted as in C++ ------------------------------------------------------


def _to_float(xp: Backend, values: Any) -> Array:
    if are_strings(xp, values):
        return xp.asarray([float(text) for text in values.tolist()], dtype=FLOAT32)
    return to_float32(xp, values)


def _to_int64(xp: Backend, values: Any) -> Array:
    if are_strings(xp, values):
        return xp.asarray([int(text) for text in values.tolist()], dtype=INT64)
    return xp.astype(values, xp.dtype(INT64))


def _to_string(xp: Backend, values: Any) -> Any:
    if are_strings(xp, values):
        return values
    require_strings(xp, np.empty(0, STRING))
    return xp.asarray([f"{number:f}" for number in values.tolist()], dtype=STRING)


_CASTS = {"TO_FLOAT": _to_float, "TO_INT64": _to_int64, "TO_STRING": _to_string}
