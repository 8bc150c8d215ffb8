"""Calls in other threads, which end in a function of the caller's."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sardonyx.backends import processors

# Takes results, the caller's own data, and the message of an error, empty if there is none.
Callback = Callable[[list[Any], Any, str], Any]


class Background:
    """The threads in which a session runs asynchronous calls; the first call starts them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def __reduce__(self) -> Any:
        return Background, ()

    def run(self, call: Callable[[], list[Any]], callback: Callback, user_data: Any) -> None:
        """Run a call in another thread, and then the function with its results or its error."""
        with self._lock:
            if self._pool is None:
                count = max(1, processors.available())
                self._pool = ThreadPoolExecutor(count, thread_name_prefix="sardonyx-run-async")
        self._pool.submit(_run, call, callback, user_data)


def _run(call: Callable[[], list[Any]], callback: Callback, user_data: Any) -> None:
    try:
        results, message = call(), ""
    except Exception as error:
        results, message = [], str(error) or type(error).__name__
    try:
        callback(results, user_data, message)
    except BaseException:
        # Nobody waits for the call: the error is shown as that of any other thread.
        kind, value, trace = sys.exc_info()
        if kind is not None:
            threading.excepthook(
                threading.ExceptHookArgs((kind, value, trace, threading.current_thread()))
            )
