"""Sizes at which a graph may change what it does: those near to the numbers that occur in it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from sardonyx.graph.checking.audit import all_nodes
from sardonyx.graph.ir import Graph, Source

# What has more elements holds no limits of sizes.
MOST_ELEMENTS = 16
# Of so many numbers the sums, differences, products and quotients are thresholds too.
MOST_COMBINED = 4
MOST_THRESHOLDS = 24
# So many sizes are looked at besides, of all orders; and all of them where they are few.
MOST_DRAWN = 8
FEW = 32


def candidates(numbers: Iterable[int], largest: int) -> list[int]:
    """Sizes up to the largest at which a change would show, the most telling ones first."""
    if largest <= FEW:
        return list(range(largest, 0, -1))
    near = (size for number in numbers for size in (number, number + 1))
    drawn = np.random.default_rng(largest).uniform(0, math.log(largest), MOST_DRAWN)
    found = dict.fromkeys((largest, largest - 1, *near, *map(round, np.exp(drawn).tolist())))
    return [size for size in found if 1 <= size <= largest]


def thresholds(source: Source, given: Sequence[Any]) -> list[int]:
    """The numbers in a graph, and among the values that its inputs are fixed to; then sums of two.

    A size is compared with such a number, or with what is computed of a few of them.
    """
    values = [abs(v) for v in _numbers(source, given) if math.isfinite(v)]
    own = dict.fromkeys(value for value in values if value > 1 or 0 < value < 1)
    combined = [
        made
        for a, b in combinations(list(own)[:MOST_COMBINED], 2)
        for made in (a * b, a + b, abs(a - b), a / b, b / a)
    ]
    whole = dict.fromkeys(round(value) for value in (*own, *combined) if value >= 2)
    return list(whole)[:MOST_THRESHOLDS]


def _numbers(source: Source, given: Sequence[Any]) -> Iterator[float]:
    nodes = [node for node, _ in all_nodes(source)]
    graphs = [source.graph, *(graph for node in nodes for graph in node.subgraphs)]
    for value in (*given, *(a for node in nodes for a in node.attributes.values())):
        yield from _of(value)
    for graph in graphs:
        for array in graph.initializers.values():
            yield from _of(array)


def _of(value: Any) -> Iterator[float]:
    if isinstance(value, (int, float)):
        yield float(value)
    elif isinstance(value, np.ndarray):
        if value.size <= MOST_ELEMENTS and value.dtype.kind in "iuf":
            yield from map(float, value.ravel().tolist())
    elif isinstance(value, tuple) and len(value) <= MOST_ELEMENTS:
        for one in value:
            if not isinstance(one, Graph):
                yield from _of(one)
