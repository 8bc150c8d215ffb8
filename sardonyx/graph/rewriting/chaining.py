"""Products that only other products read: one step, where the backend computes all in one call.

The sums and their order stay. Threads are woken once, and no array between them is the program's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from sardonyx.backends.fused_epilogue import NOTHING
from sardonyx.backends.operations.products import Link
from sardonyx.graph.ir import Node
from sardonyx.graph.rewriting.rewriter import (
    Called,
    Passage,
    Replacement,
    attributes_of,
    calls,
    instead_of,
)
from sardonyx.graph.tracing.steps import Operand, Step
from sardonyx.ops.fused_products import packed_product, product_chain

# Each join copies the links, so that their number bounds the time to trace.
MOST_LINKS = 128

CHAINED: tuple[Called, ...] = (packed_product, product_chain)


class _Links(NamedTuple):
    """A step as a chain: its links, and its operands in the order of `ProductChain.run`."""

    links: Sequence[Link]
    arrays: Sequence[Operand]
    weights: Sequence[Operand]


def join_products(passage: Passage, step: Step) -> Replacement:
    """Join a product, or a chain of them, with one whose result it alone reads."""
    last = _links_of(passage, step)
    for array in () if last is None else last.arrays:
        producer = passage.producer(array, *CHAINED)
        first = None if producer is None else _links_of(passage, producer)
        if last is None or producer is None or first is None:
            continue
        if not passage.is_closed([producer], step):
            continue
        whole = _joined(first, array, last)
        if len(whole.links) > MOST_LINKS:
            continue
        chain = passage.backend.product_chain(whole.links, len(whole.arrays))
        if chain is not None:
            title = f"{len(whole.links)} chained products"
            operands = (*whole.arrays, *whole.weights)
            joined = instead_of(step, product_chain, operands, title=title, chain=chain)
            nodes = (*_nodes_of(producer), *_nodes_of(step))
            return [replace(joined, chained=nodes)]
    return None


def _nodes_of(step: Step) -> tuple[Node, ...]:
    return step.chained or (step.node,)


def _links_of(passage: Passage, step: Step) -> _Links | None:
    attributes = attributes_of(step)
    if calls(step, product_chain):
        chain = attributes["chain"]
        count = chain.arrays
        return _Links(chain.links, step.operands[:count], step.operands[count:])
    if attributes["epilogue"] != NOTHING:
        return None
    product = attributes["product"]
    x, *weights = step.operands
    # A bias is a vector, and what is added has the result's shape.
    has_addend = len(weights) > 1 and passage.spec(weights[-1]) == step.specs[0]
    addend = [weights.pop()] if has_addend else []
    return _Links([Link(product, 0, 1 if addend else None)], (x, *addend), weights)


def _joined(first: _Links, between: Operand, last: _Links) -> _Links:
    """Both chains, of which the last one reads the first one's result as the array `between`."""
    others = [array for array in last.arrays if array != between]
    arrays = list(dict.fromkeys([*first.arrays, *others]))
    result = len(arrays) + len(first.links) - 1
    places = {array: place for place, array in enumerate(arrays)} | {between: result}
    links = [
        *_renumbered(first, places, len(arrays)),
        *_renumbered(last, places, result + 1),
    ]
    return _Links(links, arrays, (*first.weights, *last.weights))


def _renumbered(part: _Links, places: dict[Operand, int], inner: int) -> list[Link]:
    """The links, with the numbers of their arrays in the whole, where theirs begin at `inner`."""
    numbers = [places[array] for array in part.arrays]
    numbers += range(inner, inner + len(part.links))
    return [
        Link(product, numbers[x], None if addend is None else numbers[addend])
        for product, x, addend in part.links
    ]
