"""Limits on values that can be much larger than their inputs: refused before they are computed."""

from __future__ import annotations

import math
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from weakref import finalize

import numpy as np

from sardonyx.backends.memory_limit import memory_limit
from sardonyx.errors import LimitExceeded

Shape = tuple[int, ...]

# What one value may take if the model makes it of little: this, or less on a small machine.
LARGEST_VALUE = 2**32
MOST_AXES = 64
# How many times as large as the inputs of a call a value may be in any case.
GROWTH = 16
# Smaller values are not counted together: nobody has so many of them.
SMALLEST_COUNTED = 2**16


def largest_value() -> int:
    """The default for the bytes of one value that is made of little: a quarter of the memory."""
    return min(LARGEST_VALUE, memory_limit() // 4)


@dataclass(eq=False, slots=True)
class Budget:
    """What the values of one trace may take: each by itself, and all that live at once."""

    value: int
    live: int = 0

    @classmethod
    def of(cls, least: int, inputs: int, weights: int) -> Budget:
        """What is allowed where inputs and weights have so many bytes, and at `least` that much.

        A value may always be as large as what the model is given. It may be some times as large as
        the inputs, as long as that is half of the memory at most.
        """
        grown = min(GROWTH * inputs + weights, memory_limit() // 2)
        return cls(max(least, inputs + weights, grown))

    def hold(self, owner: object, shape: Shape, dtype: np.dtype[Any]) -> None:
        """Count a value that lives as long as its `owner`."""
        size = math.prod(shape) * dtype.itemsize
        if size < SMALLEST_COUNTED:
            return
        self.live += size
        finalize(owner, self._let_go, size).atexit = False
        if self.live > 2 * self.value:
            raise LimitExceeded(
                f"with a value of shape {list(shape)} and type {dtype.name}, all values that are "
                f"still needed would take {self.live:,} bytes; at most {2 * self.value:,} are "
                f"allowed. {_WAY_OUT}"
            )

    def _let_go(self, size: int) -> None:
        self.live -= size


_WAY_OUT = "Make it smaller, or pass limits=sardonyx.Limits(value_bytes=...) to sardonyx.load"
_current: ContextVar[Budget | None] = ContextVar("budget", default=None)


class spending:  # noqa: N801  (read as `with spending(budget)`)
    """Within, values are held against `budget`.

    No generator: those touch the errors that pass them, and some errors let nobody.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget

    def __enter__(self) -> None:
        self._token = _current.set(self._budget)

    def __exit__(self, *error: object) -> None:
        _current.reset(self._token)


def hold(owner: object, shape: Shape, dtype: np.dtype[Any]) -> None:
    """Count a value of the trace that is being made, as long as its `owner` lives."""
    if (budget := _current.get()) is not None:
        budget.hold(owner, shape, dtype)


def refuse_huge_here(shape: Shape, dtype: np.dtype[Any], most: int | None, copies: int) -> None:
    """Refuse a value that is too large for the trace that is being made.

    Where none is, the shapes were checked by the one before. Then only what could never be is
    refused, unless it is said what is the `most`.
    """
    budget = _current.get()
    if budget is not None:
        most = budget.value
    elif most is None:
        most = max(memory_limit(), LARGEST_VALUE)
    refuse_huge(shape, dtype, most, copies)


def refuse_huge(shape: Shape, dtype: np.dtype[Any], most: int, copies: int = 1) -> None:
    """Refuse a value that would take more than `most` bytes, or `copies` of it while it is made."""
    if len(shape) > MOST_AXES:
        raise LimitExceeded(
            f"a value would have {len(shape):,} axes, and NumPy's limit is {MOST_AXES}: reshape it "
            "to fewer"
        )
    size = math.prod(shape) * dtype.itemsize * copies
    if size > most:
        raise LimitExceeded(
            f"a value of shape {list(shape)} and type {dtype.name} would take {size:,} bytes"
            f"{' while it is made' if copies > 1 else ''}; at most {most:,} are allowed. {_WAY_OUT}"
        )
    if math.prod(filter(None, shape)) * dtype.itemsize >= 2**63:
        raise LimitExceeded(
            f"a value of shape {list(shape)} has no elements, but axes too large to be counted"
        )
