"""Methods that do not keep their object alive."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar
from weakref import WeakMethod

P = ParamSpec("P")
R = TypeVar("R")


class Gone(Exception):  # noqa: N818  (a finding, not a fault)
    """The object of a method is no longer there."""


def weakly(method: Callable[P, R]) -> Callable[P, R]:
    """Return a method without its object, which would otherwise hold itself through it.

    >>> class Counter:
    ...     def next(self): return 1
    >>> counter = Counter()
    >>> function = weakly(counter.next)
    >>> function()
    1
    """
    reference = WeakMethod(method)

    def call(*arguments: P.args, **options: P.kwargs) -> R:
        living = reference()
        if living is None:
            raise Gone
        return living(*arguments, **options)

    return call
