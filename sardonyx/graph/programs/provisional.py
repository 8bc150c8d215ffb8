"""Functions of segments that others are to replace after a few runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from sardonyx.backends.executable import Executable
from sardonyx.logs import Log
from sardonyx.printable import first_line

_LOG = Log("compiling")


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


def write_out(job: Callable[[], object]) -> None:
    """Do the job of writing a segment out; its steps go on one by one if that fails."""
    try:
        job()
    except Exception as error:
        _LOG.info("Steps are not written out: %s.", partial(first_line, error))
