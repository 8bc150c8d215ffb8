"""Calls that another thread can stop: between segments, and before each single step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_asked: ContextVar[Callable[[], bool] | None] = ContextVar("sardonyx_stop", default=None)


class Stopped(BaseException):
    """The call was stopped. No code that recovers from errors may go on with it."""


@contextmanager
def stoppable(is_stopped: Callable[[], bool]) -> Iterator[None]:
    """Let calls in this thread end with `Stopped` once the function returns True.

    >>> with stoppable(lambda: False):
    ...     stop_if_asked()
    """
    token = _asked.set(is_stopped)
    try:
        stop_if_asked()
        yield
    finally:
        _asked.reset(token)


def stop_if_asked() -> None:
    """Raise `Stopped` if the call in this thread is to end.

    >>> stop_if_asked()
    """
    is_stopped = _asked.get()
    if is_stopped is not None and is_stopped():
        raise Stopped
