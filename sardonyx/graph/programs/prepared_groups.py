"""The steps that prepare weights, in groups that need nothing of each other.

A program for another size often differs in one constant, such as the positions of a text. All
groups but that of the constant are equal then, and have run already.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

from sardonyx.backends.executable import Spec
from sardonyx.graph.tracing.steps import Segment, Step


@dataclass(eq=False, slots=True, weakref_slot=True)
class GroupArrays:
    """The results of one group, each list with the version of the weights that it is for."""

    placed: tuple[int, list[Any]] = (-1, [])
    # Computed on the host, and not placed yet.
    ahead: tuple[int, list[Any]] = (-1, [])
    lock: RLock = field(default_factory=RLock)


@dataclass(eq=False, slots=True, weakref_slot=True)
class PreparedArrays:
    """All that a program takes of weights and constants, with the version of the weights.

    The list is only replaced as a whole, so that a reader without the lock gets a single version.
    """

    groups: tuple[GroupArrays, ...]
    placed: tuple[int, list[Any]] = (-1, [])
    lock: RLock = field(default_factory=RLock)

    @property
    def arrays(self) -> list[Any]:
        """The arrays of the newest version."""
        return self.placed[1]


def groups_of(
    steps: Sequence[Step],
    results: Sequence[int],
    fixed: Container[int],
    specs: Mapping[int, Spec],
) -> tuple[Segment, ...]:
    """Return the steps that the results need, in groups; those of the largest results come first.

    The largest weights are then in memory twice, as read and as prepared, while few others are.
    """
    ordered = _largest_first(steps, results, specs)
    sources = {register: i for i, step in enumerate(ordered) for register in step.results}
    # Each step leads to an earlier one of its group, and the first one to itself.
    leads_to = list(range(len(ordered)))
    for i, step in enumerate(ordered):
        firsts = {i, *(_first(leads_to, sources[r]) for r in step.reads if r in sources)}
        for first in firsts:
            leads_to[first] = min(firsts)
    members: dict[int, list[Step]] = {}
    for i, step in enumerate(ordered):
        members.setdefault(_first(leads_to, i), []).append(step)
    wanted = set(results)
    return tuple(
        Segment(group, [r for step in group for r in step.results if r in wanted], fixed)
        for group in members.values()
    )


def _first(leads_to: list[int], i: int) -> int:
    while leads_to[i] != i:
        leads_to[i] = leads_to[leads_to[i]]
        i = leads_to[i]
    return i


def _largest_first(
    steps: Sequence[Step], results: Sequence[int], specs: Mapping[int, Spec]
) -> list[Step]:
    sources = {register: step for step in steps for register in step.results}
    ordered: dict[Step, None] = {}
    waiting = sorted(results, key=lambda register: size_of(specs[register]))
    while waiting:
        step = sources[waiting[-1]]
        before = [r for r in step.reads if r in sources and sources[r] not in ordered]
        if before:
            waiting += before
        else:
            ordered[step] = None
            waiting.pop()
    return list(ordered)


def size_of(spec: Spec) -> int:
    """Return the bytes of an array."""
    return math.prod(spec.shape) * spec.dtype.itemsize
