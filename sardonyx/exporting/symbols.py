"""JAX's symbols for sizes, and the bounds that they must satisfy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from jax import export
from jax.errors import InconclusiveDimensionOperation

from sardonyx.exporting.size_expressions import Sizes, holds, names_in

R = TypeVar("R")

# A program that needs more bounds than this is refused.
MAX_BOUNDS = 64

_COMPARISON = re.compile(r"comparison '(?P<left>[^']+)' (?P<sign><=|>=|<|>) '(?P<right>[^']+)'")


def symbols(names: Sequence[str], bounds: Sequence[str]) -> dict[str, Any]:
    """Return JAX's symbolic dimensions with these names and bounds."""
    if not names:
        return {}
    dimensions = export.symbolic_shape(", ".join(names), constraints=tuple(bounds))
    return dict(zip(names, dimensions, strict=True))


def is_symbolic(size: Any) -> bool:
    """Return whether a size is an expression of symbols, not a number."""
    return export.is_symbolic_dim(size)


def with_bounds(
    build: Callable[[dict[str, Any]], R],
    names: Sequence[str],
    bounds: list[str],
    probed: Sequence[Sizes],
) -> R:
    """Return `build(symbols)`, with as many more bounds as its comparisons of sizes need.

    Adds these to `bounds`. They hold for all probed sizes, and each call must check them.
    """
    while True:
        try:
            return build(symbols(names, bounds))
        except Exception as error:
            bound = _bound_behind(error)
            is_useless = bound in bounds or len(bounds) >= MAX_BOUNDS
            if bound is None or is_useless or not all(holds(bound, sizes) for sizes in probed):
                raise
            bounds.append(bound)


def _bound_behind(error: BaseException | None) -> str | None:
    """Return the comparison that JAX could not decide, if this is the cause of the error."""
    while error is not None:
        if isinstance(error, InconclusiveDimensionOperation):
            match = _COMPARISON.search(str(error))
            return match and f"{match['left']} {match['sign']} {match['right']}"
        error = error.__cause__ or error.__context__
    return None


def symbols_of(sizes: Iterable[Any]) -> dict[str, Any]:
    """Return the symbols in a caller's sizes by name."""
    symbolic = [size for size in sizes if is_symbolic(size)]
    names = dict.fromkeys(name for size in symbolic for name in names_in(str(size)))
    if not names:
        return {}
    found = export.symbolic_shape(", ".join(names), scope=symbolic[0].scope)
    return dict(zip(names, found, strict=True))


def is_always(bound: str, values: Mapping[str, Any]) -> bool:
    """Return whether a comparison is true whatever the symbols are, as far as JAX can tell."""
    try:
        return bool(holds(bound, values))
    except (InconclusiveDimensionOperation, TypeError, ValueError):
        return False
