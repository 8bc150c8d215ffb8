"""Kernels that follow one another, as one call of a function that calls them."""

from __future__ import annotations

import math
import operator
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sardonyx.backends.executable import KernelCalls, Replay
from sardonyx.backends.written_out import adopted
from sardonyx.backends.written_out.adopted import Adoption
from sardonyx.backends.written_out.notes import NotedCall, Place, Variable
from sardonyx.backends.written_out.prices import PRICE_OF_KERNEL
from sardonyx.backends.written_out.source import places_in, places_of, values_of, variables_in

# Elements of what is computed earlier than before: it takes memory for longer.
MOST_ELEMENTS = 2**16


class Library(adopted.Library, Protocol):
    """The library of the kernels."""

    def in_one_call(self, calls: KernelCalls) -> Replay:
        """Return `Backend.in_one_call`."""


def with_joined_kernels(
    calls: Sequence[NotedCall],
    known: Collection[Place],
    results: Iterable[Any],
    library: Library,
    new_place: Callable[[], Place],
    plans: Variable | None = None,
) -> list[NotedCall]:
    """Return the calls, with one in place of kernels between which nothing else has to happen.

    One kernel alone is such a call, too: it need not look at its weights again. What is `known` is
    the same each time. Small arrays that no kernel of a group computes are computed ahead of it.
    What the library's kernels can do with arrays that a group computes becomes a part of it.
    Calls of a function of variables have one more: the plans for these.
    """
    adoption = Adoption.among(calls, known, library)
    groups = _Groups(known, _readers(calls, results), library, new_place, plans, adoption)
    found: list[NotedCall] = []
    group: list[NotedCall] = []
    made: set[Place] = set()
    for call in calls:
        needs_group = not made.isdisjoint(places_in(call))
        if groups.can_have(call) or (needs_group and groups.can_adopt(call)):
            group.append(call)
            made.add(call.result)
        elif needs_group or not _can_run_earlier(call):
            found += [*groups.as_one(group), call]
            group, made = [], set()
        else:
            found.append(call)
    return [*found, *groups.as_one(group)]


@dataclass(frozen=True, slots=True)
class _Groups:
    """Makes one call of several."""

    known: Collection[Place]
    # The calls that read a value, and None for whoever reads the results.
    readers: dict[Place, set[NotedCall | None]]
    kernels: Library
    new_place: Callable[[], Place]
    plans: Variable | None
    adoption: Adoption

    def can_have(self, call: NotedCall) -> bool:
        """Whether it is a kernel that reads nothing new but the elements of arrays."""
        others = [a for a in (*call.arguments, *call.options.values()) if not isinstance(a, Place)]
        return call.is_kernel and all(place in self.known for place in places_of(others))

    def can_adopt(self, call: NotedCall) -> bool:
        """Whether it looks at an array in another way, or kernels can do it as well."""
        return self.adoption.adopted(call) is not None

    def as_one(self, group: Sequence[NotedCall]) -> list[NotedCall]:
        """Return the call of all kernels, and those that tell its results apart."""
        if not group:
            return []
        made = {call.result for call in group}
        read = dict.fromkeys(place for call in group for place in places_in(call))
        outside = [place for place in read if place not in made]
        constants = [place for place in outside if place in self.known]
        arrays = [*constants, *(place for place in outside if place not in self.known)]
        variables = list(dict.fromkeys(each for call in group for each in variables_in(call)))
        passed: list[Place | Variable] = [*variables, *arrays]
        within = set(group)
        wanted = [call for call in group if not self.readers[call.result] <= within]
        calls = list(map(self.adoption.joined, group))
        function = values_of(calls, passed, [call.result for call in wanted])
        returned = [i for i, call in enumerate(wanted) if None in self.readers[call.result]]
        sizes = None if self.plans is None else len(variables)
        joined = self.kernels.in_one_call(KernelCalls(function, len(constants), returned, sizes))
        if self.plans is not None:
            passed = [self.plans, *passed]
        # Of the kernels only one call from Python is left.
        price = PRICE_OF_KERNEL + sum(call.price for call in group if not call.is_kernel)
        whole = NotedCall(joined, tuple(passed), {}, self.new_place(), None, price, is_step=True)
        parts = [
            NotedCall(operator.getitem, (whole.result, i), {}, call.result, None, 0.0, call.shape)
            for i, call in enumerate(wanted)
        ]
        return [whole, *parts]


def _can_run_earlier(call: NotedCall) -> bool:
    """Whether nobody sees that it runs before the calls ahead of it that it does not need."""
    is_small = call.shape is not None and math.prod(call.shape) <= MOST_ELEMENTS
    return is_small and call.changes is None and not call.demands and not call.is_step


def _readers(
    calls: Iterable[NotedCall], results: Iterable[Any]
) -> dict[Place, set[NotedCall | None]]:
    readers: dict[Place, set[NotedCall | None]] = defaultdict(set)
    for call in calls:
        for place in places_in(call):
            readers[place].add(call)
    for result in results:
        if isinstance(result, Place):
            readers[result].add(None)
    return readers
