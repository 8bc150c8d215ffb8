"""Arrays whose data is mapped from a file."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np


def mapping_of(array: np.ndarray[Any, Any]) -> mmap.mmap | None:
    """Return the file map that holds the array's data, or None."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    base = base.obj if isinstance(base, memoryview) else base
    return base if isinstance(base, mmap.mmap) else None


def drop_pages(array: np.ndarray[Any, Any]) -> None:
    """Drop the array's pages from memory; they are read from the file again when needed."""
    mapping = mapping_of(array)
    if mapping is None or not hasattr(mmap, "MADV_DONTNEED") or not array.flags.c_contiguous:
        return
    start = array.ctypes.data - np.frombuffer(mapping, np.uint8).ctypes.data
    first = start // mmap.PAGESIZE * mmap.PAGESIZE
    mapping.madvise(mmap.MADV_DONTNEED, first, start + array.nbytes - first)
