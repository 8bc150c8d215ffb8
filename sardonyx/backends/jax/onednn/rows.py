"""Functions of whole rows of arrays of the host, for which NumPy takes several passes.

NumPy takes these for long rows, of which the kernel's sums would lose digits, on processors without
wide registers, and if no other kernel was needed in this process: to compile or load them takes
longer than a call. This is decided at each call, so that a function written out for all sizes has
one form. For few numbers NumPy's five to ten calls take longer than one of a kernel. All arrays are
in float32.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from sardonyx.backends.axis_sums import max_of_rows, mean_of_rows, sum_of_rows
from sardonyx.backends.jax.onednn import loaded
from sardonyx.backends.jax.onednn.copies import dense
from sardonyx.backends.jax.onednn.threads import threads_of_calls

MOST_COLUMNS = 2**14
# Numbered as in kernels/rows.h.
_SOFTMAX, _SOFTMAX_OR_ZERO, _STANDARDIZE, _BY_ROOT_MEAN_SQUARE = range(4)


def softmax(x: Any, *, or_zero: bool = False, threads: int | None = None) -> Any:
    """The softmax along the last axis, or zeros for a row where that is NaN.

    >>> import numpy as np
    >>> softmax(np.zeros((64, 2), np.float32))[0].tolist()
    [0.5, 0.5]
    """
    if not _is_for_kernel(x.shape[-1]):
        weights = np.exp(x - max_of_rows(x))
        weights /= sum_of_rows(weights)
        if or_zero:
            weights[np.isnan(weights)] = 0
        return weights
    function = _SOFTMAX_OR_ZERO if or_zero else _SOFTMAX
    return _computed(_spec(function, x.size, x.shape[-1], 0.0, threads), x)


def standardized(
    x: Any, scale: Any, bias: Any, *, epsilon: float, threads: int | None = None
) -> tuple[Any, Any, Any]:
    """Rows with mean 0 and variance 1, scaled and with a bias; the means, and what each was times.

    They lie along as many last axes as the scale has.
    """
    axes = _axes(x, scale)
    if not _is_for_kernel(scale.size):
        mean = _mean(x, axes)
        centred = x - mean
        inverse = 1 / np.sqrt(_mean(np.square(centred), axes) + epsilon)
        y = centred * inverse * scale
        return y if bias is None else y + bias, mean, inverse
    mean, inverse = np.empty((2, *x.shape[: axes[0]], *(1 for _ in axes)), np.float32)
    spec = _spec(_STANDARDIZE, x.size, scale.size, epsilon, threads)
    return _computed(spec, x, scale, bias, mean, inverse), mean, inverse


def by_root_mean_square(x: Any, scale: Any, *, epsilon: float, threads: int | None = None) -> Any:
    """Rows by their root mean squares, scaled."""
    if not _is_for_kernel(scale.size):
        squares = _mean(np.square(x), _axes(x, scale))
        return x / np.sqrt(squares + epsilon) * scale
    return _computed(_spec(_BY_ROOT_MEAN_SQUARE, x.size, scale.size, epsilon, threads), x, scale)


def _mean(x: Any, axes: tuple[int, ...]) -> Any:
    is_last = len(axes) == 1 and x.ndim > 1
    return mean_of_rows(x) if is_last else x.mean(axis=axes, keepdims=True)


def _axes(x: Any, scale: Any) -> tuple[int, ...]:
    return tuple(range(x.ndim - scale.ndim, x.ndim))


def _is_for_kernel(columns: int) -> bool:
    return columns <= MOST_COLUMNS and loaded.has_lanes()


@lru_cache(1024)
def _spec(
    function: int, numbers: int, columns: int, epsilon: float, threads: int | None
) -> tuple[int, ...]:
    bits = int(np.float32(epsilon).view(np.int32))
    return threads or threads_of_calls(), function, numbers // columns, columns, bits


def _computed(
    spec: tuple[int, ...],
    x: Any,
    scale: Any = None,
    bias: Any = None,
    mean: Any = None,
    inverse: Any = None,
) -> Any:
    y = np.empty(x.shape, np.float32)
    arrays = [None if a is None else dense(a, spec[0]) for a in (x, scale, bias)]
    loaded.compute(loaded.Kind.ROWS, spec, *arrays, y, mean, inverse)
    return y
