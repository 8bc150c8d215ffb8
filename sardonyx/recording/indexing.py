"""Indexing of symbolic arrays, as NumPy's: numbers, slices, None, an ellipsis, or one array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sardonyx.errors import InvalidInput

_LAST = 2**31 - 1


def indexed(array: Any, key: Any, apply: Callable[..., Any]) -> Any:
    """Return `array[key]`, recorded as slices, one gathering, and axes removed and added."""
    keys = _expanded(array, key if isinstance(key, tuple) else (key,))
    cuts: list[tuple[Any, Any, int, Any]] = []
    gathered = []
    by_axis = list(enumerate(each for each in keys if each is not None))
    for axis, each in by_axis:
        if isinstance(each, slice):
            cuts += [] if _is_whole(each) else [_cut(each, axis)]
        elif _is_number(each):
            cuts.append(_cut_of_number(array, int(each), axis))
        else:
            gathered.append((axis, _indices(array, each)))
    removed = [axis for axis, each in by_axis if _is_number(each)]
    if len(gathered) > 1 or (gathered and (removed or any(each is None for each in keys))):
        raise InvalidInput(
            f"{array} is indexed by an array and more: take O.GatherND, or index it in two steps."
        )
    result = apply("Slice", array, *map(list, zip(*cuts, strict=True))) if cuts else array
    for axis, indices in gathered:
        result = apply("Gather", result, indices, axis=axis)
    result = apply("Squeeze", result, removed) if removed else result
    added = _places_of_new_axes(keys)
    return apply("Unsqueeze", result, added) if added else result


def _is_number(key: Any) -> bool:
    return isinstance(key, (int, np.integer)) and not isinstance(key, bool)


def _is_whole(key: slice) -> bool:
    return key.start is None and key.stop is None and key.step is None


def _cut(key: slice, axis: int) -> tuple[Any, Any, int, Any]:
    """Return where a slice starts and ends, its axis and its step."""
    is_backward = isinstance(key.step, int) and key.step < 0
    start = (_LAST if is_backward else 0) if key.start is None else key.start
    stop = (-_LAST if is_backward else _LAST) if key.stop is None else key.stop
    return start, stop, axis, 1 if key.step is None else key.step


def _cut_of_number(array: Any, index: int, axis: int) -> tuple[Any, Any, int, Any]:
    size = array.dimensions[axis]
    if isinstance(size, int) and not -size <= index < size:
        raise InvalidInput(f"The index {index} is out of range for axis {axis} of {array}.")
    return index, _LAST if index == -1 else index + 1, axis, 1


def _expanded(array: Any, keys: tuple[Any, ...]) -> list[Any]:
    """Return a key for each axis, and None for each new one, without an ellipsis."""
    ellipses = [i for i, each in enumerate(keys) if each is Ellipsis]
    used = sum(each is not None and each is not Ellipsis for each in keys)
    rank = array.ndim
    if len(ellipses) > 1 or used > rank:
        raise InvalidInput(f"{array} has {rank} axes, and cannot be indexed by {len(keys)} keys.")
    fill = [slice(None)] * (rank - used)
    at = ellipses[0] if ellipses else len(keys)
    return [*keys[:at], *fill, *keys[at + 1 :]]


def _indices(array: Any, key: Any) -> Any:
    indices = np.asarray(key) if isinstance(key, list) else key
    kind = getattr(getattr(indices, "dtype", None), "kind", None)
    if kind == "b" or isinstance(key, bool):
        raise InvalidInput(f"{array} is indexed by a mask: take O.Compress, or O.Where.")
    if kind not in ("i", "u"):
        raise InvalidInput(f"{array} is indexed by {key!r:.100}: pass integers or slices.")
    return indices


def _places_of_new_axes(keys: list[Any]) -> list[int]:
    places, at = [], 0
    for each in keys:
        if each is None:
            places.append(at)
        if each is not None and _is_number(each):
            continue
        at += 1
    return places
