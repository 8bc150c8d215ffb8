"""Sums, differences, products, quotients and roots of elements, and the nearest multiples.

By itself a function of NumPy is called in less time than a kernel. Between kernels it would keep
them from running in one call. For multiples NumPy takes several passes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from sardonyx.backends.jax.onednn import loaded
from sardonyx.backends.jax.onednn.loaded import Kind
from sardonyx.backends.jax.onednn.threads import threads_of_calls
from sardonyx.backends.operations.numbers import Levels

# Numbered as in kernels/points.h.
_FUNCTIONS: Mapping[Any, int] = {
    np.add: 0,
    np.subtract: 1,
    np.multiply: 2,
    np.divide: 3,
    np.sqrt: 4,
}
_LEVEL = 5
FUNCTIONS = frozenset((*_FUNCTIONS, np.square))

Operand: TypeAlias = "np.ndarray[Any, Any] | float"
# The shape of an array, and how many elements apart its elements are; None for a number.
_Form: TypeAlias = "tuple[tuple[int, ...], tuple[int, ...]] | None"


def of_elements(function: np.ufunc, *operands: Operand, threads: int | None = None) -> Any:
    """One of `FUNCTIONS` of an array in float32, of two, or of an array and a number.

    >>> of_elements(np.multiply, np.ones(2, np.float32), 3.0).tolist()
    [3.0, 3.0]
    """
    if not loaded.will_be_joined() or not loaded.has_lanes() or not _are_readable(operands):
        return function(*[np.float32(x) if isinstance(x, float) else x for x in operands])
    if function is np.square:
        return of_elements(np.multiply, operands[0], operands[0], threads=threads)
    a, b = operands if len(operands) == 2 else (*operands, 0.0)
    number = next((x for x in (a, b) if isinstance(x, float)), 0.0)
    plan = _planned(_form_of(a), _form_of(b))
    y = np.empty(plan.shape, np.float32).transpose(plan.axes)
    arrays = [None if isinstance(x, float) else x for x in (a, b)]
    spec = (threads or threads_of_calls(), _FUNCTIONS[function], _bits(number), *plan.lines)
    loaded.compute(Kind.POINTS, spec, *arrays, y)
    return y


def nearest_levels(x: Any, levels: Levels, *, threads: int | None = None) -> Any:
    """`Numbers.nearest_levels` of an array in float32.

    >>> nearest_levels(np.float32([-0.4, 1.2, 9.0]), Levels(0.5, -1, 6, 0)).tolist()
    [-0.5, 1.0, 3.0]
    """
    if not loaded.has_lanes() or not _are_readable([x]):
        return _levels_by_numpy(x, levels)
    plan = _planned(_form_of(x), None)
    y = np.empty(plan.shape, np.float32).transpose(plan.axes)
    step, *others = map(_bits, levels)
    spec = (threads or threads_of_calls(), _LEVEL, step, *plan.lines, *others)
    loaded.compute(Kind.POINTS, spec, x, None, y)
    return y


def _levels_by_numpy(x: Any, levels: Levels) -> Any:
    step, least, most, of_nan = map(np.float32, levels)
    quotient = x / step
    # The sum makes 0 of -0.
    level = np.rint(np.minimum(np.maximum(quotient, least), most)) + np.float32(0)
    return np.where(np.isnan(quotient), of_nan, level) * step


def _bits(number: float) -> int:
    return int(np.float32(number).view(np.int32))


def _are_readable(operands: Sequence[Operand]) -> bool:
    arrays = [x for x in operands if not isinstance(x, float)]
    return all(x.dtype == np.float32 and x.size and x.flags.aligned for x in arrays)


def _form_of(x: Operand) -> _Form:
    if isinstance(x, float):
        return None
    return x.shape, tuple([step // x.itemsize for step in x.strides])


class _Plan(NamedTuple):
    """In which order results lie in memory, and the numbers that the kernel takes."""

    # The shape in memory, and which of its axes those of the result are.
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    lines: tuple[int, ...]


@lru_cache(1024)
def _planned(a: _Form, b: _Form) -> _Plan:
    forms = [((), ()) if form is None else form for form in (a, b)]
    shape = np.broadcast_shapes(*(form[0] for form in forms))
    steps = [_wide_steps(form, shape) for form in forms]
    # Like one of the operands that has all elements, if possible one that does not lie by rows.
    by_rows = _steps_by_rows(shape)
    lying = [s for (own, _), s in zip(forms, steps, strict=True) if own == shape]
    leading = next((s for s in lying if s != by_rows), by_rows)
    order = sorted(range(len(shape)), key=lambda axis: -abs(leading[axis]))
    in_memory = tuple(shape[axis] for axis in order)
    places = tuple(order.index(axis) for axis in range(len(shape)))
    lines = _lines(in_memory, [[each[axis] for axis in order] for each in steps])
    return _Plan(in_memory, places, lines)


def _wide_steps(
    form: tuple[tuple[int, ...], tuple[int, ...]], shape: Sequence[int]
) -> tuple[int, ...]:
    own = [0 if size == 1 else step for size, step in zip(*form, strict=True)]
    return (*[0] * (len(shape) - len(own)), *own)


def _steps_by_rows(shape: Sequence[int]) -> tuple[int, ...]:
    steps, step = [], 1
    for size in reversed(shape):
        steps.append(0 if size == 1 else step)
        step *= size
    return tuple(reversed(steps))


def _lines(shape: Sequence[int], steps: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The axes, as few as can be, with their sizes, and the steps of both operands along them."""
    axes: list[tuple[int, ...]] = []
    for size, *own in zip(shape, *steps, strict=True):
        if size == 1:
            continue
        # Whether the operands go on behind this axis as they do along it.
        if axes and all(before == size * s for before, s in zip(axes[-1][1:], own, strict=True)):
            axes[-1] = (axes[-1][0] * size, *own)
        else:
            axes.append((size, *own))
    axes = axes or [(1, 0, 0)]
    return len(axes), *(number for numbers in zip(*axes, strict=True) for number in numbers)
