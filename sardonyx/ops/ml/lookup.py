"""Lookup of numbers or strings in tables of keys."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import repeat

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import Host
from sardonyx.ops.ml import rows
from sardonyx.ops.ml.tables import once


def looked_up(xp: Backend, X: Array, keys: Host, values: Host) -> Array:
    """Return `values[i]` for elements equal to `keys[i]`, the last such key, else the last value.

    So there is one value more than there are keys.
    """
    if len(keys) != len(values) - 1:
        raise ValueError(f"there are {len(keys)} keys, but {len(values) - 1} values")
    return rows.chosen(xp, values, places_among(xp, X, keys))


def places_among(xp: Backend, X: Array, keys: Host) -> Array:
    """Return the index of each element among the keys, or their count; NaN equals NaN."""
    if xp.numpy_dtype(X.dtype) != keys.dtype:
        name = "string" if keys.dtype == rows.STRING else keys.dtype.name
        raise ValueError(f"X must have the type of the keys, {name}")
    if rows.are_strings(xp, X):
        return xp.by_element(partial(_places_of_strings, _index(keys), len(keys)), X)
    return _places_of_numbers(xp, X, keys)


def _places_of_strings(index: Mapping[str, int], other: int, X: Host) -> Host:
    places = map(index.get, X.reshape(-1).tolist(), repeat(other))
    return np.fromiter(places, rows.INT64, X.size).reshape(X.shape)


@once
def _index(keys: Host) -> dict[str, int]:
    """Return the last place of each key."""
    return {key: place for place, key in enumerate(keys.tolist())}


def _places_of_numbers(xp: Backend, X: Array, keys: Host) -> Array:
    ordered, places = _ordered(keys)
    flat, ascending = xp.reshape(X, (-1,)), xp.put(ordered)
    near = xp.astype(xp.searchsorted(ascending, flat), xp.dtype(rows.INT64))
    near = xp.minimum(near, len(ordered) - 1)
    key = xp.take(ascending, near, axis=0)
    same = xp.equal(key, flat)
    if xp.isdtype(X.dtype, "real floating"):
        same = same | (xp.isnan(key) & xp.isnan(flat))
    place = xp.take(xp.put(places), near, axis=0)
    return xp.reshape(xp.where(same, place, xp.full_like(place, len(keys))), X.shape)


@once
def _ordered(keys: Host) -> tuple[Host, Host]:
    """Return the distinct keys in ascending order, and the last index of each."""
    ordered, first = np.unique(keys[::-1], return_index=True)
    return ordered, len(keys) - 1 - first.astype(rows.INT64)


@once
def one_of(name: str, *lists: tuple[float | str, ...] | Host | None) -> Host:
    """Return the only list that is present: floats, integers, strings or a tensor."""
    present = [(i, one) for i, one in enumerate(lists) if one is not None and np.size(one)]
    if len(present) != 1:
        raise ValueError(f"{len(present)} of the lists {name} are present, but must be exactly one")
    ((kind, values),) = present
    if isinstance(values, np.ndarray):
        return values.reshape(-1)
    return np.asarray(values, dtype=_KINDS[kind])


_KINDS = (rows.FLOAT32, rows.INT64, rows.STRING)
