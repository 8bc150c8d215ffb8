"""Arrays whose data is mapped from a file, and how the system reads it."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from sardonyx.backends.host_memory import Pages

# Whoever reads less than one row of so many of a table reads few of them.
ROWS_PER_LOOKUP = 16


def mapping_of(array: np.ndarray[Any, Any]) -> mmap.mmap | None:
    """Return the file map that holds the array's data, or None."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    base = base.obj if isinstance(base, memoryview) else base
    return base if isinstance(base, mmap.mmap) and not isinstance(base, Pages) else None


@contextmanager
def read_by_rows(array: np.ndarray[Any, Any], rows: int) -> Iterator[None]:
    """A context in which so many rows of a mapped array are read, and no megabytes ahead of each.

    Of a large file these would fill the memory, and to get so much takes milliseconds a row.
    """
    is_few = rows * ROWS_PER_LOOKUP < len(array) and hasattr(mmap, "MADV_RANDOM")
    mapping = mapping_of(array) if is_few else None
    if mapping is None:
        yield
        return
    # Not every system can be told. To tell it of the array's pages alone would take longer.
    with suppress(OSError):
        mapping.madvise(mmap.MADV_RANDOM)
    try:
        yield
    finally:
        with suppress(OSError):
            mapping.madvise(mmap.MADV_NORMAL)
