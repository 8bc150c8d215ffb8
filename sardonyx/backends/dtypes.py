"""Kinds of NumPy dtypes, with those of ml_dtypes among them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np


def kind_of(dtype: np.dtype[Any]) -> str:
    """Return the standard's word for the kind of a dtype, also for those of ml_dtypes.

    >>> import ml_dtypes, numpy as np
    >>> kind_of(np.dtype(ml_dtypes.bfloat16)), kind_of(np.dtype(ml_dtypes.int4))
    ('real floating', 'signed integer')
    """
    if dtype.kind in "bfciu":
        kinds = {"b": "bool", "f": "real floating", "c": "complex floating"}
        return kinds.get(dtype.kind, "signed integer" if dtype.kind == "i" else "unsigned integer")
    if dtype.kind == "V" and dtype.fields is None:
        if not dtype.name.startswith(("int", "uint")):
            return "real floating"
        return "signed integer" if dtype.name.startswith("int") else "unsigned integer"
    return "other"


@lru_cache(maxsize=1024)
def isdtype(dtype: Any, kind: Any) -> bool:
    """The standard's `isdtype` for NumPy dtypes and those of ml_dtypes."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if not isinstance(kind, str):
        return bool(np.dtype(dtype) == np.dtype(kind))
    actual = kind_of(np.dtype(dtype))
    if kind == "integral":
        return actual.endswith("integer")
    if kind == "numeric":
        return actual not in ("bool", "other")
    return actual == kind


def is_low_precision(dtype: np.dtype[Any]) -> bool:
    """Whether `dtype` is one of ml_dtypes, in which NumPy itself does not compute."""
    return dtype.kind in "fV" and hasattr(ml_dtypes, dtype.name)  # float8_e5m2 is of kind f
