"""What a backend compiles, and the shapes and dtypes for which it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

Replay = Callable[..., Sequence[Any]]


class Spec(NamedTuple):
    """Shape and dtype of a value whose data is not known, or not needed."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class Costs:
    """What a compiler says of what it made, in bytes, and in operations on numbers."""

    arguments: int
    outputs: int
    # The largest amount that lives at once of what is neither argument nor output.
    temporaries: int
    # What outputs took over from arguments that the caller gave up.
    donated: int
    code: int
    operations: float
    # What is read and written in memory.
    moved: float


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Executable:
    """A function of arrays, ready to run."""

    run: Replay
    costs: Callable[[], Costs] | None = None
