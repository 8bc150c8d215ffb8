"""Products of a few rows by a matrix, each row by itself.

For several rows OpenBLAS copies the matrix, which takes two or three times as long as to read it
once for each row. All arrays are NumPy's, or notes of such.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

MOST_ROWS = 7
# Smaller matrices OpenBLAS copies in no time.
FEWEST_ELEMENTS = 2**17
# A part of a matrix stays in the processor's caches for all rows, if it has so many bytes. For
# smaller ones OpenBLAS's threads would wait for each other too often.
MOST_OF_PART = 2_400_000
_OF_BLAS = (np.dtype(np.float32), np.dtype(np.float64))


def are_few(a: Any, b: Any) -> bool:
    """Whether `a` has rows, and few, and each is to be multiplied by `b` by itself."""
    return 1 < math.prod(a.shape[:-1]) <= MOST_ROWS and can_be_few(a, b)


def can_be_few(a: Any, b: Any) -> bool:
    """Whether that depends on the number of rows alone; the same for the transposed matrix."""
    return (
        a.ndim >= b.ndim == 2
        and math.prod(b.shape) >= FEWEST_ELEMENTS
        and a.dtype == b.dtype
        and a.dtype in _OF_BLAS
    )


def product(a: Any, b: Any) -> Any:
    """Return `a @ b`."""
    *sizes, inner = a.shape
    rows = a.reshape((math.prod(sizes), inner))
    if isinstance(b, np.ndarray) and b.flags.f_contiguous:
        result = by_columns(rows, b.T)
    else:
        result = np.matmul(rows[:, None], b)
    return result.reshape((*sizes, b.shape[1]))


def by_columns(rows: Any, columns: Any) -> Any:
    """Return `rows @ columns.T`, part after part of the columns, which are contiguous."""
    count, inner = columns.shape
    most = max(MOST_OF_PART // max(inner * rows.dtype.itemsize, 1), 1)
    whole = count - count % most
    vectors = rows[:, :, None]
    if not whole:
        return np.matmul(columns, vectors)[..., 0]
    parts = np.matmul(columns[:whole].reshape((-1, 1, most, inner)), vectors)[..., 0]
    result = parts.transpose((1, 0, 2)).reshape((len(rows), whole))
    if whole == count:
        return result
    return np.concatenate([result, np.matmul(columns[whole:], vectors)[..., 0]], axis=1)
