"""Compiles and traces in threads of their own, while calls go on."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable
from threading import Lock, Thread, local, main_thread

from sardonyx.backends import processors
from sardonyx.backends.forks import Unforked

# Compilers have threads of their own, too.
MOST_THREADS = 4

# While a job runs, threads that wait for Python's lock get it after so many seconds. Calls take the
# lock again after each operation of NumPy, and by default would wait for 5 ms each time.
QUICK_SWITCH = 1e-4

# For so many seconds work that nobody waits for stops now and then, some 1,000 times in all.
MOMENT = 3e-4

# What threads know of themselves.
_own = local()


class Background:
    """Runs jobs in a few threads, which end when there are no more jobs.

    When the main thread has ended, the process waits for running jobs, and the others never start.
    """

    def __init__(self) -> None:
        self._watches_forks = False
        self._begin()

    def _begin(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._threads = 0
        self._lock = Lock()
        # Python's own interval, while there are threads.
        self._switch_interval = 0.0

    def submit(self, job: Callable[[], None], *, is_next: bool = False) -> None:
        """Run the job, before or after those that wait; it must not raise."""
        with self._lock:
            self._watch_forks()
            if is_next:
                self._waiting.appendleft(job)
            else:
                self._waiting.append(job)
            most = min(MOST_THREADS, max(1, processors.available() // 2))
            if self._threads >= most:
                return
            self._threads += 1
            if self._threads == 1:
                self._switch_interval = sys.getswitchinterval()
                sys.setswitchinterval(min(QUICK_SWITCH, self._switch_interval))
        # A process that ended during a compile would crash, and threads of daemons are daemons.
        Thread(target=self._work, name="sardonyx-compile", daemon=False).start()

    def count_waiting(self) -> int:
        """Return the number of jobs that wait for a thread."""
        return len(self._waiting)

    def _watch_forks(self) -> None:
        if not self._watches_forks and hasattr(os, "register_at_fork"):
            self._watches_forks = True
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """Begin anew in a forked process, which has none of the threads."""
        if self._threads and sys.getswitchinterval() == QUICK_SWITCH:
            sys.setswitchinterval(self._switch_interval)
        self._begin()

    def _work(self) -> None:
        _own.is_background = True
        while (job := self._next()) is not None:
            job()

    def _next(self) -> Callable[[], None] | None:
        with self._lock:
            if self._waiting and main_thread().is_alive():
                return self._waiting.popleft()
            self._threads -= 1
            if not self._threads and sys.getswitchinterval() == QUICK_SWITCH:
                sys.setswitchinterval(self._switch_interval)
            return None


def in_background() -> bool:
    """Whether this is one of those threads."""
    return getattr(_own, "is_background", False)


def give_way() -> None:
    """Let calls go on for a moment, if this is a thread in the background with time to spare."""
    if in_background():
        time.sleep(MOMENT)


COMPILES = Background()
# What a job holds while no process is to be forked.
UNFORKED = Unforked()
