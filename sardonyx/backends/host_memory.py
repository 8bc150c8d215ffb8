"""The host's memory: where arrays should lie in it, and who keeps what is free."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np

from sardonyx.backends import processors

# XLA for CPU takes over what lies at multiples of this, and copies other arrays.
ALIGNMENT = 64
# To copy fewer bytes than these costs less than to look at where they are.
SMALLEST = 2**16


def zero_bytes(size: int) -> np.ndarray[Any, Any]:
    """So many bytes, at an address that XLA takes over.

    >>> zero_bytes(3).tolist()
    [0, 0, 0]
    """
    room = np.zeros(size + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + size]


def aligned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array itself where it is small or lies well; otherwise a copy that does.

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
    """Let this process keep what is freed in it, for what it allocates next; tell whether it does.

    The GNU C library gives large arrays back to the system when they are freed, and the system
    hands out each page anew, cleared. For XLA's temporaries that is so at each call.
    """
    if not sys.platform.startswith("linux"):
        return False
    adjust = getattr(ctypes.CDLL(None), "mallopt", None)
    settings = [_NO_MAPS, _NO_TRIMMING]
    # Only the main thread's heap grows to any size; but where threads share it, they wait.
    settings += [_ONE_HEAP] if processors.available() == 1 else []
    # Other libraries have no such function, or one that does nothing and says so.
    return adjust is not None and all(adjust(*setting) for setting in settings)


# As in malloc.h: no array in a map of its own, no end of the heap that is given back, and one heap
# for all threads.
_NO_MAPS, _NO_TRIMMING, _ONE_HEAP = (-4, 0), (-1, -1), (-8, 1)
