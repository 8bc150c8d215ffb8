"""How stacks of matrices are multiplied in place: strides become cuBLAS's arguments.

This knows shapes and strides alone, and neither CuPy nor cuBLAS. Strides are counted in elements.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sardonyx.backends.standard import Shape

Strides = tuple[int, ...]
# cuBLAS counts rows, columns and leading dimensions in int32, and some kernels stacks in uint16.
LARGEST_SIZE, LARGEST_STACK = 2**31 - 1, 2**16 - 1
# Operands whose stacks have no single stride are copied instead of more calls,
MOST_CALLS = 8
# unless the copies have more elements.
LARGEST_COPY = 2**26


class TooLarge(Exception):  # noqa: N818  (a signal, not an error)
    """A matrix has more rows or columns than cuBLAS counts."""


class Matrix(NamedTuple):
    """The last two axes of an array, by rows as cuBLAS's columns."""

    is_transposed: bool
    leading: int


class Call(NamedTuple):
    """One product of stacks: where each begins, and its stride from one matrix to the next."""

    starts: tuple[int, int, int]
    strides: tuple[int, int, int]
    matrices: int


@dataclass(frozen=True)
class Plan:
    """All calls for a product of rows (m, k) and (k, n), or which operands to copy before."""

    m: int
    n: int
    k: int
    a: Matrix
    b: Matrix
    c: Matrix
    calls: tuple[Call, ...]


class Copied(NamedTuple):
    """Which operands have to be copied: as they are, or repeated for the whole stack."""

    a: bool
    b: bool
    is_repeated: bool


def matrix(shape: Shape, strides: Strides) -> Matrix | None:
    """Return how cuBLAS reads the last two axes; None if it cannot."""
    (rows, columns), (row, column) = shape[-2:], strides[-2:]
    if (column == 1 or columns == 1) and (row >= columns or rows == 1):
        return Matrix(False, max(row, columns) if rows > 1 else columns)
    if (row == 1 or rows == 1) and (column >= rows or columns == 1):
        return Matrix(True, max(column, rows) if columns > 1 else rows)
    return None


def planned(shapes: tuple[Shape, Shape], strides: tuple[Strides, Strides]) -> Plan | Copied:
    """Plan the product of stacks without empty axes, into a row-major array."""
    (a_shape, b_shape), (a_strides, b_strides) = shapes, strides
    m, k, n = a_shape[-2], a_shape[-1], b_shape[-1]
    a, b, into = matrix(a_shape, a_strides), matrix(b_shape, b_strides), Matrix(False, n)
    if a is None or b is None or min(*a_strides[:-2], *b_strides[:-2], 0, 0) < 0:
        backwards = [any(step < 0 for step in one[:-2]) for one in strides]
        return Copied(a is None or backwards[0], b is None or backwards[1], False)
    batch = _broadcast(a_shape[:-2], b_shape[:-2])
    axes = _merged(
        batch,
        (
            _batch_strides(a_shape, a_strides, batch),
            _batch_strides(b_shape, b_strides, batch),
            _row_major((*batch, m, n))[:-2],
        ),
    )
    m, a, axes = _with_rows(m, a, axes, into)
    outer, inner = _divided(axes)
    copied = _worth_copying(shapes, strides, batch, math.prod(size for size, _ in outer))
    if copied is not None:
        return copied
    if max(m, n, k, a.leading, b.leading, into.leading) > LARGEST_SIZE:
        raise TooLarge
    return Plan(m, n, k, a, b, into, tuple(_calls(outer, inner)))


Axis = tuple[int, tuple[int, int, int]]


def _broadcast(a: Shape, b: Shape) -> Shape:
    rank = max(len(a), len(b))
    sides = ((1,) * (rank - len(one)) + one for one in (a, b))
    return tuple([max(x, y) for x, y in zip(*sides, strict=True)])


def _row_major(shape: Shape) -> Strides:
    return tuple([math.prod(shape[axis + 1 :]) for axis in range(len(shape))])


def _batch_strides(shape: Shape, strides: Strides, batch: Shape) -> Strides:
    own = [0 if size == 1 else step for size, step in zip(shape[:-2], strides[:-2], strict=True)]
    return (0,) * (len(batch) - len(own)) + tuple(own)


def _merged(batch: Shape, strides: tuple[Strides, Strides, Strides]) -> list[Axis]:
    """Join neighbouring axes of the stacks that one stride serves."""
    axes: list[Axis] = []
    for size, steps in zip(batch, zip(*strides, strict=True), strict=True):
        if size == 1:
            continue
        if axes and all(
            before == step * size for before, step in zip(axes[-1][1], steps, strict=True)
        ):
            axes[-1] = (axes[-1][0] * size, steps)
        else:
            axes.append((size, steps))
    return axes


def _with_rows(m: int, a: Matrix, axes: list[Axis], c: Matrix) -> tuple[int, Matrix, list[Axis]]:
    """Put matrices below each other, if the last axis has one right side and lies so."""
    if not axes or a.is_transposed:
        return m, a, axes
    size, (a_step, b_step, c_step) = axes[-1]
    # A matrix of one row is followed by the next at any distance that leaves room for it.
    leading = a_step if m == 1 else a.leading
    lies_so = a_step == m * leading and a_step >= a.leading and c_step == m * c.leading
    if b_step != 0 or not lies_so or m * size > LARGEST_SIZE:
        return m, a, axes
    return m * size, Matrix(False, leading), axes[:-1]


def _divided(axes: Sequence[Axis]) -> tuple[list[Axis], Axis]:
    """Choose the longest axis for the stack of one call."""
    if not axes:
        return [], (1, (0, 0, 0))
    longest = max(range(len(axes)), key=lambda i: axes[i][0])
    return [axis for i, axis in enumerate(axes) if i != longest], axes[longest]


def _worth_copying(
    shapes: tuple[Shape, Shape], strides: tuple[Strides, Strides], batch: Shape, calls: int
) -> Copied | None:
    if calls <= MOST_CALLS:
        return None
    whole = [_is_one_stack(shape, step, batch) for shape, step in zip(shapes, strides, strict=True)]
    elements = sum(
        math.prod(batch) * math.prod(shape[-2:])
        for shape, is_whole in zip(shapes, whole, strict=True)
        if not is_whole
    )
    if all(whole) or elements > LARGEST_COPY:
        return None
    return Copied(not whole[0], not whole[1], True)


def _is_one_stack(shape: Shape, strides: Strides, batch: Shape) -> bool:
    """Whether one stride leads from each matrix of the whole stack to the next."""
    steps = _batch_strides(shape, strides, batch)
    return len(_merged(batch, (steps, steps, steps))) <= 1


def _calls(outer: Sequence[Axis], inner: Axis) -> Iterator[Call]:
    size, steps = inner
    for places in itertools.product(*(range(axis) for axis, _ in outer)):
        starts = [
            sum(place * step[i] for place, (_, step) in zip(places, outer, strict=True))
            for i in range(3)
        ]
        for first in range(0, size, LARGEST_STACK):
            a, b, c = (start + first * step for start, step in zip(starts, steps, strict=True))
            yield Call((a, b, c), steps, min(LARGEST_STACK, size - first))
