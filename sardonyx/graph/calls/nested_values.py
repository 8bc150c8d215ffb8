"""Nested values of callers: arrays, maps of arrays, lists of these (sequences), or None."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import repeat
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.graph.values.kinds import spec_text
from sardonyx.ops.definition import Map, MapRows

# The types of nested values; any other is an array.
NESTED = (list, Map, MapRows, type(None))


def map_arrays(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply `function` to every array in a nested value."""
    if isinstance(value, list):
        return [map_arrays(function, one) for one in value]
    if isinstance(value, (Map, MapRows)):
        return replace(value, values=function(value.values))
    return None if value is None else function(value)


def key_of(value: Any, key_of_array: Callable[[Any], Any]) -> Any:
    """Return a key of a nested value: of its structure, and of each array in it."""
    if isinstance(value, list):
        # Most values are arrays, of which decoders pass many.
        return tuple(
            [
                key_of_array(one) if type(one) is np.ndarray else key_of(one, key_of_array)
                for one in value
            ]
        )
    if isinstance(value, Map):
        return value.keys, key_of_array(value.values)
    return None if value is None else key_of_array(value)


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
        return list(map(dict, map(zip, repeat(value.keys), rows)))
    return value
