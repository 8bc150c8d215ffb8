"""Weights placed part by part: each process reads of the file what its own devices hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from sardonyx.graph.values.mmap import mapping_of


@dataclass
class Reading:
    """How many bytes of the weights this process has read, of how many there are.

    >>> print(Reading(read=1_000, total=4_000))
    1,000 of 4,000 bytes of weights read by this process
    """

    read: int = 0
    total: int = 0

    def __str__(self) -> str:
        return f"{self.read:,} of {self.total:,} bytes of weights read by this process"


def placed(host: np.ndarray[Any, Any], sharding: NamedSharding, reading: Reading) -> jax.Array:
    """A weight on the mesh. What is mapped from a file is read where it is needed, and once."""
    found: dict[Any, np.ndarray[Any, Any]] = {}

    def part(index: Any) -> np.ndarray[Any, Any]:
        key = tuple(piece.indices(size) for piece, size in zip(index, host.shape, strict=True))
        if key not in found:
            found[key] = host[index]
        return found[key]

    made = jax.make_array_from_callback(host.shape, sharding, part, dtype=host.dtype)
    reading.total += host.nbytes
    is_partial = mapping_of(host) is not None
    reading.read += sum(each.nbytes for each in found.values()) if is_partial else host.nbytes
    return made
