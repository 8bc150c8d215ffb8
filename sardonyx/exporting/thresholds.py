"""Sizes at which a graph may behave differently: those near numbers that occur in it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from sardonyx.graph.checking.audit import all_nodes
from sardonyx.graph.ir import Graph, Source

# Larger arrays are data, not limits of sizes.
MAX_ELEMENTS = 16
# Sums, differences, products and quotients of this many numbers are thresholds too.
MAX_COMBINED = 4
MAX_THRESHOLDS = 24
# This many sizes of all magnitudes are drawn besides.
DRAWN = 8
# Up to this limit every size is a candidate.
EXHAUSTIVE = 32


def candidates(numbers: Iterable[int], largest: int) -> list[int]:
    """Return sizes up to the largest at which a difference would show, the most likely ones first.

    >>> candidates([100], 1000)[:4]
    [1000, 999, 100, 101]
    """
    if largest <= EXHAUSTIVE:
        return list(range(largest, 0, -1))
    near = (size for number in numbers for size in (number, number + 1))
    drawn = np.random.default_rng(largest).uniform(0, math.log(largest), DRAWN)
    sizes = dict.fromkeys((largest, largest - 1, *near, *map(round, np.exp(drawn).tolist())))
    return [size for size in sizes if 1 <= size <= largest]


def thresholds(source: Source, fixed: Sequence[Any]) -> list[int]:
    """Return the numbers in a graph and in its fixed inputs, then combinations of two.

    A graph compares sizes with such numbers, or with results computed from a few of them.
    """
    values = [abs(v) for v in _numbers(source, fixed) if math.isfinite(v)]
    own = dict.fromkeys(value for value in values if value > 1 or 0 < value < 1)
    combined = [
        number
        for a, b in combinations(list(own)[:MAX_COMBINED], 2)
        for number in (a * b, a + b, abs(a - b), a / b, b / a)
    ]
    whole = dict.fromkeys(round(value) for value in (*own, *combined) if value >= 2)
    return list(whole)[:MAX_THRESHOLDS]


def _numbers(source: Source, fixed: Sequence[Any]) -> Iterator[float]:
    nodes = [node for node, _ in all_nodes(source)]
    graphs = [source.graph, *(graph for node in nodes for graph in node.subgraphs)]
    for value in (*fixed, *(a for node in nodes for a in node.attributes.values())):
        yield from _numbers_in(value)
    for graph in graphs:
        for array in graph.initializers.values():
            yield from _numbers_in(array)


def _numbers_in(value: Any) -> Iterator[float]:
    if isinstance(value, (int, float)):
        yield float(value)
    elif isinstance(value, np.ndarray):
        if value.size <= MAX_ELEMENTS and value.dtype.kind in "iuf":
            yield from map(float, value.ravel().tolist())
    elif isinstance(value, tuple) and len(value) <= MAX_ELEMENTS:
        for one in value:
            if not isinstance(one, Graph):
                yield from _numbers_in(one)
