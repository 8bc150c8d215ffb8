"""Arrays whose elements lie one after the other, as kernels read them."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.backends.jax.onednn import loaded
from sardonyx.backends.jax.onednn.loaded import Kind
from sardonyx.backends.jax.onednn.threads import threads_of_calls

_BYTES_OF_ELEMENTS = (1, 2, 4, 8)


def dense(x: Any, threads: int | None = None) -> Any:
    """The array as NumPy's, itself if its elements lie by rows, or a copy.

    NumPy copies with one thread.

    >>> dense(np.arange(6).reshape(2, 3).T).tolist()
    [[0, 3], [1, 4], [2, 5]]
    """
    x = np.asarray(x)
    return x if x.flags.c_contiguous else copied(x, threads)


def reshaped(x: Any, shape: tuple[int, ...], threads: int | None = None) -> Any:
    """The array in another shape, as a view if there is one.

    >>> reshaped(np.arange(6).reshape(2, 3).T, (2, 3)).tolist()
    [[0, 3, 1], [4, 2, 5]]
    """
    try:
        return x.reshape(shape, copy=False)
    except ValueError:  # There is no such view, or the array has other elements than the shape.
        return dense(x, threads).reshape(shape)


def copied(x: Any, threads: int | None = None) -> Any:
    """A new array whose elements lie by rows.

    >>> copied(np.arange(3)[::-1]).tolist()
    [2, 1, 0]
    """
    if x.itemsize not in _BYTES_OF_ELEMENTS or x.dtype.hasobject or not loaded.is_loaded():
        return x.copy(order="C")
    y = np.empty(x.shape, x.dtype)
    spec = (threads or threads_of_calls(), x.itemsize, x.ndim, *x.shape, *x.strides)
    loaded.compute(Kind.COPY, spec, x, y)
    return y
