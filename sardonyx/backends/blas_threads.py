"""The threads of NumPy's BLAS, whose number belongs to the process and not to a call.

While calls of models with a limit run, the smallest of their limits holds for the whole process.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from threading import Lock
from typing import Any

from sardonyx.errors import InvalidInput


class _Limits:
    """The limits of the calls that run now, and what the libraries had before them."""

    def __init__(self) -> None:
        # Imported here, as it looks at all libraries of the process.
        from threadpoolctl import ThreadpoolController  # noqa: PLC0415

        self._libraries: list[Any] = ThreadpoolController().select(user_api="blas").lib_controllers
        self._lock = Lock()
        self._limits: list[int] = []
        self._before: list[int] = []
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    @property
    def can_be_set(self) -> bool:
        return bool(self._libraries)

    def add(self, limit: int) -> None:
        with self._lock:
            if not self._limits:
                self._before = [library.get_num_threads() for library in self._libraries]
            self._limits.append(limit)
            self._set()

    def remove(self, limit: int) -> None:
        with self._lock:
            self._limits.remove(limit)
            self._set()

    def _set(self) -> None:
        for library, before in zip(self._libraries, self._before, strict=True):
            wanted = min([before, *self._limits])
            if library.get_num_threads() != wanted:
                library.set_num_threads(wanted)

    def _forget(self) -> None:
        """Drop the limits of the parent's calls, which do not run in a forked process."""
        self._lock = Lock()
        if self._limits:
            self._limits.clear()
            self._set()


@cache
def _limits() -> _Limits:
    return _Limits()


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
        _limits().add(self._limit)

    def __exit__(self, *error: Any) -> None:
        _limits().remove(self._limit)
        self._scope.__exit__(*error)


def limited(
    scope: AbstractContextManager[object], limit: int | None
) -> AbstractContextManager[object]:
    """Return a context that is both `scope` and the limit; `scope` itself without a limit."""
    return scope if limit is None else AtMost(limit, scope)


def require() -> None:
    """Refuse a limit where NumPy's BLAS takes none."""
    if not _limits().can_be_set:
        raise InvalidInput(
            "The threads of NumPy's BLAS cannot be limited here, because it has no number of "
            "threads that a program can set: leave out threads=."
        )
