"""Functions of segments that others are to replace after a few runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from sardonyx.backends.executable import Executable
from sardonyx.logs import Log
from sardonyx.printable import first_line

_LOG = Log("compiling")


class Runs(NamedTuple):
    """What is known about the runs step by step. The default says nothing about them."""

    # The least of them but the first one, which prepares weights. During that the time that it
    # may take before the compiler starts.
    seconds: float = 0.0
    # How many runs that was, without the first.
    number: int = 0

    def and_one(self, seconds: float) -> Runs:
        """Return what is known after another run.

        >>> Runs().and_one(0.3).and_one(0.2)
        Runs(seconds=0.2, number=2)
        """
        return Runs(min(seconds, self.seconds) if self.number else seconds, self.number + 1)


class TooFewRuns(Exception):  # noqa: N818  (a signal, not an error)
    """What becomes of a segment shows after more runs."""


class Decide(Protocol):
    """Returns whether the next run starts the compiler."""

    def __call__(self, seconds: float, /, *, has_ended: bool = True) -> bool:
        """Take the seconds of a run, or those so far; infinite ones if it cannot run."""


class Provisional(ABC):
    """The function of a segment for now."""

    @property
    @abstractmethod
    def executable(self) -> Executable | None:
        """The function that replaces it, if that is ready."""

    @abstractmethod
    def run(self, *arrays: Any) -> Sequence[Any]:
        """Return the results of a call."""

    @abstractmethod
    def compiled(self) -> Executable:
        """Return the function that replaces it; make it if need be."""

    @abstractmethod
    def is_written_out(self) -> bool:
        """Whether NumPy computes the segment from now on, which is found out if need be."""


def write_out(job: Callable[[], object]) -> bool:
    """Do the job of writing a segment out; its steps go on one by one if that fails.

    Return False if it is to be tried again after more runs.
    """
    try:
        job()
    except TooFewRuns:
        return False
    except Exception as error:
        _LOG.info("Steps are not written out: %s.", partial(first_line, error))
    return True
