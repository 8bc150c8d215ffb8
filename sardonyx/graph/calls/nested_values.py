"""What callers pass and get: arrays, maps of them, sequences of those as lists, or None."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from sardonyx.backends.base import Backend
from sardonyx.graph.values.kinds import spec_text
from sardonyx.ops.definition import Map, MapRows


def flat(values: Iterable[Any]) -> list[Any]:
    """The arrays in all of these, in order."""
    found: list[Any] = []
    for value in values:
        if isinstance(value, list):
            found += flat(value)
        elif isinstance(value, (Map, MapRows)):
            found.append(value.values)
        elif value is not None:
            found.append(value)
    return found


def each(function: Callable[[Any], Any], value: Any) -> Any:
    """The value with every array in it replaced by what `function` makes of it."""
    if isinstance(value, list):
        return [each(function, one) for one in value]
    if isinstance(value, (Map, MapRows)):
        return replace(value, values=function(value.values))
    return None if value is None else function(value)


def signature(value: Any) -> Any:
    """What a program is recorded for: equal for values that may share one."""
    if isinstance(value, list):
        return tuple(signature(one) for one in value)
    if isinstance(value, Map):
        return value.keys, signature(value.values)
    return None if value is None else (type(value), tuple(value.shape), value.dtype)


def kind(value: Any, backend: Backend) -> Any:
    """The same without the library that the arrays are of."""
    if isinstance(value, list):
        return tuple(kind(one, backend) for one in value)
    if isinstance(value, Map):
        return value.keys, kind(value.values, backend)
    return None if value is None else backend.spec(value)


def described(value: Any, backend: Backend) -> str:
    """A value in the title of its program."""
    if isinstance(value, list):
        return f"sequence of {len(value)}"
    if isinstance(value, Map):
        return f"map of {len(value.keys)}"
    return "absent" if value is None else spec_text(backend.spec(value))


def as_dicts(value: Any) -> Any:
    """Maps as Python's own: a dict, or a list of them."""
    if isinstance(value, list):
        return [as_dicts(one) for one in value]
    if isinstance(value, Map):
        return dict(zip(value.keys, value.values.tolist(), strict=True))
    if isinstance(value, MapRows):
        rows = value.values.reshape(-1, len(value.keys)).tolist()
        return [dict(zip(value.keys, row, strict=True)) for row in rows]
    return value
