"""Tables made of an operator's attributes: once for a model, not at each call."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])


class _Same:
    """Equal to what holds the very same object, however large that is."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def once(build: F) -> F:
    """`build`, called once for the same objects; nobody may change them, nor what it makes."""

    @lru_cache(maxsize=32)
    def remembered(*given: Any) -> Any:
        return build(*(one.value if isinstance(one, _Same) else one for one in given))

    @wraps(build)
    def built(*given: Any) -> Any:
        large = (tuple, np.ndarray)
        return remembered(*(_Same(one) if isinstance(one, large) else one for one in given))

    return built  # type: ignore[return-value]
