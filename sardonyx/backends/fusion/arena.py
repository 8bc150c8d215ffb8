"""Where the arrays between kernels lie in one block of memory, planned ahead of all calls."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

# As CUDA aligns allocations, for which kernels and libraries are made.
ALIGNMENT = 256


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Bytes that are needed from one action to another, in the order of a program's actions."""

    size: int
    first: int
    last: int

    def overlaps(self, other: Lifetime) -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True)
class Layout:
    """The offset of each array in the block, and the size of the block."""

    offsets: tuple[int, ...]
    size: int


def layout(lifetimes: Sequence[Lifetime]) -> Layout:
    """Return offsets at which no two arrays overlap that are needed at the same time.

    The best order is not known ahead, so several are tried: the largest arrays first, those that
    are needed longest, and those that are needed first.
    """
    orders: list[Callable[[Lifetime], Any]] = [
        lambda one: (-one.size, one.first),
        lambda one: (one.first - one.last, -one.size),
        lambda one: (one.first, -one.size),
    ]
    return min((_placed(lifetimes, order) for order in orders), key=lambda found: found.size)


def _placed(lifetimes: Sequence[Lifetime], order: Callable[[Lifetime], Any]) -> Layout:
    """Place one array after the other, each in the narrowest gap between those before."""
    offsets = [0] * len(lifetimes)
    placed: list[tuple[int, int, int]] = []
    for i in sorted(range(len(lifetimes)), key=lambda i: order(lifetimes[i])):
        size = _aligned(lifetimes[i].size)
        taken = [(start, end) for start, end, j in placed if lifetimes[i].overlaps(lifetimes[j])]
        offsets[i] = _narrowest_gap(taken, size)
        insort(placed, (offsets[i], offsets[i] + size, i))
    return Layout(tuple(offsets), max((end for _, end, _ in placed), default=0))


def _narrowest_gap(taken: Sequence[tuple[int, int]], size: int) -> int:
    """Return where the narrowest gap between sorted ranges begins; the last gap has no end."""
    best, narrowest, reached = -1, 0, 0
    for start, end in taken:
        gap = start - reached
        if gap >= size and (best < 0 or gap < narrowest):
            best, narrowest = reached, gap
        reached = max(reached, end)
    return reached if best < 0 else best


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
