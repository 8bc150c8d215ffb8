"""The host's memory: the alignment of arrays, and memory retained after it is freed."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np

from sardonyx.backends import processors

# XLA for CPU uses arrays at multiples of this in place, and copies other ones.
ALIGNMENT = 64
# Copying fewer bytes than these costs less than looking at their address.
SMALLEST = 2**16


def zero_bytes(size: int) -> np.ndarray[Any, Any]:
    """So many bytes, at an address that XLA uses in place.

    >>> zero_bytes(3).tolist()
    [0, 0, 0]
    """
    room = np.zeros(size + ALIGNMENT, np.uint8)
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
    copy: np.ndarray[Any, Any] = zero_bytes(array.nbytes).view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def keep_freed() -> bool:
    """Let this process retain freed memory for its next allocations; return whether it does.

    The GNU C library returns large arrays to the system when they are freed, and the system clears
    each page that it hands out again. For XLA's temporaries this happens at each call.
    """
    if not sys.platform.startswith("linux"):
        return False
    adjust = getattr(ctypes.CDLL(None), "mallopt", None)
    settings = [_NO_MAPS, _NO_TRIMMING]
    # Only the main thread's heap grows to any size, but threads that share it wait for each other.
    settings += [_ONE_HEAP] if processors.available() == 1 else []
    # Other C libraries have no such function, or one that does nothing and returns 0.
    return adjust is not None and all(adjust(*setting) for setting in settings)


# The options of malloc.h: large arrays stay in the heap, the heap never shrinks, and all threads
# share one heap.
_NO_MAPS, _NO_TRIMMING, _ONE_HEAP = (-4, 0), (-1, -1), (-8, 1)
