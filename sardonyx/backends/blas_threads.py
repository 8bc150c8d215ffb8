"""The threads of NumPy's BLAS, whose number belongs to the process and not to a call.

While calls of models with a limit run, the smallest of their limits holds for the whole process.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import Any

from sardonyx.errors import InvalidInput


class _Limits:
    """The limits of the calls that run now, and what the libraries had before them."""

    def __init__(self) -> None:
        self._lock = Lock()
        # None until a limit is asked for.
        self._libraries: list[Any] | None = None
        self._limits: list[int] = []
        self._before: list[int] = []

    def can_be_set(self) -> bool:
        with self._lock:
            return bool(self._found())

    def add(self, limit: int) -> None:
        with self._lock:
            libraries = self._found()
            if not self._limits:
                self._before = [library.get_num_threads() for library in libraries]
            self._limits.append(limit)
            self._set()

    def remove(self, limit: int) -> None:
        with self._lock:
            self._limits.remove(limit)
            self._set()

    def _found(self) -> list[Any]:
        """The libraries, which are looked for once, by the thread that has the lock."""
        if self._libraries is None:
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=self._forget)
            # Imported here, as it looks at all libraries of the process.
            from threadpoolctl import ThreadpoolController  # noqa: PLC0415

            self._libraries = ThreadpoolController().select(user_api="blas").lib_controllers
        return self._libraries

    def _set(self) -> None:
        for library, before in zip(self._found(), self._before, strict=True):
            wanted = min([before, *self._limits])
            if library.get_num_threads() != wanted:
                _setter(library)(wanted)

    def _forget(self) -> None:
        """Drop the limits of the parent's calls, which do not run in a forked process."""
        self._lock = Lock()
        if self._limits:
            self._limits.clear()
            self._set()


def _setter(library: Any) -> Callable[[int], object]:
    """Return what sets the number of a library's threads, whichever thread calls it.

    From threadpoolctl 3.8 on, `set_num_threads` of OpenBLAS does nothing in other threads while
    the first one that called it lives. Limits of calls come from all threads, one at a time.
    """
    setter: Callable[[int], object] = getattr(
        library, "_real_set_num_threads", library.set_num_threads
    )
    return setter


_LIMITS = _Limits()


class AtMost(AbstractContextManager[None]):
    """Limits the threads of NumPy's products to this number, within another context.

    >>> with AtMost(1):
    ...     pass
    """

    def __init__(self, limit: int, scope: AbstractContextManager[object] | None = None) -> None:
        self._limit = limit
        self._scope = nullcontext() if scope is None else scope

    def __enter__(self) -> None:
        self._scope.__enter__()
        _LIMITS.add(self._limit)

    def __exit__(self, *error: Any) -> None:
        _LIMITS.remove(self._limit)
        self._scope.__exit__(*error)


def limited(
    scope: AbstractContextManager[object], limit: int | None
) -> AbstractContextManager[object]:
    """Return a context that is both `scope` and the limit; `scope` itself without a limit."""
    return scope if limit is None else AtMost(limit, scope)


def require() -> None:
    """Refuse a limit where NumPy's BLAS takes none."""
    if not _LIMITS.can_be_set():
        raise InvalidInput(
            "The threads of NumPy's BLAS cannot be limited here, because it has no number of "
            "threads that a program can set: leave out threads=."
        )
