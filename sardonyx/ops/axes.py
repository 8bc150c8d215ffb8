"""Axes as ONNX counts them: from the front, or from the back when negative."""

from __future__ import annotations

from collections.abc import Iterable


def axis_within(axis: int, rank: int) -> int:
    """`axis` counted from the front.

    >>> axis_within(-1, 3)
    2
    """
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is out of range for rank {rank}")
    return axis % rank


def axes_within(axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """`axes` counted from the front, each at most once."""
    found = tuple(axis_within(axis, rank) for axis in axes)
    if len(set(found)) < len(found):
        raise ValueError(f"axes {found} name an axis twice")
    return found
