"""A search in the second size's call, as far as that is short beside the call itself.

A search takes as long as a few traces. The call of a third size waits for it, unless the call
before took so long that nobody notices.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from threading import main_thread

# A call of a new size takes at most so many times as long as its steps: with its own trace, and
# with a part of the search.
MOST_TIMES = 2.75


class OutOfPatience(Exception):  # noqa: N818  (a signal, not an error)
    """The search would take too long now; somebody else goes on with it."""


@dataclass(frozen=True)
class Patience:
    """Until when a search may go on, and how long a trace takes if nobody knows better."""

    until: float
    seconds: float

    @property
    def is_left(self) -> bool:
        """Whether a trace may begin."""
        return self.seconds < self.until - time.perf_counter() < math.inf

    def begin(self, seconds: float) -> None:
        """Raise `OutOfPatience` if one more trace would end too late, or what takes as long.

        Nobody waits for one in a process that is about to end.
        """
        ends = time.perf_counter() + (seconds or self.seconds)
        if ends > self.until or not main_thread().is_alive():
            raise OutOfPatience


# Of a search beside calls.
PATIENCE = Patience(math.inf, 0.0)


def patience_of(seconds: float, began: float) -> Patience:
    """Return how long a search may take in a call whose steps took so many seconds."""
    took = time.perf_counter() - began
    return Patience(began + MOST_TIMES * seconds, took - seconds)
