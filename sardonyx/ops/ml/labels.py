"""Operators that map labels to other labels: integers, floats and strings."""

from __future__ import annotations

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import Floats, Host, Ints, Strings, op
from sardonyx.ops.ml.lookup import looked_up, one_of
from sardonyx.ops.ml.rows import INT64, STRING, are_strings


@op(domain="ai.onnx.ml")
def LabelEncoder(
    xp: Backend,
    X: Array,
    *,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
    default_tensor: Host | None = None,
    keys_floats: Floats | None = None,
    keys_int64s: Ints | None = None,
    keys_strings: Strings | None = None,
    keys_tensor: Host | None = None,
    values_floats: Floats | None = None,
    values_int64s: Ints | None = None,
    values_strings: Strings | None = None,
    values_tensor: Host | None = None,
) -> Array:
    """Map keys to values; the last of equal keys wins, NaN equals NaN, and -0.0 equals 0.0."""
    keys = one_of("keys_*", keys_floats, keys_int64s, keys_strings, keys_tensor)
    values = one_of("values_*", values_floats, values_int64s, values_strings, values_tensor)
    defaults = {"f": default_float, "i": default_int64, "O": default_string}
    if values.dtype.kind not in defaults:
        raise ValueError(
            f"its values are {values.dtype}, but must be floats, signed integers or strings"
        )
    fallback = defaults[values.dtype.kind]
    default = np.asarray(fallback, values.dtype) if default_tensor is None else default_tensor
    if default.size != 1 or default.dtype != values.dtype:
        raise ValueError(f"default_tensor must be a single value of type {values.dtype}")
    return looked_up(xp, X, keys, values, default)


@LabelEncoder.before(2)
def label_encoder_of_classes(
    xp: Backend,
    X: Array,
    *,
    classes_strings: Strings | None = None,
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Array:
    """Map names of classes to their positions, or positions to names, as `X` requires."""
    names = np.asarray(classes_strings or (), STRING)
    places = np.arange(len(names), dtype=INT64)
    return _between(xp, X, places, names, default_int64, default_string)


@op(domain="ai.onnx.ml")
def CategoryMapper(
    xp: Backend,
    X: Array,
    *,
    cats_int64s: Ints | None = None,
    cats_strings: Strings | None = None,
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Array:
    """Map integers to strings, or strings to integers, as `X` requires."""
    integers = np.asarray(cats_int64s or (), INT64)
    strings = np.asarray(cats_strings or (), STRING)
    return _between(xp, X, integers, strings, default_int64, default_string)


def _between(
    xp: Backend, X: Array, integers: Host, strings: Host, integer: int, string: str
) -> Array:
    if not len(integers) or not len(strings):
        raise ValueError("the list of categories is empty or missing")
    if are_strings(xp, X):
        return looked_up(xp, X, strings, integers, np.asarray(integer, INT64))
    return looked_up(xp, X, integers, strings, np.asarray(string, STRING))
