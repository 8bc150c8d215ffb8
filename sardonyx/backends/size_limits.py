"""Limits on values that can be much larger than their inputs: refused before they are computed."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, ExitStack
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from weakref import finalize

import numpy as np

from sardonyx.backends.memory_limit import memory_limit
from sardonyx.backends.standard import Shape
from sardonyx.errors import LimitExceeded

# The maximum bytes of a value that is much larger than its inputs; fewer on a small machine.
LARGEST_VALUE = 2**32
MOST_AXES = 64
# The factor by which a value may always exceed the inputs of a call.
GROWTH = 16
# Smaller values are not counted: no model has enough of them to fill the memory.
SMALLEST_COUNTED = 2**16


def largest_value() -> int:
    """The default maximum for a value much larger than its inputs: a quarter of the memory."""
    return min(LARGEST_VALUE, memory_limit() // 4)


@dataclass(eq=False, slots=True)
class Budget:
    """The maximum bytes for one value of a trace, and the bytes of all that live now."""

    value: int
    live: int = 0

    @classmethod
    def of(cls, least: int, inputs: int, weights: int) -> Budget:
        """The budget for a call with so many bytes of inputs and weights, and at least `least`.

        A value may always be as large as inputs and weights together, and `GROWTH` times as large
        as the inputs within half of the memory.
        """
        grown = min(GROWTH * inputs + weights, memory_limit() // 2)
        return cls(max(least, inputs + weights, grown))

    def hold(self, owner: object, shape: Shape, dtype: np.dtype[Any]) -> None:
        """Count a value that lives as long as its `owner`."""
        size = math.prod(shape) * dtype.itemsize
        if size < SMALLEST_COUNTED:
            return
        self.live += size
        finalize(owner, self._release, size).atexit = False
        if self.live > 2 * self.value:
            raise LimitExceeded(
                f"with a value of shape {list(shape)} and type {dtype.name}, all values in use "
                f"would take {self.live:,} bytes; at most {2 * self.value:,} are allowed. {_REMEDY}"
            )

    def _release(self, size: int) -> None:
        self.live -= size


_REMEDY = "Make it smaller, or pass limits=sardonyx.Limits(value_bytes=...) to sardonyx.load"
_current: ContextVar[Budget | None] = ContextVar("budget", default=None)


def spending(budget: Budget) -> AbstractContextManager[object]:
    """Return a context to enter at once, in which values count towards `budget`.

    It is no generator, because generators set attributes of errors that pass through them, and
    some errors refuse that.
    """
    context = ExitStack()
    context.callback(_current.reset, _current.set(budget))
    return context


def hold(owner: object, shape: Shape, dtype: np.dtype[Any]) -> None:
    """Count a value of the current trace for as long as its `owner` lives."""
    if (budget := _current.get()) is not None:
        budget.hold(owner, shape, dtype)


def refuse_huge_here(shape: Shape, dtype: np.dtype[Any], most: int | None, copies: int) -> None:
    """Refuse a value that is too large for the current trace.

    Outside of a trace the shapes were checked by an earlier one. The limit is then `most`, or what
    no machine could compute.
    """
    budget = _current.get()
    if budget is not None:
        most = budget.value
    elif most is None:
        most = max(memory_limit(), LARGEST_VALUE)
    refuse_huge(shape, dtype, most, copies)


def refuse_huge(shape: Shape, dtype: np.dtype[Any], most: int, copies: int = 1) -> None:
    """Refuse a value of which `copies` would take more than `most` bytes."""
    if len(shape) > MOST_AXES:
        raise LimitExceeded(
            f"a value would have {len(shape):,} axes; NumPy allows {MOST_AXES}, so reshape it"
        )
    size = math.prod(shape) * dtype.itemsize * copies
    if size > most:
        raise LimitExceeded(
            f"a value of shape {list(shape)} and type {dtype.name} would take {size:,} bytes"
            f"{' while computed' if copies > 1 else ''}; at most {most:,} are allowed. {_REMEDY}"
        )
    if not size and math.prod(filter(None, shape)) * dtype.itemsize >= 2**63:
        raise LimitExceeded(
            f"a value of shape {list(shape)} has no elements, but its axes are too large to count"
        )
