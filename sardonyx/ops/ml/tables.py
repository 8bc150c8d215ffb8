"""Tables computed from an operator's attributes once per model, not at each call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, wraps
from typing import Any, TypeVar

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])


class _Arguments:
    """Arguments as a key; lists and arrays compare by identity, since comparing them is slow."""

    def __init__(self, arguments: tuple[Any, ...]) -> None:
        # While the key lives, these live too, so that no other object gets one of their ids.
        self.arguments = arguments
        self.identity = tuple(_identities(arguments))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Arguments) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)


def _identities(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if hasattr(value, "_fields"):
            yield from _identities(value)
        else:
            yield id(value) if isinstance(value, (tuple, np.ndarray)) else value


def once(build: F) -> F:
    """Cache `build` for the same argument objects; arguments and results must not be mutated."""

    @lru_cache(maxsize=32)
    def cached(key: _Arguments) -> Any:
        return build(*key.arguments)

    @wraps(build)
    def cached_build(*arguments: Any) -> Any:
        return cached(_Arguments(arguments))

    return cached_build  # type: ignore[return-value]  # same signature
