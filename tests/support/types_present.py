"""Which element types a library has arrays of."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from sardonyx.backends.base import Backend
from tests.conftest import as_parameter, backends_present


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


def with_narrow_types() -> list[object]:
    """Every array library that has floats of 8 bits, as parameters of a test."""
    present = backends_present()
    return [as_parameter(xp) for xp in present if not lacks(xp, ml_dtypes.float8_e4m3fn)]
