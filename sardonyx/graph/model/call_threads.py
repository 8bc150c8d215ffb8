"""The threads in which `async_call` runs the calls of a model."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from sardonyx.backends import processors


class CallThreads:
    """A pool of threads for one model, created when it is first needed.

    It has as many threads as the process has processors, since more calls at a time would only wait
    for each other. Its threads end with `release`, or with the model.
    """

    def __init__(self) -> None:
        # By the process, as threads do not survive a fork. Without a lock, since a fork could copy
        # one that is held.
        self._pools: dict[int, ThreadPoolExecutor] = {}

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        """Run a call in one of the threads, when one is free."""
        while True:
            pool = self._pool()
            try:
                return pool.submit(call)
            except RuntimeError:
                if self._pools.get(os.getpid()) is pool:  # The interpreter ends.
                    raise

    def release(self) -> None:
        """Let the threads end after the calls that wait for them."""
        pool = self._pools.pop(os.getpid(), None)
        self._pools.clear()
        if pool is not None:
            pool.shutdown(wait=False)

    def _pool(self) -> ThreadPoolExecutor:
        process = os.getpid()
        pool = self._pools.get(process)
        if pool is None:
            new = ThreadPoolExecutor(processors.available(), thread_name_prefix="sardonyx-call")
            pool = self._pools.setdefault(process, new)
        return pool
