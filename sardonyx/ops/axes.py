"""Axes, which ONNX counts from the back when negative, and checks of shapes."""

from __future__ import annotations

from collections.abc import Iterable

from sardonyx.backends.standard import Array


def axis_within(axis: int, rank: int) -> int:
    """Return `axis` counted from the front; it must exist in an array of this rank.

    >>> axis_within(-1, 3)
    2
    """
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is out of range for rank {rank}")
    return axis % rank


def axes_within(axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """Return `axes` counted from the front; each may occur only once."""
    positive = tuple(axis_within(axis, rank) for axis in axes)
    if len(set(positive)) < len(positive):
        raise ValueError(f"axes {positive} contain an axis twice")
    return positive


def sliced(x: Array, axis: int, start: int, end: int | None) -> Array:
    """Return the elements of `x` from `start` to `end` along one axis, counted from the front."""
    return x[(*(slice(None),) * axis, slice(start, end), ...)]


def require_shape(name: str, x: Array, shape: tuple[int, ...]) -> None:
    """Raise a ValueError unless the input called `name` has this shape."""
    if x.shape != shape:
        raise ValueError(f"{name} has shape {x.shape}, but must have shape {shape}")


def require_broadcasts(name: str, x: Array, shape: tuple[int, ...]) -> None:
    """Raise a ValueError unless the input called `name` broadcasts to this very shape."""
    pairs = zip(x.shape[::-1], shape[::-1], strict=False)
    if x.ndim > len(shape) or any(size not in (1, length) for size, length in pairs):
        raise ValueError(f"{name} of shape {x.shape} does not broadcast to {shape}")
