"""Times of repeated calls, of several runners in turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

# Calls that are not counted, after which caches are warm.
WARMING = 3
LEAST_ROUNDS = 5
PERCENTILES = (50, 90, 99)


@dataclass
class Timing:
    """The seconds of each call of one runner."""

    title: str
    call: Callable[[], Any]
    seconds: list[float] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return the percentiles as plain data."""
        figures = {f"p{p}": float(np.percentile(self.seconds, p)) for p in PERCENTILES}
        return {
            "title": self.title,
            "calls": len(self.seconds),
            "min": min(self.seconds),
            **figures,
        }


def measure_in_turns(timings: Sequence[Timing], seconds: float) -> None:
    """Call each in turn for so many seconds in all, since a machine may be slower at times.

    >>> timing = Timing("nothing", lambda: None)
    >>> measure_in_turns([timing], 0.0)
    >>> len(timing.seconds) == LEAST_ROUNDS
    True
    """
    for timing in timings:
        for _ in range(WARMING):
            timing.call()
    begin, rounds = perf_counter(), 0
    while rounds < LEAST_ROUNDS or perf_counter() - begin < seconds:
        for timing in timings:
            start = perf_counter()
            timing.call()
            timing.seconds.append(perf_counter() - start)
        rounds += 1


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """Return a result and the seconds that it took."""
    start = perf_counter()
    result = function()
    return result, perf_counter() - start
