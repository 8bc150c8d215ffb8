"""Arrays of any library."""

from __future__ import annotations

from typing import Any

import numpy as np


def on_host(array: Any) -> np.ndarray[Any, Any]:
    """Return an array as NumPy's. CuPy refuses `np.asarray`, since it copies from the device."""
    fetched: np.ndarray[Any, Any] = array.get() if hasattr(array, "get") else np.asarray(array)
    return fetched
