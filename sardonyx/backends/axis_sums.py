"""Sums and maxima along one axis, in other forms than NumPy's own, which takes longer for them.

A sum is a product with ones: for a few numbers NumPy's call takes three times as long as that of
BLAS, and for many short rows ten times. A maximum is that of the only part of each row. All arrays
are NumPy's, or notes of such.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

# Sums of more numbers lose digits that NumPy keeps, as it adds them in pairs.
MOST_NUMBERS = 2**10
# Where the parts of each row begin.
WHOLE_ROW = np.zeros(1, np.intp)
_OF_BLAS = (np.dtype(np.float32), np.dtype(np.float64))


def sum_as_product(
    x: Any, *, axis: Any = None, keepdims: bool = False, dtype: Any = None
) -> Any | None:
    """Return the sums along the last axis, or the first of two; None where NumPy adds.

    In notes for several sizes, what adds is chosen when the call runs.

    >>> sum_as_product(np.ones((2, 3)), axis=-1).tolist()
    [3.0, 3.0]
    >>> sum_as_product(np.ones((2, 3)), axis=(0,), keepdims=True).tolist()
    [[2.0, 2.0, 2.0]]
    """
    # NumPy takes None for float64 where it compares types.
    if x.dtype not in _OF_BLAS or x.ndim < 2 or (dtype is not None and dtype != x.dtype):
        return None
    if type(axis) is tuple and len(axis) == 1:
        axis = axis[0]
    is_last = axis in (-1, x.ndim - 1)
    if type(axis) is not int or not (is_last or (axis == 0 and x.ndim == 2)):
        return None
    if not isinstance(x, np.ndarray) and getattr(x, "is_of_sizes", False):
        return x.noted_sum(_sum_at_once, axis, keepdims=keepdims)
    count = x.shape[axis]
    if count > MOST_NUMBERS:
        return None
    if is_last:
        return np.dot(x, _ones((count, 1) if keepdims else (count,), x.dtype))
    return np.dot(_ones((1, count) if keepdims else (count,), x.dtype), x)


def _sum_at_once(x: Any, axis: int, keepdims: bool) -> Any:
    """Return the sums, of as many numbers as there are when this runs."""
    total = sum_as_product(x, axis=axis, keepdims=keepdims)
    return np.sum(x, axis=axis, keepdims=keepdims) if total is None else total


def sum_of_rows(x: Any) -> Any:
    """Return the sums along the last axis, which stays with one element."""
    total = sum_as_product(x, axis=-1, keepdims=True)
    return x.sum(axis=-1, keepdims=True) if total is None else total


def mean_of_rows(x: Any) -> Any:
    """Return the means along the last axis, which stays with one element.

    >>> mean_of_rows(np.asarray([[1.0, 3.0]])).tolist()
    [[2.0]]
    """
    return sum_of_rows(x) / x.dtype.type(x.shape[-1])


def max_of_rows(x: Any) -> Any:
    """Return the maxima along the last axis, which stays with one element.

    >>> max_of_rows(np.asarray([[1.0, 3.0]])).tolist()
    [[3.0]]
    """
    if not x.shape[-1]:
        return x.max(axis=-1, keepdims=True)  # NumPy's own error.
    return np.maximum.reduceat(x, WHOLE_ROW, x.ndim - 1)


@lru_cache(256)
def _ones(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    ones = np.ones(shape, dtype)
    ones.flags.writeable = False
    return ones
