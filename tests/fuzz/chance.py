"""Draws from hypothesis' strategies with a random generator alone.

Hypothesis itself also draws constants of whatever modules are loaded, so that the graphs of a seed
would depend on the process. Here the same seed gives the same graphs everywhere.
"""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import strategies as st


def drawn_from(strategy: st.SearchStrategy[Any], random: Random) -> Any:
    """An element of one of the strategies that tests/property uses."""
    while hasattr(strategy, "wrapped_strategy"):
        strategy = strategy.wrapped_strategy
    kind = type(strategy).__name__
    if kind not in _KINDS:
        raise NotImplementedError(f"{kind} is not drawn by {__name__}: add it to its table.")
    return _KINDS[kind](strategy, random)


def _integer(strategy: Any, random: Random) -> int:
    return random.randint(strategy.start, strategy.end)


def _boolean(strategy: Any, random: Random) -> bool:
    return random.random() < 0.5


def _sample(strategy: Any, random: Random) -> Any:
    return random.choice(strategy.elements)


def _permutation(strategy: Any, random: Random) -> list[Any]:
    return random.sample(list(strategy.values), len(strategy.values))


def _either(strategy: Any, random: Random) -> Any:
    return drawn_from(random.choice(strategy.original_strategies), random)


def _list(strategy: Any, random: Random) -> list[Any]:
    most = min(strategy.max_size, strategy.min_size + 4)
    count = random.randint(strategy.min_size, int(most))
    return [drawn_from(strategy.element_strategy, random) for _ in range(count)]


def _unique(strategy: Any, random: Random) -> list[Any]:
    """No two elements with the same keys; fewer than were meant where none are left."""
    count = random.randint(strategy.min_size, int(min(strategy.max_size, strategy.min_size + 4)))
    found: dict[Any, Any] = {}
    for _ in range(20 * count):
        if len(found) == count:
            break
        element = drawn_from(strategy.element_strategy, random)
        found.setdefault(tuple(key(element) for key in strategy.keys), element)
    return list(found.values())


def _mapped(strategy: Any, random: Random) -> Any:
    return strategy.pack(drawn_from(strategy.mapped_strategy, random))


def _built(strategy: Any, random: Random) -> Any:
    return strategy.target()  # An empty list, of which none may have elements.


def _just(strategy: Any, random: Random) -> Any:
    return strategy.value


_KINDS = {
    "BuildsStrategy": _built,
    "JustStrategy": _just,
    "IntegersStrategy": _integer,
    "BooleansStrategy": _boolean,
    "SampledFromStrategy": _sample,
    "PermutationStrategy": _permutation,
    "OneOfStrategy": _either,
    "ListStrategy": _list,
    "UniqueListStrategy": _unique,
    "UniqueSampledListStrategy": _unique,
    "MappedStrategy": _mapped,
}
