"""Tables computed from an operator's attributes once per model, not at each call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache, wraps
from typing import Any, TypeVar

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])


class _Key(tuple[Any, ...]):
    """The identity of arguments: lists and arrays compare by `id`, since comparing them is slow."""

    # While the key lives, these live too, so that no other object gets one of their ids.
    arguments: tuple[Any, ...]


def _identity(values: Iterable[Any]) -> Iterable[Any]:
    return [
        value if type(value) in _BY_VALUE else id(value) if type(value) is tuple else _of(value)
        for value in values
    ]


def _of(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return id(value)
    if isinstance(value, float):  # 0.0 equals -0.0, and NaN does not equal itself.
        return value.hex()
    return tuple(_identity(value)) if hasattr(value, "_fields") else value


_BY_VALUE = {str, int, type(None)}


def once(build: F) -> F:
    """Cache `build` for the same argument objects; arguments and results must not be mutated."""

    @lru_cache(maxsize=32)
    def cached(key: _Key) -> Any:
        return build(*key.arguments)

    @wraps(build)
    def cached_build(*arguments: Any) -> Any:
        key = _Key(_identity(arguments))
        key.arguments = arguments
        return cached(key)

    return cached_build  # type: ignore[return-value]  # same signature
