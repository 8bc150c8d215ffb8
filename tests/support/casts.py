"""Casts between all types, by JAX in this process: to compare with those of another processor.

`python -m tests.support.casts FILE` writes them down, so that it may run under other flags of XLA.
"""

from __future__ import annotations

import math
import sys
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.dtypes import isdtype
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.ops.casting import Cast

FLOATS = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float4_e2m1fn]
FLOATS += [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e8m0fnu]
FLOATS += [ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz]
INTEGERS = [f"{sign}int{8 << i}" for sign, i in product(("", "u"), range(4))]
INTEGERS += [ml_dtypes.int2, ml_dtypes.int4, ml_dtypes.uint2, ml_dtypes.uint4]
DTYPES = [np.dtype(dtype) for dtype in (np.bool_, *INTEGERS, *FLOATS)]

# What lies around: the ends of each type's range, its subnormal numbers, and whole numbers.
EXPONENTS = [*range(-152, -145), *range(-136, -124), *range(-28, 20), 31, 32, 63, 64, 127, 128]
EXPONENTS += [-1075, -1074, -1050, -1022, 1023]
NUDGES = [0.0, *(sign * 2.0**-n for sign in (1, -1) for n in (26, 40))]


class Target(NamedTuple):
    dtype: np.dtype[Any]
    saturate: int


JAX = JaxBackend()
TARGETS = [Target(dtype, 1) for dtype in DTYPES]
TARGETS += [Target(dtype, 0) for dtype in DTYPES if dtype.name.startswith("float8")]


def values(dtype: np.dtype[Any]) -> np.ndarray:
    """All numbers of a narrow type; of a wide one ties, what lies beside them, and any bits."""
    if dtype == np.bool_:
        return np.array([True, False])
    is_integer = isdtype(dtype, "integral")
    bits = int((ml_dtypes.iinfo if is_integer else ml_dtypes.finfo)(dtype).bits)
    if bits <= 8:
        return np.arange(2**bits, dtype=np.uint8).view(dtype)
    word = f"u{bits // 8}"
    anything = np.random.default_rng(0).integers(0, 2**bits - 1, 500, np.uint64).astype(word)
    if not is_integer:
        with np.errstate(over="ignore"):
            return np.concatenate([_ties().astype(dtype), anything.view(dtype)])
    ends = [
        2**top + 2**low + n
        for top in range(bits)
        for low in range(top % 3, top, 3)
        for n in (-1, 0, 1)
    ]
    near = np.array([n % 2**bits for end in ends for n in (end, -end)], np.uint64).astype(word)
    return np.concatenate([near, anything]).view(dtype)


def _ties() -> np.ndarray:
    draw = np.random.default_rng(1)
    halves = [1 + (draw.integers(0, 2**n) + 0.5) * 2.0**-n for n in (0, 1, 2, 3, 7, 10, 23)]
    near = np.add.outer(np.array([1.0, *halves]), NUDGES).ravel()
    numbers = np.ldexp(near[:, None], EXPONENTS).ravel()
    special = [0.0, math.inf, math.nan, 6.0, 448.0, 464.0, 57344.0, 65519.99, 65520.0]
    return np.concatenate([numbers, special, -numbers, np.negative(special)])


@cache
def results(xp: Backend, source: np.dtype[Any]) -> list[np.ndarray]:
    """The values of a type as each of the others, in one program."""
    with xp.scope(), np.errstate(all="ignore"):
        x = xp.put(values(source))

        def replay(x: Any) -> list[Any]:
            return [Cast(xp, x, to=to, saturate=saturate) for to, saturate in TARGETS]

        return [np.asarray(xp.fetch(result)) for result in xp.compile(replay, [x]).run(x)]


def words(x: np.ndarray) -> np.ndarray:
    """The bits of each element, and one message for whatever is not a number."""
    x = np.ascontiguousarray(x)
    bits = x.view(f"u{x.itemsize}").copy()
    if isdtype(x.dtype, "real floating"):
        is_nan = np.isnan(x.astype(np.float64))
        bits[is_nan] = np.array(math.nan).astype(x.dtype).view(bits.dtype)
    return bits


def all_words() -> dict[str, np.ndarray]:
    return {
        f"{source.name} to {target.dtype.name}, saturate={target.saturate}": words(result)
        for source in DTYPES
        for target, result in zip(TARGETS, results(JAX, source), strict=True)
    }


if __name__ == "__main__":
    np.savez(sys.argv[1], **all_words())
