"""The scope of a library that is imported later, perhaps in the middle of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import local
from typing import Any

# The outermost scope of each thread.
_own = local()


class DeferredScope(AbstractContextManager[None]):
    """A context that becomes that of a library as soon as somebody in it asks for the library.

    >>> from contextlib import nullcontext
    >>> with DeferredScope(), DeferredScope():
    ...     DeferredScope.of_thread().enter(lambda: nullcontext())
    >>> DeferredScope.of_thread()
    """

    def __init__(self) -> None:
        self._is_outermost = False
        self._entered: AbstractContextManager[object] | None = None

    @staticmethod
    def of_thread() -> DeferredScope | None:
        """Return the outermost scope that this thread is in."""
        return getattr(_own, "outermost", None)

    def enter(self, scope: Callable[[], AbstractContextManager[object]]) -> None:
        """Enter the library's scope, unless that has happened; it ends with this one."""
        if self._entered is None:
            entered = scope()
            entered.__enter__()
            self._entered = entered

    def __enter__(self) -> None:
        if self.of_thread() is None:
            self._is_outermost = True
            _own.outermost = self

    def __exit__(self, *error: Any) -> None:
        if self._is_outermost:
            _own.outermost = None
        if self._entered is not None:
            self._entered.__exit__(*error)
