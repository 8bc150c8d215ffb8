"""Random numbers as a pure function of a key, the same ones on every array library.

The generator is Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror and Shaw, "Parallel random
numbers: as easy as 1, 2, 3", SC11). A key is an array of two uint32.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
UINT32 = np.dtype(np.uint32)


def key_of(seed: float) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """The key of a seed, on the host: the two halves of it as a float64."""
    bits = int(np.asarray(seed + 0.0, np.float64).view(np.uint64))
    return np.asarray(divmod(bits, 2**32), UINT32)


def fold_in(xp: Backend, key: Array, number: Any) -> Array:
    """A key of its own for each number: an integer of 64 bits, or an array that is one of 32.

    >>> from sardonyx.backends.numpy import HOST
    >>> key = fold_in(HOST, key_of(0.0), 7)
    >>> key.dtype.name, key.shape
    ('uint32', (2,))
    """
    if isinstance(number, int):
        high, low = (xp.full((1,), part, dtype=key.dtype) for part in divmod(number, 2**32))
    else:
        low = xp.reshape(xp.astype(xp.asarray(number), key.dtype), (1,))
        high = xp.zeros((1,), dtype=key.dtype)
    return xp.concat(threefry(xp, key, high, low))


def uniform(xp: Backend, key: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Numbers of a float type in [0, 1), evenly spaced by the unit in the last place below 1."""
    xp.allow(shape, dtype, copies=8)
    size = math.prod(shape)
    if dtype.itemsize == 8:
        high, low = threefry(xp, key, *_counters(xp, size))
        # All in float64, in which 53 bits are exact.
        upper, lower = (xp.astype(x, xp.dtype(dtype)) for x in (high >> 5, low >> 6))
        return xp.reshape((upper * 2.0**26 + lower) * 2.0**-53, shape)
    words = xp.concat(threefry(xp, key, *_counters(xp, -(-size // 2))))[:size]
    digits = _digits(dtype)
    wide = xp.astype(words >> (32 - digits), xp.dtype(np.dtype(np.float32)))
    return xp.reshape(xp.astype(wide * 2.0**-digits, xp.dtype(dtype)), shape)


def normal(xp: Backend, key: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Numbers of float32 or float64 from the standard normal distribution, by Box and Muller."""
    size = math.prod(shape)
    drawn = uniform(xp, key, (2, -(-size // 2)), dtype)
    radius = xp.sqrt(-2.0 * xp.log1p(-drawn[0, :]))
    angle = 2.0 * math.pi * drawn[1, :]
    both = xp.concat([radius * xp.cos(angle), radius * xp.sin(angle)])
    return xp.reshape(both[:size], shape)


def threefry(xp: Backend, key: Array, first: Array, second: Array) -> tuple[Array, Array]:
    """Two uint32 at random for each pair of counters."""
    # Arrays of one element: to NumPy, unlike a scalar, they may overflow.
    parts = [key[0:1], key[1:2]]
    parts.append(parts[0] ^ parts[1] ^ PARITY)
    a, b = first + parts[0], second + parts[1]
    for turn in range(5):
        for rotation in ROTATIONS[turn % 2]:
            a = a + b
            b = ((b << rotation) | (b >> (32 - rotation))) ^ a
        a = a + parts[(turn + 1) % 3]
        b = b + parts[(turn + 2) % 3] + (turn + 1)
    return a, b


def _counters(xp: Backend, count: int) -> tuple[Array, Array]:
    second = xp.arange(count, dtype=xp.dtype(UINT32))
    return xp.zeros_like(second), second


def _digits(dtype: np.dtype[Any]) -> int:
    """How many bits a number just below 1 has."""
    return int(ml_dtypes.finfo(dtype).nmant) + 1
