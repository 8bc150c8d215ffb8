"""What of NumPy can be noted: shapes of results follow from the arguments' shapes alone.

Each function is listed with the number of its first arguments that may be arrays which a call
computes. All others are known beforehand: shapes, axes, widths.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from sardonyx.backends.axis_sums import WHOLE_ROW

NOTED: Mapping[Any, int] = {
    np.all: 1, np.any: 1, np.argmax: 1, np.argmin: 1, np.argsort: 1, np.broadcast_arrays: 9,
    np.broadcast_to: 1, np.clip: 3, np.concatenate: 1, np.copy: 1, np.cumprod: 1, np.cumsum: 1,
    np.cumulative_prod: 1, np.cumulative_sum: 1, np.diagonal: 1, np.dot: 2, np.einsum: 9,
    np.empty_like: 1, np.expand_dims: 1, np.fft.fft: 1, np.fft.ifft: 1, np.flip: 1, np.full_like: 2,
    np.imag: 1, np.matrix_transpose: 1, np.max: 1, np.mean: 1, np.min: 1, np.moveaxis: 1,
    np.ones_like: 1, np.pad: 1, np.prod: 1, np.real: 1, np.repeat: 1, np.reshape: 1, np.roll: 1,
    np.round: 1, np.searchsorted: 2, np.sort: 1, np.split: 1, np.squeeze: 1, np.stack: 1, np.sum: 1,
    np.swapaxes: 1, np.take: 2, np.take_along_axis: 2, np.tensordot: 2, np.tile: 1, np.transpose: 1,
    np.tril: 1, np.triu: 1, np.unstack: 1, np.where: 3, np.zeros_like: 1,
    np.lib.stride_tricks.sliding_window_view: 1,
}  # fmt: skip

METHODS: Mapping[str, int] = {
    "all": 1, "any": 1, "argmax": 1, "argmin": 1, "argsort": 1, "astype": 1, "clip": 3, "copy": 1,
    "cumprod": 1, "cumsum": 1, "diagonal": 1, "max": 1, "mean": 1, "min": 1, "prod": 1, "ravel": 1,
    "reshape": 1, "round": 1, "squeeze": 1, "sum": 1, "swapaxes": 1, "take": 2, "transpose": 1,
    "view": 1,
}  # fmt: skip

# They look at shapes and dtypes only, so that their results are known.
FREE = frozenset((np.can_cast, np.iscomplexobj, np.ndim, np.result_type, np.shape, np.size))

# They give no warnings of numbers, which an error state would have to silence.
_SILENT: tuple[Any, ...] = (operator.getitem, np.concatenate, np.where, np.zeros, np.empty)
_SILENT_METHODS = (
    "argmax", "argmin", "copy", "reshape", "searchsorted", "squeeze", "swapaxes", "take",
    "transpose",
)  # fmt: skip
SILENT = frozenset((*_SILENT, *(getattr(np.ndarray, name) for name in _SILENT_METHODS)))

# Like all ufuncs they return new arrays, not views of their arguments.
NEW = frozenset((
    np.concatenate, np.where, np.ndarray.copy, np.ndarray.dot, np.ndarray.repeat, np.ndarray.take,
))  # fmt: skip

# The calls of ufuncs whose results have shapes that follow from the arguments' shapes.
UFUNC_METHODS = frozenset(("__call__", "accumulate", "at", "reduce", "reduceat"))

_REDUCTIONS: Mapping[Any, np.ufunc] = {
    function: ufunc
    for name, ufunc in {
        "all": np.logical_and, "any": np.logical_or, "max": np.maximum, "min": np.minimum,
        "prod": np.multiply, "sum": np.add,
    }.items()
    for function in (getattr(np, name), getattr(np.ndarray, name))
}  # fmt: skip
_MAXIMA = (np.max, np.ndarray.max)
# NumPy's functions in Python that only pass their arguments on to a method.
_METHOD_OF: Mapping[Any, Callable[..., Any]] = {
    getattr(np, name): getattr(np.ndarray, name)
    for name in ("argmax", "argmin", "argsort", "cumprod", "cumsum", "dot", "reshape",
                 "searchsorted", "squeeze", "swapaxes", "take", "transpose")
}  # fmt: skip
# They compute in one type: a number of Python takes that of the array beside it.
_OF_ONE_TYPE = frozenset((
    np.add, np.divide, np.equal, np.floor_divide, np.fmod, np.greater, np.greater_equal, np.less,
    np.less_equal, np.maximum, np.minimum, np.multiply, np.not_equal, np.power, np.subtract,
))  # fmt: skip
# Types whose products are calls of BLAS.
_OF_BLAS = (np.dtype(np.float32), np.dtype(np.float64))


def faster(
    function: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Return a call with the same result that passes through less of Python."""
    ufunc = _REDUCTIONS.get(function)
    known = (
        {"axis", "dtype", "keepdims"} if ufunc in (np.add, np.multiply) else {"axis", "keepdims"}
    )
    if function in _MAXIMA and _is_of_rows(*arguments, **options):
        return np.maximum.reduceat, (arguments[0], WHOLE_ROW, arguments[0].ndim - 1), {}
    if ufunc is not None and len(arguments) == 1 and options.keys() <= known:
        return ufunc.reduce, arguments, {"axis": None, **options}
    if function in _OF_ONE_TYPE and len(arguments) == 2:
        return function, _as_arrays(*arguments), options
    if function is np.matmul and not options and _are_matrices(*arguments):
        return np.ndarray.dot, arguments, options
    if function in _METHOD_OF and (function is not np.transpose or arguments[1:]):
        return _METHOD_OF[function], arguments, options
    return function, arguments, options


def _is_of_rows(x: Any, *_: Any, axis: Any = None, keepdims: bool = False, **others: Any) -> bool:
    """Whether a reduction leaves one element of each row."""
    is_last = axis in (-1, x.ndim - 1, (-1,), (x.ndim - 1,))
    return is_last and keepdims and x.ndim > 0 and not others


def _as_arrays(a: Any, b: Any) -> tuple[Any, Any]:
    """Return the operands, of which a number is an array of no axes: it need not be converted."""
    return _beside(a, b), _beside(b, a)


def _beside(number: Any, array: Any) -> Any:
    if isinstance(number, np.generic):
        return np.asarray(number)
    if type(number) in (int, float) and np.result_type(array.dtype, number) == array.dtype:
        with suppress(OverflowError):  # Comparisons take numbers that the type has not.
            return np.asarray(number, array.dtype)
    return number


def _are_matrices(a: Any, b: Any) -> bool:
    return a.ndim == b.ndim == 2 and a.dtype == b.dtype and a.dtype in _OF_BLAS
