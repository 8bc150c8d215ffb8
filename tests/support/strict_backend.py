"""A fourth backend, over array_api_strict: it has the standard and nothing else.

Whatever runs here asks an array library only for the standard and the named primitives, so that a
new library is one new file. It inherits every primitive and overrides only what names a dtype.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, ClassVar

import array_api_strict as strict
import numpy as np

from sardonyx.backends.base import Backend


class StrictBackend(Backend):
    name: ClassVar[str] = "strict"

    def __init__(self) -> None:
        super().__init__(strict)

    def dtype(self, dtype: Any) -> Any:
        return getattr(strict, np.dtype(dtype).name)

    def numpy_dtype(self, dtype: Any) -> np.dtype[Any]:
        return np.dtype(dtype._np_dtype)

    def scope(self) -> AbstractContextManager[object]:
        return np.errstate(all="ignore")

    def owns(self, value: object) -> bool:
        return isinstance(value, strict._array_object.Array)

    def put(self, value: np.ndarray[Any, Any]) -> Any:
        return strict.asarray(value)

    def fetch(self, value: Any) -> np.ndarray[Any, Any]:
        return np.asarray(value)

    def adopt(self, value: Any) -> Any:
        lent = hasattr(value, "__dlpack__")
        return strict.asarray(np.from_dlpack(value) if lent else np.asarray(value))
