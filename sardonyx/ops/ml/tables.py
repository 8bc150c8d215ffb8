"""Tables computed from an operator's attributes once per model, not at each call."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])


class _Same:
    """A key that compares an object by identity, so that large ones are not compared."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def once(build: F) -> F:
    """Cache `build` for the same argument objects; arguments and results must not be mutated."""

    @lru_cache(maxsize=32)
    def cached(*keys: Any) -> Any:
        return build(*(key.value if isinstance(key, _Same) else key for key in keys))

    @wraps(build)
    def cached_build(*arguments: Any) -> Any:
        large = (tuple, np.ndarray)
        return cached(*(_Same(x) if isinstance(x, large) else x for x in arguments))

    return cached_build  # type: ignore[return-value]  # same signature
