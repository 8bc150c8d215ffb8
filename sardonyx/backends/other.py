"""Any other library whose arrays follow the array API standard."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.errors import BackendUnavailable

_STANDARD = tuple(np.dtype(code).name for code in "?bhiqBHIQfdFD")


class OtherBackend(Backend):
    """A library that follows the standard; every primitive has its general form."""

    def __init__(self, namespace: Any) -> None:
        self.name = namespace.__name__  # type: ignore[misc]
        self._namespace = namespace
        try:
            super().__init__(namespace)
        except AttributeError as error:
            raise BackendUnavailable(
                f"{self.name} does not follow the array API standard 2024.12 ({error}): install a "
                "newer version, or pass NumPy, CuPy or JAX arrays."
            ) from error

    def __reduce__(self) -> Any:
        return _restored, (self._namespace.__name__,)

    def dtype(self, dtype: Any) -> Any:
        name = np.dtype(dtype).name
        if not hasattr(self._namespace, name):
            raise TypeError(f"{self.name} has no arrays of {name}; cast to a type that it has")
        return getattr(self._namespace, name)

    def numpy_dtype(self, dtype: Any) -> np.dtype[Any]:
        """By comparison, because the standard gives dtypes no names."""
        names = (n for n in _STANDARD if dtype == getattr(self._namespace, n, None))
        return np.dtype(next(names, str(dtype).rpartition(".")[2]))

    def owns(self, value: object) -> bool:
        namespace = getattr(value, "__array_namespace__", None)
        return namespace is not None and namespace() is self._namespace

    def put(self, value: np.ndarray[Any, Any]) -> Any:
        return self._namespace.asarray(value)

    def fetch(self, value: Any) -> np.ndarray[Any, Any]:
        return np.from_dlpack(value)

    def adopt(self, value: Any) -> Any:
        return self._namespace.from_dlpack(value)


def _restored(name: str) -> OtherBackend:
    return OtherBackend(import_module(name))
