"""The standard's functions bound to a library, its dtypes, and the way from and to the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from types import MethodType
from typing import Any, ClassVar

import numpy as np

from sardonyx.backends.conditions import Conditions
from sardonyx.backends.result_shapes import RESULT_SHAPES
from sardonyx.backends.size_limits import refuse_huge_here
from sardonyx.backends.standard import Array, Standard


class HoldsNoStrings(Exception):  # noqa: N818  (a signal, not an error)
    """An op returns strings, and the backend's arrays cannot hold any."""


class Library(Conditions):
    """The base of every group of operations."""

    name: ClassVar[str]
    # Whether its arrays can hold strings, so that they need not be computed on the host instead.
    holds_strings: ClassVar[bool] = False
    # NumPy's dtypes that its device lacks: such arrays stay NumPy's, and what reads or
    # returns them is computed on the host.
    missing_types: frozenset[np.dtype[Any]] = frozenset()
    # The maximum bytes of a value that is much larger than its inputs; None stands for a part of
    # this machine's memory.
    largest_value: int | None = None

    def __init__(self, namespace: Any) -> None:
        self._namespace = namespace
        kind: Any = type(self)
        self.__dict__.update(_functions_of(kind, namespace))
        for name, function in _limited_of(kind, namespace).items():
            self.__dict__[name] = MethodType(function, self)

    def dtype(self, dtype: np.dtype[Any]) -> Any:
        """The library's own name for a NumPy dtype."""
        return dtype

    def numpy_dtype(self, dtype: Any) -> np.dtype[Any]:
        """NumPy's name for one of the library's dtypes."""
        named: np.dtype[Any] = np.dtype(dtype)
        return named

    def is_abstract(self, value: object) -> bool:
        """Whether `value` is a tracer, which has no data yet."""
        return False

    def is_static(self, value: object) -> bool:
        """Whether `value` is the same at each call: while a program is traced, NumPy's arrays are.

        Without compilation they are data.
        """
        return False

    def allow(self, shape: tuple[int, ...], dtype: np.dtype[Any], copies: int = 1) -> None:
        """Refuse a value of this shape and NumPy dtype if it is too large to compute.

        `copies` says how many arrays of that size exist on the way to it.
        """
        refuse_huge_here(shape, dtype, self.largest_value, copies)

    def allow_padded(self, x: Array, widths: Sequence[tuple[int, int]]) -> None:
        """Refuse to pad `x` by `widths` if the result is too large."""
        shape = tuple(size + sum(width) for size, width in zip(x.shape, widths, strict=True))
        self.allow(shape, self.numpy_dtype(x.dtype))

    def put(self, value: np.ndarray[Any, Any]) -> Array:
        """`value` on the backend's device. The result may share memory that is never written."""
        raise NotImplementedError


@cache
def _functions_of(kind: Any, namespace: Any) -> Mapping[str, Callable[..., Any]]:
    """Return the standard's functions that a class takes as they are, for all its instances."""
    return {name: getattr(namespace, name) for name in _taken_by(kind) if name not in RESULT_SHAPES}


@cache
def _limited_of(kind: Any, namespace: Any) -> Mapping[str, Callable[..., Any]]:
    """Return methods for those whose results can be large, so that `allow` checks these first."""
    names = [name for name in _taken_by(kind) if name in RESULT_SHAPES]
    return {name: _limited(name, getattr(namespace, name)) for name in names}


def _taken_by(kind: Any) -> list[str]:
    """Return the names of the standard that a class does not define itself."""
    return [name for name in Standard.__annotations__ if not hasattr(kind, name)]


def _limited(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    result_shape = RESULT_SHAPES[name]

    @wraps(function)
    def checked(library: Library, *arguments: Any, **options: Any) -> Any:
        first = arguments[0]
        if name == "concat" and len(first) > 0:
            first = first[0]
        dtype = options.get("dtype", getattr(first, "dtype", None))
        numpy_dtype = np.dtype(np.float64) if dtype is None else library.numpy_dtype(dtype)
        library.allow(result_shape(*arguments), numpy_dtype)
        return function(*arguments, **options)

    return checked
