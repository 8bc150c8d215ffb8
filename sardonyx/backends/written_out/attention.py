"""Attention, noted as products with a softmax between them, as one call of a kernel.

Each of these passes all scores through memory, and threads meet after each.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.written_out.notes import NotedCall, Place
from sardonyx.backends.written_out.prices import PRICE_OF_KERNEL
from sardonyx.backends.written_out.source import places_in


class Functions(NamedTuple):
    """The calls that attention is noted as, and that of the kernel."""

    product: Callable[..., Any]
    softmax: Callable[..., Any]
    attention: Callable[..., Any]


def with_attention(
    calls: Sequence[NotedCall],
    shapes: dict[Place, tuple[int, ...]],
    results: Collection[Place],
    xp: Backend,
) -> list[NotedCall]:
    """Return the calls, with one in place of those that attention consists of.

    `shapes` has those of arguments. Calls are kept where something else reads what lies between.
    """
    if not xp.has_kernels_of_rows():
        return list(calls)
    functions = Functions(xp.matmul, xp.softmax_of_rows, xp.attended)
    search = _Search.of(calls, shapes, results)
    joined: dict[NotedCall, NotedCall] = {}
    gone: set[NotedCall] = set()
    for call in calls:
        found = search.attention(call, functions) if call.function == functions.product else None
        if found is not None:
            joined[call], between = found
            gone |= between
    return [joined.get(call, call) for call in calls if call not in gone]


@dataclass(frozen=True, eq=False, slots=True)
class _Search:
    """Who made a value, and how often it is read."""

    made_by: dict[Place, NotedCall]
    reads: Counter[Place]
    shapes: dict[Place, tuple[int, ...]]
    # Where calls stand, and where they stand that change an array in place.
    order: dict[NotedCall, int]
    changing: Sequence[int] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        calls: Sequence[NotedCall],
        shapes: dict[Place, tuple[int, ...]],
        results: Collection[Place],
    ) -> _Search:
        reads = Counter(results)
        for call in calls:
            reads.update(places_in(call))
        made = {call.result: call.shape for call in calls if call.shape is not None}
        return cls(
            {call.result: call for call in calls},
            reads,
            {**shapes, **made},
            {call: i for i, call in enumerate(calls)},
            [i for i, call in enumerate(calls) if call.changes is not None],
        )

    def attention(
        self, last: NotedCall, functions: Functions
    ) -> tuple[NotedCall, set[NotedCall]] | None:
        """Return the call that does what this product and those before it do, and these."""
        weights, values = last.arguments
        softmax = self._only_for_this(weights, functions.softmax)
        if softmax is None:
            return None
        for scores, mask, added in self._sums(softmax.arguments[0]):
            between = [softmax, *added]
            factored = self._product(scores, functions, between)
            if factored is not None and not self._changes(between, last):
                queries, keys, factors = factored
                joined = replace(
                    last,
                    function=functions.attention,
                    arguments=(queries, keys, values, mask, factors),
                    options=dict(softmax.options),
                    price=PRICE_OF_KERNEL,
                    is_kernel=True,
                )
                return joined, set(between)
        return None

    def _sums(self, value: Any) -> Iterator[tuple[Any, Any, list[NotedCall]]]:
        """Yield what may be the scores, and what is added to them by which calls."""
        added = self._only_for_this(value, np.add)
        if added is None:
            yield value, None, []
        else:
            yield *added.arguments, [added]
            yield *reversed(added.arguments), [added]

    def _product(
        self, scores: Any, functions: Functions, between: list[NotedCall]
    ) -> tuple[Any, Any, tuple[Any, ...]] | None:
        """Return queries, keys and the factors, if these are scores; add the calls of all that."""
        scores, of_scores = self._apart(scores, np.multiply, between)
        scores, divisor = self._apart(scores, np.divide, between)
        product = self._only_for_this(scores, functions.product)
        if product is None:
            return None
        between.append(product)
        queries, of_queries = self._apart(product.arguments[0], np.multiply, between)
        keys, of_keys = self._apart(product.arguments[1], np.multiply, between)
        return queries, keys, (of_queries, of_keys, of_scores, divisor)

    def _apart(
        self, value: Any, function: np.ufunc, between: list[NotedCall]
    ) -> tuple[Any, Any | None]:
        """Return an array, and the number with which the function made the value of it, if any."""
        call = self._only_for_this(value, function)
        if call is None or call.options:
            return value, None
        array, number = call.arguments
        if function is np.multiply and self._is_number(array):
            array, number = number, array
        if not self._is_number(number):
            return value, None
        between.append(call)
        return array, number

    def _changes(self, between: Collection[NotedCall], last: NotedCall) -> bool:
        """Whether a call changes an array after the first of these has read it."""
        first = min(self.order[call] for call in between)
        return any(first < place < self.order[last] for place in self.changing)

    def _only_for_this(self, value: Any, *functions: Any) -> NotedCall | None:
        """Return the call of a function that made the value, if nothing else reads the value."""
        call = self.made_by.get(value) if isinstance(value, Place) else None
        if call is None or call.function not in functions or self.reads[value] != 1:
            return None
        return call if call.changes is None and "out" not in call.options else None

    def _is_number(self, value: Any) -> bool:
        shape = self.shapes.get(value) if isinstance(value, Place) else np.shape(value)
        return shape is not None and math.prod(shape) == 1 and len(shape) < 2
