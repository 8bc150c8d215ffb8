"""The standard's functions bound to a library, its dtypes, and the way from and to the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from sardonyx.backends.conditions import Conditions
from sardonyx.backends.size_limits import guarded, refuse_huge_here
from sardonyx.backends.standard import Array, Standard


class HoldsNoStrings(Exception):  # noqa: N818  (a signal, not an error)
    """An op returns strings, and the backend's arrays cannot hold any."""


class Library(Conditions):
    """What every operation builds on."""

    name: ClassVar[str]
    # Whether its arrays can hold strings, so that they need not be computed on the host instead.
    holds_strings: ClassVar[bool] = False
    # The maximum bytes of a value that is much larger than its inputs; None is what the memory of
    # this machine allows.
    largest_value: int | None = None

    def __init__(self, namespace: Any) -> None:
        self._namespace = namespace
        for function in Standard.__annotations__:
            if not hasattr(type(self), function):
                bound = guarded(self, function, getattr(namespace, function))
                setattr(self, function, bound)

    def dtype(self, dtype: np.dtype[Any]) -> Any:
        """The library's own name for a NumPy dtype."""
        return dtype

    def numpy_dtype(self, dtype: Any) -> np.dtype[Any]:
        """NumPy's name for one of the library's dtypes."""
        named: np.dtype[Any] = np.dtype(dtype)
        return named

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
        """`value` on the backend's device. The result may share memory nobody writes to."""
        raise NotImplementedError
