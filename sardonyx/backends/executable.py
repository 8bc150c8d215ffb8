"""Compiled functions, and the shapes and dtypes that they are compiled for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

Replay = Callable[..., Sequence[Any]]


class Spec(NamedTuple):
    """Shape and dtype of a value without its data."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class Costs:
    """The compiler's report on a program, in bytes and in arithmetic operations."""

    arguments: int
    outputs: int
    # The peak of all other buffers that exist at one time.
    temporaries: int
    # Buffers of donated arguments that became outputs.
    donated: int
    operations: float
    # Read from memory and written to it.
    moved: float


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Executable:
    """A function of arrays, ready to run."""

    run: Replay
    costs: Callable[[], Costs] | None = None
