"""Operators that map labels to other labels: integers, floats and strings."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import Floats, Host, Ints, Strings, op
from sardonyx.ops.ml.lookup import looked_up, one_of
from sardonyx.ops.ml.rows import INT64, STRING, are_strings
from sardonyx.ops.ml.tables import once


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
    keys = keys_floats, keys_int64s, keys_strings, keys_tensor
    values = values_floats, values_int64s, values_strings, values_tensor
    defaults = default_float, default_int64, default_string, default_tensor
    return looked_up(xp, X, *_table(*keys, *values, *defaults))


@once
def _table(*lists_and_defaults: Any) -> tuple[Host, Host]:
    """Return the keys, and their values followed by the default."""
    keys = one_of("keys_*", *lists_and_defaults[:4])
    values = one_of("values_*", *lists_and_defaults[4:8])
    return keys, _with_default(values, *lists_and_defaults[8:])


def _with_default(
    values: Host, of_floats: float, of_integers: int, of_strings: str, of_any: Host | None
) -> Host:
    """Return the values, and after them the default of their type."""
    defaults = {"f": of_floats, "i": of_integers, "O": of_strings}
    if values.dtype.kind not in defaults:
        raise ValueError(
            f"its values are {values.dtype}, but must be floats, signed integers or strings"
        )
    fallback = defaults[values.dtype.kind]
    default = np.asarray(fallback, values.dtype) if of_any is None else of_any
    if default.size != 1 or default.dtype != values.dtype:
        raise ValueError(f"default_tensor must be a single value of type {values.dtype}")
    return np.append(values, default)


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
    names, places = _numbered(classes_strings or ())
    return _between(xp, X, places, names, default_int64, default_string)


@once
def _numbered(names: Strings) -> tuple[Host, Host]:
    return np.asarray(names, STRING), np.arange(len(names), dtype=INT64)


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
    integers, strings = _categories(cats_int64s or (), cats_strings or ())
    return _between(xp, X, integers, strings, default_int64, default_string)


@once
def _categories(integers: Ints, strings: Strings) -> tuple[Host, Host]:
    return np.asarray(integers, INT64), np.asarray(strings, STRING)


def _between(
    xp: Backend, X: Array, integers: Host, strings: Host, integer: int, string: str
) -> Array:
    if not len(integers) or not len(strings):
        raise ValueError("the list of categories is empty or missing")
    if are_strings(xp, X):
        return looked_up(xp, X, strings, _followed_by(integers, integer))
    return looked_up(xp, X, integers, _followed_by(strings, string))


@once
def _followed_by(values: Host, default: int | str) -> Host:
    return np.append(values, np.asarray(default, values.dtype))
