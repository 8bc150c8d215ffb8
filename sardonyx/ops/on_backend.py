"""Ops that have functions of their own for some array libraries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False, slots=True)
class OnBackend:
    """The function of an op, with other functions for some backends."""

    function: Callable[..., Any]
    native: Mapping[str, Callable[..., Any]]

    def __call__(self, xp: Any, *arguments: Any, **attributes: Any) -> Any:
        return self.native.get(xp.name, self.function)(xp, *arguments, **attributes)
