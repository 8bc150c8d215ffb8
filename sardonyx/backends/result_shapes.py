"""The shapes of results that can be much larger than their inputs, from the arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sardonyx.backends.standard import Shape


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


def _of_parts(parts: Sequence[Any], *_: Any) -> Shape:
    """As many elements as the result has, whatever the axis."""
    return (sum(math.prod(part.shape) for part in parts),)


RESULT_SHAPES: Mapping[str, Callable[..., Shape]] = {
    "arange": _of_range,
    "broadcast_to": lambda x, shape: tuple(shape),
    "concat": _of_parts,
    "empty": _of_shape,
    "eye": _of_matrix,
    "full": _of_shape,
    "ones": _of_shape,
    "tile": _of_tiles,
    "zeros": _of_shape,
}
