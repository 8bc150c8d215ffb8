"""Arrays whose data is mapped from a file."""

from __future__ import annotations

import mmap
import os
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from sardonyx.backends.host_memory import aligned_copy, empty_bytes
from sardonyx.backends.mapped_files import mapping_of
from sardonyx.errors import InvalidModel

# Before Python 3.13 each map holds a file descriptor.
UNTRACKED: Any = {"trackfd": False} if sys.version_info >= (3, 13) and os.name != "nt" else {}
# With a page that is read, systems map those of its file around it that are in memory.
_READ_TOGETHER = 1 << 16
# The system can read at a position into memory, and replace a file that is mapped.
CAN_READ_AT = hasattr(os, "preadv")


class ModelFile(mmap.mmap):
    """A map of a model file, from which programs read weights through a handle.

    If another process shortens a mapped file, whoever touches the lost pages is killed. Reading
    through a handle raises an error instead, and notices a file that was overwritten. A file that
    was deleted, or replaced by another one, can still be read.
    """

    path: Path
    _handle: int
    _state: tuple[int, int]

    def __new__(cls, handle: int, path: Path) -> ModelFile:
        """Map the open file, which `path` names in messages."""
        state = _state(handle)
        self = super().__new__(cls, handle, state[0], access=mmap.ACCESS_READ, **UNTRACKED)
        self.path, self._handle, self._state = path, os.dup(handle), state
        weakref.finalize(self, os.close, self._handle).atexit = False
        return self

    def read_at(self, start: int, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Return a copy of these bytes, aligned for XLA; raise if the file has changed."""
        copy = empty_bytes(size)
        filled = 0
        while filled < size:
            count = os.preadv(self._handle, [copy[filled:].data], start + filled)
            if not count:
                break
            filled += count
        if filled < size or _state(self._handle) != self._state:
            raise InvalidModel(
                f"The model file '{self.path}' was overwritten after it was loaded: load it again. "
                "To change a file that is in use, write a new one and rename it."
            )
        return copy


def _state(handle: int) -> tuple[int, int]:
    """Return what changes when a file is written to: its size and the time of the last write."""
    status = os.fstat(handle)
    return status.st_size, status.st_mtime_ns


def content(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the array with data that any library can read.

    That is the array itself, or an aligned copy if its data is unaligned or in a `ModelFile`.
    """
    mapping = mapping_of(array)
    if isinstance(mapping, ModelFile) and array.size:
        low, high = byte_bounds(array)
        data = mapping.read_at(low - _address(mapping), high - low)
        offset = array.ctypes.data - low
        copy = np.ndarray(array.shape, array.dtype, data.data, offset, array.strides)
    elif array.flags.aligned:
        return array
    else:
        copy = aligned_copy(array)
        drop_pages(array)
    copy.flags.writeable = False
    return copy


def drop_pages(array: np.ndarray[Any, Any]) -> None:
    """Drop the array's pages from memory, and what was mapped with them.

    They are read from the file again when needed.
    """
    mapping = mapping_of(array)
    if mapping is None or not hasattr(mmap, "MADV_DONTNEED") or not array.size:
        return
    low, high = byte_bounds(array)
    start = low - _address(mapping)
    window = max(mmap.PAGESIZE, _READ_TOGETHER)
    first, end = start // window * window, -(-(start + high - low) // window) * window
    mapping.madvise(mmap.MADV_DONTNEED, first, min(end, len(mapping)) - first)


def _address(mapping: mmap.mmap) -> int:
    """Return where the map begins in memory."""
    return np.frombuffer(mapping, np.uint8).ctypes.data
