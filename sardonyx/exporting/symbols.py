"""Symbols for sizes, and what must hold of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from jax import export
from jax.errors import InconclusiveDimensionOperation

from sardonyx.exporting.size_formulas import Sizes, holds

R = TypeVar("R")

# A program that compares sizes more often than this has no simple bounds.
MOST_BOUNDS = 64

_COMPARISON = re.compile(r"comparison '(?P<left>[^']+)' (?P<sign><=|>=|<|>) '(?P<right>[^']+)'")


def symbols(names: Sequence[str], bounds: Sequence[str]) -> dict[str, Any]:
    """JAX's symbolic dimensions with these names, for which the bounds hold."""
    if not names:
        return {}
    made = export.symbolic_shape(", ".join(names), constraints=tuple(bounds))
    return dict(zip(names, made, strict=True))


def with_bounds(
    make: Callable[[dict[str, Any]], R],
    names: Sequence[str],
    bounds: list[str],
    at: Sequence[Sizes],
) -> R:
    """What `make` makes of symbols; where it must compare sizes, that becomes one more bound.

    A bound that is found holds at all sizes that were looked at, and is checked at each call.
    """
    while True:
        try:
            return make(symbols(names, bounds))
        except Exception as error:
            found = _bound_behind(error)
            known = found in bounds or len(bounds) >= MOST_BOUNDS
            if found is None or known or not all(holds(found, sizes) for sizes in at):
                raise
            bounds.append(found)


def _bound_behind(error: BaseException | None) -> str | None:
    """The comparison that JAX could not decide, if that is what went wrong."""
    while error is not None:
        if isinstance(error, InconclusiveDimensionOperation):
            match = _COMPARISON.search(str(error))
            return match and f"{match['left']} {match['sign']} {match['right']}"
        error = error.__cause__ or error.__context__
    return None
