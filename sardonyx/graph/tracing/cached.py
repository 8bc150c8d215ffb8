"""Properties that are computed at their first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Cached(Generic[T]):
    """`functools.cached_property` without its lock, which takes a microsecond before Python 3.12.

    Threads that ask for it first at the same time may each compute it.
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        value = instance.__dict__[self._name] = self._function(instance)
        return value
