"""Products of arrays of the host that are new in each call, such as those of attention.

NumPy's BLAS has its own threads. After a product they look for more work for up to 100 ms before
they sleep. On few processors they take the time of oneDNN's threads.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sardonyx.backends.jax.onednn import loaded
from sardonyx.backends.jax.onednn.copies import dense
from sardonyx.backends.jax.onednn.threads import threads_of_calls

# With fewer pairs of numbers in all, NumPy is faster, as it is called in less time.
FEWEST_PAIRS = 2**21
# NumPy's BLAS uses its threads for a matrix and a matrix, or a vector, with more pairs than these.
MOST_OF_MATRICES, MOST_OF_VECTORS = 2**18, 2**13


def multiplied(a: Any, b: Any, *, threads: int | None = None) -> Any:
    """The product of stacks of matrices in float32, or None if it is better left to NumPy.

    It is left to NumPy as well if no other kernel was needed in this process: to compile or load
    them takes longer than a call.

    >>> import numpy as np
    >>> a = np.ones((8, 64, 32), np.float32)
    >>> y = multiplied(a, np.ones((32, 16), np.float32))
    >>> assert y is None or (y == 32).all()
    """
    if not loaded.is_loaded() or not a.dtype == b.dtype == np.float32 or min(a.ndim, b.ndim) < 2:
        return None
    if not a.size or not b.size:
        return None
    few = min(FEWEST_PAIRS, MOST_OF_VECTORS)
    if a.size * b.shape[-1] < few and not loaded.will_be_joined():
        return None  # The shortest way, since such products take a microsecond.
    if math.prod(b.shape[:-2]) == 1 and a.flags.c_contiguous and a.ndim >= b.ndim:
        # The same matrix for all of them: their rows are those of one.
        y = _multiplied(a.reshape(-1, a.shape[-1]), b.reshape(b.shape[-2:]), threads)
        return None if y is None else y.reshape(*a.shape[:-1], b.shape[-1])
    return _multiplied(a, b, threads)


def _multiplied(a: Any, b: Any, threads: int | None) -> Any:
    (*_, rows, inner), columns = a.shape, b.shape[-1]
    stack = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = (*stack, rows, columns)
    pairs = rows * inner * columns
    most = MOST_OF_VECTORS if min(rows, columns) == 1 else MOST_OF_MATRICES
    is_for_numpy = pairs <= most and math.prod(stack) * pairs < FEWEST_PAIRS
    is_for_numpy = is_for_numpy and not loaded.will_be_joined()
    if inner != b.shape[-2] or is_for_numpy:
        return None
    threads = threads or threads_of_calls()
    a, b = readable(a, threads), readable(b, threads)
    head = threads, len(stack), *stack, rows, inner, columns
    y = np.empty(shape, np.float32)
    spec = (*head, *layout(a, len(stack)), *layout(b, len(stack)))
    loaded.compute(loaded.Kind.STACK, spec, a, b, y)
    return y


def readable(x: Any, threads: int) -> Any:
    """The array, or a copy if its rows and its columns have gaps between their elements."""
    if is_readable(x):
        return x
    return dense(x, threads) if x.flags.aligned else x.copy(order="C")


def is_readable(x: Any) -> bool:
    """Whether the elements of each row, or of each column, lie one after the other."""
    return bool(x.flags.aligned and (_pitch(x) or _pitch(x.swapaxes(-1, -2))))


def _pitch(x: Any) -> int:
    """How many elements lie from one row to the next; 0 if the elements of a row have gaps."""
    rows, columns = map(int, x.shape[-2:])
    row, column = (int(step // x.itemsize) for step in x.strides[-2:])
    if columns > 1 and column != 1:
        return 0
    if rows == 1:
        return max(columns, 1)
    return row if row >= columns else 0


def layout(x: Any, axes: int) -> tuple[int, ...]:
    """How `readable` matrices lie: transposed or not, their pitch, and the steps between them.

    All are counted in elements; along axes of length 1 the same matrix is read again.
    """
    pitch = _pitch(x)
    steps = zip(x.shape[:-2], x.strides[:-2], strict=True)
    own = [step // x.itemsize if size > 1 else 0 for size, step in steps]
    repeated = [0] * (axes - len(own))
    return not pitch, pitch or _pitch(x.swapaxes(-1, -2)), *repeated, *own
