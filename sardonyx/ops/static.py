"""Operators that add no step to a program: their results are static, or aliases of inputs."""

from __future__ import annotations

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.ops.definition import Alias, Floats, Host, Ints, Shaped, Strings, Value, op


@op
def Identity(xp: Backend, input: Value) -> Alias:
    return input


@op
def Shape(xp: Backend, data: Shaped, *, start: int = 0, end: int | None = None) -> Host:
    # Python's slices clamp to [0, rank] just as the operator does.
    return np.asarray(data.shape[start:end], dtype=np.int64)


@op
def Size(xp: Backend, data: Shaped) -> Host:
    return np.asarray(np.prod(data.shape, dtype=np.int64))


@op
def Constant(
    xp: Backend,
    *,
    value: Host | None = None,
    sparse_value: Host | None = None,
    value_float: float | None = None,
    value_floats: Floats | None = None,
    value_int: int | None = None,
    value_ints: Ints | None = None,
    value_string: str | None = None,
    value_strings: Strings | None = None,
) -> Host:
    """Return the value of the only attribute; a sparse one is dense already."""
    candidates = {
        "value": (value, None),
        "sparse_value": (sparse_value, None),
        "value_float": (value_float, np.float32),
        "value_floats": (value_floats, np.float32),
        "value_int": (value_int, np.int64),
        "value_ints": (value_ints, np.int64),
        "value_string": (value_string, object),
        "value_strings": (value_strings, object),
    }
    present = {name: pair for name, pair in candidates.items() if pair[0] is not None}
    if len(present) != 1:
        names = " and ".join(present) or "none"
        raise ValueError(f"it must have exactly one of {', '.join(candidates)}, but has {names}")
    ((content, dtype),) = present.values()
    return np.asarray(content, dtype=dtype)
