"""Forked processes: a library whose threads or device belong to the parent would hang in them."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import RLock
from typing import Any

from sardonyx.errors import BackendUnavailable


class Fork:
    """Knows whether this process was forked while a library was running."""

    def __init__(self, library: str, is_running: Callable[[], bool]) -> None:
        self.library = library
        self.happened = False
        self._is_running = is_running
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._note)

    def _note(self) -> None:
        self.happened = self.happened or self._is_running()

    def refuse(self) -> None:
        """Raise where the library cannot be used any more."""
        if self.happened:
            raise BackendUnavailable(
                f"This process was forked while {self.library} was running, and {self.library} "
                "cannot go on in it. Start processes with multiprocessing's 'spawn' or "
                "'forkserver', or use backend='numpy' here."
            )


class Unforked:
    """A lock, to be used as a context: while a thread is in it, no other one forks the process.

    The copy of a lock that such a thread holds would never be released in the forked process.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._delays_forks = False

    def __enter__(self) -> None:
        self._lock.acquire()
        if not self._delays_forks and hasattr(os, "register_at_fork"):
            self._delays_forks = True
            acquire, release = self._lock.acquire, self._lock.release
            os.register_at_fork(before=acquire, after_in_parent=release, after_in_child=release)

    def __exit__(self, *_: Any) -> None:
        self._lock.release()
