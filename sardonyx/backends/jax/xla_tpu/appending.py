"""One row appended to many, as when a cache grows by a token.

Where the row comes out of a part of a larger array, as keys do of a joined product, XLA:TPU copies
the whole cache twice: once into a longer array that it clears, once with the row in its place.
Choosing at each position between the cache and the row is one pass, and XLA joins it with what
reads the result.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

# Types in which caches are kept, and which TPUs need not divide into pairs.
_DTYPES = ("float32", "bfloat16", "float16")


def is_appending(arrays: Any, axis: int) -> bool:
    """Whether these are many rows and one, in an array as caches are."""
    if len(arrays) != 2:
        return False
    rows, row = arrays
    return (
        rows.ndim >= 3
        and row.shape[axis] == 1
        and rows.dtype == row.dtype
        and rows.dtype.name in _DTYPES
    )


def appended(rows: Any, row: Any, *, axis: int) -> Any:
    """The same as a concatenation."""
    count = rows.shape[axis]
    axis %= rows.ndim
    room = [(0, int(each == axis), 0) for each in range(rows.ndim)]
    longer = lax.pad(rows, jnp.zeros((), rows.dtype), room)
    place = lax.broadcasted_iota(jnp.int32, longer.shape, axis)
    return jnp.where(place < count, longer, row)
