"""The largest elements by a sort of single integers, each an element above its place.

On CPUs XLA sorts pairs of arrays by calls of a comparison, which takes five times as long. XLA's
kernel for a few large elements takes float32 alone.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

# XLA's kernel is faster for less than this share of the elements.
SHARE = 6


def top_k(x: Any, k: int, axis: int) -> Any:
    """Return where the `k` largest are, in order, equal ones in theirs.

    Floats must have one zero, and NaN of one sign.
    """
    general = partial(general_top_k, k=k, axis=axis)
    on_cpu = general
    is_integer = jnp.issubdtype(x.dtype, jnp.integer) and x.dtype.itemsize <= 4
    if is_integer and x.dtype.itemsize < 4 and not _are_many(x, k, axis):
        on_cpu = partial(_as_floats, k=k, axis=axis)
    elif is_integer or (x.dtype == np.float32 and _are_many(x, k, axis)):
        on_cpu = partial(_by_packed_sort, k=k, axis=axis)
    return (
        general(x) if on_cpu is general else lax.platform_dependent(x, cpu=on_cpu, default=general)
    )


def general_top_k(x: Any, k: int, axis: int) -> Any:
    """The same as one operation of XLA."""
    return lax.top_k(x, k, axis=axis)[1].astype(np.int64)


def _are_many(x: Any, k: int, axis: int) -> bool:
    return bool(k * SHARE > x.shape[axis])


def _as_floats(x: Any, k: int, axis: int) -> Any:
    """Float32 represents all integers of 16 bits."""
    return general_top_k(x.astype(np.float32), k, axis)


def _by_packed_sort(x: Any, k: int, axis: int) -> Any:
    places = lax.broadcasted_iota(np.int64, x.shape, axis)
    # The complement turns the order around.
    packed = lax.shift_left(~_as_integers(x), np.int64(32)) | places
    ordered = lax.sort(packed, dimension=axis, is_stable=False)
    return lax.slice_in_dim(ordered, 0, k, axis=axis) & np.int64(2**32 - 1)


def _as_integers(x: Any) -> Any:
    """Integers of 32 bits, in int64, in the same order."""
    if x.dtype == np.uint32:
        return x.astype(np.int64) - np.int64(2**31)
    if x.dtype == np.float32:
        bits = lax.bitcast_convert_type(x, np.int32)
        # Negative floats are ordered by their magnitude.
        x = jnp.where(bits < 0, bits ^ np.int32(2**31 - 1), bits)
    return x.astype(np.int64)
