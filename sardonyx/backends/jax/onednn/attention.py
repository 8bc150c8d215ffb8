"""Attention of arrays of the host by one kernel, which keeps scores in the processor's cache."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import starmap
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from sardonyx.backends.jax.onednn import loaded
from sardonyx.backends.jax.onednn.rows import MOST_COLUMNS
from sardonyx.backends.jax.onednn.stacks import is_readable, layout
from sardonyx.backends.jax.onednn.threads import threads_of_calls

# With fewer pairs of numbers in all NumPy is as fast: for one query, and for so many that oneDNN's
# products are fast. For those between, NumPy is faster.
FEWEST_PAIRS_OF_ONE, FEWEST_PAIRS, FEWEST_QUERIES = 2**13, 2**14, 8


def attended(
    queries: Any,
    keys: Any,
    values: Any,
    mask: Any,
    *,
    scale: float,
    or_zero: bool,
    threads: int | None = None,
) -> Any:
    """The softmax of the scores, times the values; None where the steps are to run one by one.

    The keys are columns. Scores are products with queries, times the scale, and the mask is added
    to them, unless it is None. The results are new memory, where those of one query lie together.

    >>> import numpy as np
    >>> ones = np.ones((2, 64, 64), np.float32)
    >>> y = attended(ones, ones, ones, None, scale=1, or_zero=False)
    >>> assert y is None or np.allclose(y, 1)
    """
    arrays = (queries, keys, values) if mask is None else (queries, keys, values, mask)
    forms = tuple([(x.shape, x.strides) for x in arrays])
    if not loaded.has_lanes() or not all(map(_is_of_floats, arrays)):
        return None
    of_any_size = loaded.will_be_joined()
    plan = _planned(forms, float(scale), or_zero, of_any_size, threads or threads_of_calls())
    if plan is None:
        return None
    y = _result(plan.shape)
    loaded.compute(loaded.Kind.ATTENTION, plan.spec, queries, keys, values, mask, y)
    return y


def _is_of_floats(x: Any) -> bool:
    return x.dtype == np.float32 and bool(x.flags.aligned)


class _Plan(NamedTuple):
    """The numbers that the kernel takes beside the arrays, and the shape of the results."""

    spec: tuple[int, ...]
    shape: tuple[int, ...]


@lru_cache(1024)
def _planned(
    forms: Sequence[tuple[tuple[int, ...], tuple[int, ...]]],
    scale: float,
    or_zero: bool,
    of_any_size: bool,
    threads: int,
) -> _Plan | None:
    """The plan for arrays of these shapes and strides; None where NumPy is to compute them."""
    queries, keys, values, *masks = starmap(_form, forms)
    if not _can_be_read(queries, keys, values):
        return None
    if not _is_for_kernel(queries, keys, values, of_any_size=of_any_size):
        return None
    *stack, count, inner = map(int, queries.shape)
    known, columns, axes = keys.shape[-1], values.shape[-1], len(stack)
    mask_layout: Sequence[int] | None = (0,) * (axes + 2)
    for mask in masks:
        mask_layout = _layout_of_mask(mask, (*stack, count, known))
    if mask_layout is None:
        return None
    shape = (*stack, count, columns)
    y = _result(shape)
    bits = int(np.float32(scale).view(np.int32))
    spec = (
        *(threads, axes, *stack, count, inner, known, columns),
        *(number for x in (queries, keys, values, y) for number in layout(x, axes)),
        *(*mask_layout, bits, or_zero),
    )
    return _Plan(spec, shape)


def _form(shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """An array that lies like another one in memory. It has no elements: nobody may read them."""
    return as_strided(np.empty(1, np.float32), shape, strides)


def _can_be_read(queries: Any, keys: Any, values: Any) -> bool:
    """Whether the kernel can read arrays that lie like these."""
    arrays = queries, keys, values
    if any(x.ndim < 2 for x in arrays) or not all(map(is_readable, arrays)):
        return False
    (*stack, _, inner), known, columns = queries.shape, keys.shape[-1], values.shape[-1]
    if keys.shape != (*stack, inner, known) or values.shape != (*stack, known, columns):
        return False
    return bool(known <= MOST_COLUMNS)


def _is_for_kernel(queries: Any, keys: Any, values: Any, *, of_any_size: bool) -> bool:
    """Whether the kernel takes less time than NumPy for so many numbers, or few of any size."""
    (*stack, count, inner), known, columns = queries.shape, keys.shape[-1], values.shape[-1]
    pairs = math.prod(stack) * count * known * min(inner, columns)
    least = FEWEST_PAIRS_OF_ONE if count == 1 else FEWEST_PAIRS
    return of_any_size if pairs < least else not 1 < count < FEWEST_QUERIES


def _layout_of_mask(mask: Any, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Like `layout`, but transposed means that a row has one number for all keys.

    None where the sum with scores of such a shape has another form.
    """
    try:
        wide = np.broadcast_to(mask, shape)
    except ValueError:
        return None
    *steps, row, key = (step // mask.itemsize for step in wide.strides)
    return (key == 0, row, *steps) if key in (0, 1) else None


def _result(shape: tuple[int, ...]) -> Any:
    """New memory for the results: those of a query lie together if there is a stack of heads."""
    if len(shape) < 3:
        return np.empty(shape, np.float32)
    *outer, heads, count, columns = shape
    return np.empty((*outer, count, heads, columns), np.float32).swapaxes(-2, -3)
