"""Values made of a few numbers, and so of any size: refused before they are made."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.errors import LimitExceeded

if TYPE_CHECKING:
    from sardonyx.backends.base import Backend

Shape = tuple[int, ...]


def refuse_huge(shape: Shape, dtype: np.dtype[Any], most: int, copies: int = 1) -> None:
    """Refuse a value that would take more than `most` bytes, or `copies` of it while it is made."""
    size = math.prod(shape) * dtype.itemsize * copies
    if size > most:
        raise LimitExceeded(
            f"a value of shape {list(shape)} and type {dtype.name} would take {size:,} bytes"
            f"{' while it is made' if copies > 1 else ''}; at most {most:,} are allowed. Make it "
            "smaller, or raise sardonyx.backends.base.Backend.largest_value"
        )
    if math.prod(filter(None, shape)) * dtype.itemsize >= 2**63:
        raise LimitExceeded(
            f"a value of shape {list(shape)} has no elements, but axes too large to be counted"
        )


def guarded(backend: Backend, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """One of the standard's functions, asking `backend` first where it makes much of little."""
    if name not in _SHAPE_MADE:
        return function
    shape_made = _SHAPE_MADE[name]

    @wraps(function)
    def careful(*arguments: Any, **options: Any) -> Any:
        dtype = options.get("dtype", getattr(arguments[0], "dtype", None))
        known = np.dtype(np.float64) if dtype is None else backend.numpy_dtype(dtype)
        backend.allow(shape_made(*arguments), known)
        return function(*arguments, **options)

    return careful


def _of_shape(shape: int | Shape, *_: Any) -> Shape:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def _of_range(start: Any, stop: Any = None, step: Any = 1) -> Shape:
    first, last = (0, start) if stop is None else (start, stop)
    # Exact for integers of any size, and near enough for floats.
    return (max(int((last - first) // step), 0),)


def _of_matrix(rows: int, columns: int | None = None) -> Shape:
    return (rows, rows if columns is None else columns)


def _of_tiles(x: Any, repetitions: Shape) -> Shape:
    rank = max(x.ndim, len(repetitions))
    sides = ((1,) * (rank - len(side)) + tuple(side) for side in (x.shape, repetitions))
    return tuple(size * count for size, count in zip(*sides, strict=True))


def _of_target(x: Any, shape: Shape) -> Shape:
    return tuple(shape)


_SHAPE_MADE: Mapping[str, Callable[..., Shape]] = {
    "arange": _of_range,
    "broadcast_to": _of_target,
    "empty": _of_shape,
    "eye": _of_matrix,
    "full": _of_shape,
    "ones": _of_shape,
    "tile": _of_tiles,
    "zeros": _of_shape,
}
