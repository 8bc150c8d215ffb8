"""Place weights shard by shard: each process reads only the shards of its own devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from sardonyx.backends.mapped_files import mapping_of
from sardonyx.graph.values.mmap import content


@dataclass
class Reading:
    """The bytes of the weights that this process has read, and their total.

    >>> print(Reading(read=1_000, total=4_000))
    1,000 of 4,000 bytes of weights read by this process
    """

    read: int = 0
    total: int = 0

    def __str__(self) -> str:
        return f"{self.read:,} of {self.total:,} bytes of weights read by this process"


def placed(host: np.ndarray[Any, Any], sharding: NamedSharding, reading: Reading) -> jax.Array:
    """Put a weight on the mesh; each shard of a memory-mapped weight is read at most once."""
    shards: dict[Any, np.ndarray[Any, Any]] = {}

    def part(index: Any) -> np.ndarray[Any, Any]:
        key = tuple(piece.indices(size) for piece, size in zip(index, host.shape, strict=True))
        if key not in shards:
            shards[key] = content(host[index])
        return shards[key]

    array = jax.make_array_from_callback(host.shape, sharding, part, dtype=host.dtype)
    reading.total += host.nbytes
    is_partial = mapping_of(host) is not None
    reading.read += sum(shard.nbytes for shard in shards.values()) if is_partial else host.nbytes
    return array
