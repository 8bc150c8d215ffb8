"""The host's memory: the alignment of arrays, and memory retained after it is freed."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from threading import Event
from typing import Any

import numpy as np

from sardonyx.backends import processors

# XLA for CPU uses arrays at multiples of this in place, and copies other ones.
ALIGNMENT = 64
# Copying fewer bytes than these costs less than looking at their address.
SMALLEST = 2**16
# Larger arrays that stay for long get pages of their own.
SMALLEST_MAP = 2**20


class Pages(mmap.mmap):
    """Memory apart from the heap, so that the heap can shrink while this memory is in use.

    >>> len(Pages(10))
    10
    """

    def __new__(cls, size: int) -> Pages:
        pages = super().__new__(cls, -1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            # Fewer and larger pages are faster to fill and to read. Not every system has them.
            with suppress(OSError):
                pages.madvise(mmap.MADV_HUGEPAGE)
        return pages


def zero_bytes(size: int) -> np.ndarray[Any, Any]:
    """So many bytes, at an address that XLA uses in place.

    >>> zero_bytes(3).tolist()
    [0, 0, 0]
    """
    if size >= SMALLEST_MAP and hasattr(mmap, "MAP_ANONYMOUS"):
        return np.frombuffer(Pages(size), np.uint8)
    return _from_aligned(np.zeros(size + ALIGNMENT, np.uint8), size)


def empty_bytes(size: int) -> np.ndarray[Any, Any]:
    """So many bytes of any value, at an address that XLA uses in place.

    >>> empty_bytes(3).size
    3
    """
    return _from_aligned(np.empty(size + ALIGNMENT, np.uint8), size)


def _from_aligned(room: np.ndarray[Any, Any], size: int) -> np.ndarray[Any, Any]:
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + size]


def aligned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array itself if it is small or aligned; otherwise an aligned copy.

    >>> lies_badly = zero_bytes(2**17 + 1)[1:]
    >>> aligned(lies_badly).ctypes.data % ALIGNMENT
    0
    """
    is_there = array.ctypes.data % ALIGNMENT == 0 and array.flags.c_contiguous
    if array.nbytes < SMALLEST or is_there:
        return array
    return aligned_copy(array)


def aligned_copy(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy of the array at an address that XLA uses in place.

    >>> aligned_copy(zero_bytes(9)[1:].view(np.int64)).ctypes.data % ALIGNMENT
    0
    """
    copy: np.ndarray[Any, Any] = zero_bytes(array.nbytes).view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def give_back_freed() -> bool:
    """Give freed memory back to the system, unless it is kept; return whether this was possible.

    The GNU C library retains what compilers free, since it lies between what they do not free.
    """
    if not sys.platform.startswith("linux") or _keeps.is_set():
        return False
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and bool(trim(0))


def retain_results(nbytes: int) -> bool:
    """Let this process retain up to 128 MB that is freed, if a call makes so many bytes anew.

    Without it the GNU C library returns arrays of some megabytes to the system, which clears their
    pages for the next call. What the user sets for `malloc` in the environment stays.
    """
    if nbytes <= LARGE_RESULTS or _retains.is_set() or _keeps.is_set() or _is_set_by_user():
        return False
    _retains.set()
    return _adjusted([_MAPS_FROM_32_MB, _TRIMMING_FROM_128_MB])


def _is_set_by_user() -> bool:
    return "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "") or any(
        name in os.environ for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")
    )


def keep_freed() -> bool:
    """Let this process retain freed memory for its next allocations; return whether it does.

    The GNU C library returns large arrays to the system when they are freed, and the system clears
    each page that it hands out again. For XLA's temporaries this happens at each call.
    """
    settings = [_NO_MAPS, _NO_TRIMMING]
    # Only the main thread's heap grows to any size, but threads that share it wait for each other.
    settings += [_ONE_HEAP] if processors.available() == 1 else []
    if sys.platform.startswith("linux"):
        _keeps.set()
    return _adjusted(settings)


def _adjusted(settings: Iterable[tuple[int, int]]) -> bool:
    """Set options of malloc.h; return whether this library has them all."""
    if not sys.platform.startswith("linux"):
        return False
    adjust = getattr(ctypes.CDLL(None), "mallopt", None)
    # Other C libraries have no such function, or one that does nothing and returns 0.
    return adjust is not None and all(adjust(*setting) for setting in settings)


# Bytes of results and temporaries that take longer to clear at each call than the call itself.
LARGE_RESULTS = 2**22
# Set once the process is to keep all memory that it frees, or some.
_keeps, _retains = Event(), Event()

# The options of malloc.h: large arrays stay in the heap, the heap never shrinks, and all threads
# share one heap.
_NO_MAPS, _NO_TRIMMING, _ONE_HEAP = (-4, 0), (-1, -1), (-8, 1)
# Larger arrays have pages of their own; the heap shrinks when more than this is free at its end.
_MAPS_FROM_32_MB, _TRIMMING_FROM_128_MB = (-3, 2**25), (-1, 2**27)
