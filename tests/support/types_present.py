"""Which element types a library has arrays of."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from sardonyx.backends.base import Backend


def lacks(xp: Backend, dtype: Any) -> bool:
    """Whether the library has no arrays of the type."""
    dtype = np.dtype(dtype)
    is_narrow = dtype == np.float16 or hasattr(ml_dtypes, dtype.name)
    return xp.name == "strict" and is_narrow


def needs(xp: Backend, *dtypes: Any) -> None:
    """Expect the test to fail on a library without these types."""
    missing = [np.dtype(dtype).name for dtype in dtypes if lacks(xp, dtype)]
    if missing:
        pytest.xfail(f"{xp.name} has no arrays of {', '.join(missing)}")
