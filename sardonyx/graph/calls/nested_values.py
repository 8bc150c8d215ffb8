"""Nested values of callers: arrays, maps of arrays, lists of these (sequences), or None."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from sardonyx.backends.base import Backend
from sardonyx.graph.values.kinds import spec_text
from sardonyx.ops.definition import Map, MapRows


def flat(values: Iterable[Any]) -> list[Any]:
    """Return the arrays in nested values, in order."""
    arrays: list[Any] = []
    for value in values:
        if isinstance(value, list):
            arrays += flat(value)
        elif isinstance(value, (Map, MapRows)):
            arrays.append(value.values)
        elif value is not None:
            arrays.append(value)
    return arrays


def each(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply `function` to every array in a nested value."""
    if isinstance(value, list):
        return [each(function, one) for one in value]
    if isinstance(value, (Map, MapRows)):
        return replace(value, values=function(value.values))
    return None if value is None else function(value)


def signature(value: Any) -> Any:
    """Return a key of library, shape and dtype: equal for values that can share a program."""
    if isinstance(value, list):
        return tuple(signature(one) for one in value)
    if isinstance(value, Map):
        return value.keys, signature(value.values)
    return None if value is None else (type(value), tuple(value.shape), value.dtype)


def kind(value: Any, backend: Backend) -> Any:
    """Return a key of shape and dtype, without the library of the arrays."""
    if isinstance(value, list):
        return tuple(kind(one, backend) for one in value)
    if isinstance(value, Map):
        return value.keys, kind(value.values, backend)
    return None if value is None else backend.spec(value)


def described(value: Any, backend: Backend) -> str:
    """Return the text for a value in the title of its program."""
    if isinstance(value, list):
        return f"sequence of {len(value)}"
    if isinstance(value, Map):
        return f"map of {len(value.keys)}"
    return "absent" if value is None else spec_text(backend.spec(value))


def as_dicts(value: Any) -> Any:
    """Convert the maps in a nested value to dicts, or lists of dicts."""
    if isinstance(value, list):
        return [as_dicts(one) for one in value]
    if isinstance(value, Map):
        return dict(zip(value.keys, value.values.tolist(), strict=True))
    if isinstance(value, MapRows):
        rows = value.values.reshape(-1, len(value.keys)).tolist()
        return [dict(zip(value.keys, row, strict=True)) for row in rows]
    return value
