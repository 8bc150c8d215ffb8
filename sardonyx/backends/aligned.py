"""Host memory at addresses that XLA for CPU takes over as they are; of other memory it copies."""

from __future__ import annotations

from typing import Any

import numpy as np

ALIGNMENT = 64
# To copy fewer bytes than these costs less than to look at where they are.
SMALLEST = 2**16


def zero_bytes(size: int) -> np.ndarray[Any, Any]:
    """So many bytes, at such an address.

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
