"""What calls of NumPy with small arrays cost, in microseconds on a processor of 2023."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import BuiltinFunctionType, MethodDescriptorType
from typing import Any

import numpy as np

# A step that runs as before.
PRICE_OF_STEP = 12.0
# A call of a kernel, beside what it computes, for which compiled programs take as long.
PRICE_OF_KERNEL = 5.0
# A function of NumPy that is written in Python.
_IN_PYTHON = 4.0
_REDUCTION = 0.9
# A function of elements of arrays of one shape, or of several, which takes another loop.
_UFUNC, _BROADCAST = 0.35, 0.8
_METHOD = 0.3
_SEARCH = 0.7
_INDEX, _INDEX_OF_ARRAYS = 0.15, 1.0
# For a thousand elements, and for a thousand pairs of numbers of a product: these take compiled
# programs about as long, and only what they may take longer here counts.
_ELEMENTS, _FUNCTIONS, _PAIRS = 0.3, 2.0, 0.007
# For a thousand elements of the right factor, which BLAS rearranges for several rows.
_REARRANGED = 0.15

_VIEWS = frozenset(
    getattr(np.ndarray, name) for name in ("reshape", "squeeze", "swapaxes", "transpose", "view")
)
_PRODUCTS: Mapping[Any, float] = {np.matmul: 1.0, np.ndarray.dot: 0.4}
_SEARCHES = ("argmax", "argmin", "argsort", "searchsorted", "take")
_OF_FUNCTIONS: Mapping[Any, float] = {
    np.concatenate: _SEARCH,
    np.where: _SEARCH,
    **{getattr(np.ndarray, name): _SEARCH for name in _SEARCHES},
    **_PRODUCTS,
}
_SLOW = frozenset((
    np.arccos, np.arccosh, np.arcsin, np.arcsinh, np.arctan, np.arctan2, np.arctanh, np.cos,
    np.cosh, np.exp, np.expm1, np.log, np.log1p, np.logaddexp, np.power, np.sin, np.sinh, np.tan,
    np.tanh, operator.pow,
))  # fmt: skip
# They read as many elements as they return.
_READING_SOME = frozenset((np.ndarray.take, operator.getitem))
# What a call saves if it need not broadcast.
SAVED_WITHOUT_BROADCAST = _BROADCAST - _UFUNC


def price_of(function: Callable[..., Any], arguments: Sequence[Any], result: Any) -> float:
    """Return the estimated time of a call with arguments like these."""
    return _of_call(function, arguments, result) + _of_elements(function, arguments, result)


def _of_elements(function: Callable[..., Any], arguments: Sequence[Any], result: Any) -> float:
    if function in _VIEWS:
        return 0.0
    read = () if function in _READING_SOME else arguments
    size: int = max((a.size for a in (result, *read) if isinstance(a, np.ndarray)), default=0)
    if function in _PRODUCTS:
        left, right = arguments
        pairs: int = max(result.size, 1) * left.shape[-1]
        rearranged: int = right.size if left.size > left.shape[-1] else 0
        return (_PAIRS * pairs + _REARRANGED * rearranged) / 1e3
    return (_FUNCTIONS if function in _SLOW else _ELEMENTS) * size / 1e3


def is_of_one_shape(operands: Iterable[tuple[int, ...]], result: tuple[int, ...]) -> bool:
    """Whether all operands have the result's shape, or no axes."""
    return all(shape in (result, ()) for shape in operands)


def price_of_check(part: Any) -> float:
    """Return the estimated time of a condition on these elements."""
    return 0.6 if part.size == 1 else 3 * _UFUNC + 2 * _REDUCTION


def price_of_saturation(count: int) -> float:
    """Return the estimated time of a cast of so many floats to integers that fit."""
    return _IN_PYTHON + 4 * _ELEMENTS * count / 1e3


def price_of_step(count: int) -> float:
    """Return the estimated time of a step with so many elements of results that runs as before."""
    return PRICE_OF_STEP + _FUNCTIONS * count / 1e3


def price_by_element(count: int) -> float:
    """Return the estimated time of a function in Python of each element."""
    return _IN_PYTHON + count / 10


def _of_call(function: Callable[..., Any], arguments: Sequence[Any], result: Any) -> float:
    if function in _OF_FUNCTIONS:
        return _OF_FUNCTIONS[function]
    if isinstance(function, np.ufunc):
        return _UFUNC if is_of_one_shape(map(np.shape, arguments), np.shape(result)) else _BROADCAST
    if isinstance(getattr(function, "__self__", None), np.ufunc):
        return _REDUCTION
    if function in (operator.getitem, operator.setitem):
        keys = arguments[1] if isinstance(arguments[1], tuple) else (arguments[1],)
        has_arrays = any(isinstance(key, (np.ndarray, list)) for key in keys)
        return _INDEX_OF_ARRAYS if has_arrays else _INDEX
    if isinstance(function, (MethodDescriptorType, BuiltinFunctionType, operator.attrgetter)):
        return _METHOD
    return _IN_PYTHON
