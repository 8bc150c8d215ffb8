"""Choices between two functions of arrays, as one call that runs the chosen one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sardonyx.backends.written_out.noted_array import NotedArray, noted_call
from sardonyx.backends.written_out.notes import NotedCall, Notes, Place, Unnoted
from sardonyx.backends.written_out.source import places_in, values_of, without_dead

# Microseconds to look at the condition, and to call the function.
PRICE_OF_CHOICE = 0.6

Arrays = Callable[[], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class _Branch:
    """One of the two, as a function of the places that it reads."""

    run: Callable[..., list[Any]]
    reads: list[Place]
    results: tuple[np.ndarray[Any, Any], ...]
    calls: Sequence[NotedCall]

    @property
    def price(self) -> float:
        return sum(call.price for call in self.calls)

    def is_like(self, other: _Branch) -> bool:
        kinds = [[(r.shape, r.dtype) for r in branch.results] for branch in (self, other)]
        return kinds[0] == kinds[1]


def noted_choice(
    notes: Notes, predicate: NotedArray, when_true: Arrays, when_false: Arrays
) -> tuple[Any, ...]:
    """Note the call of one of two functions, which return arrays; both run now."""
    one, other = _noted(notes, when_true), _noted(notes, when_false)
    if not one.is_like(other):
        raise Unnoted
    arguments = predicate, one.run, one.reads, other.run, other.reads
    chosen: tuple[Any, ...] = noted_call(
        notes,
        run_chosen,
        arguments,
        price=PRICE_OF_CHOICE + max(one.price, other.price),
        is_step=any(call.is_step for call in (*one.calls, *other.calls)),
        result=one.results,
    )
    return chosen


def _noted(notes: Notes, function: Arrays) -> _Branch:
    start = len(notes.calls)
    results: list[NotedArray] = []
    for result in function():
        # What the function does not make anew is not its own to hand out.
        made = {call.result for call in notes.calls[start:]} - {each.place for each in results}
        is_own = isinstance(result, NotedArray) and result.place in made
        results.append(result if is_own else noted_call(notes, np.array, (result,)))
    places = [result.place for result in results]
    calls = without_dead(notes.calls[start:], places)
    notes.drop_after(start)
    made = {call.result for call in calls}
    reads = list(dict.fromkeys(p for call in calls for p in places_in(call) if p not in made))
    values = tuple(np.asarray(result.value) for result in results)
    return _Branch(values_of(calls, reads, places), reads, values, calls)


def run_chosen(
    predicate: Any,
    when_true: Callable[..., Sequence[Any]],
    read_then: Sequence[Any],
    when_false: Callable[..., Sequence[Any]],
    read_else: Sequence[Any],
) -> Sequence[Any]:
    """Call one of the two with what it reads."""
    return when_true(*read_then) if predicate else when_false(*read_else)
