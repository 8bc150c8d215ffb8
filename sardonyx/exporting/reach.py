"""For which sizes a program holds: found by looking, up to the largest size that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from sardonyx.errors import LimitExceeded, UnsupportedModel
from sardonyx.exporting.meaning import Meaning
from sardonyx.exporting.size_formulas import Sizes
from sardonyx.exporting.thresholds import candidates
from sardonyx.exporting.tracing import Traces

# The least and the largest size of each name.
Ranges: TypeAlias = Mapping[str, tuple[int, int]]


@dataclass(eq=False)
class Reach:
    """How far the graph means what it meant at the points where it was traced.

    It is looked at for the largest sizes, and for all near to numbers that occur in the graph, of
    all names at once. Where it means something else the ranges end before that.
    """

    traces: Traces
    meaning: Meaning
    thresholds: Sequence[int]
    _seen: dict[tuple[int, ...], bool | None] = field(default_factory=dict)

    def ranges(self, largest: Sizes) -> Ranges:
        """The ranges, of which none ends beyond the largest size that is asked for."""
        names = self.traces.signature.symbols
        found: Ranges = {name: self._alone(name, largest[name]) for name in names}
        while (bad := next(self._contradictions(found), None)) is not None:
            found = self._narrowed(found, bad)
        return found

    def corners(self, ranges: Ranges) -> list[Sizes]:
        """Sizes far from the points, that can be traced: what every number must hold for, too."""
        # At its very end a size may let a step go that does nothing there.
        tops = {name: max(most - 1, least) for name, (least, most) in ranges.items()}
        each = [{**self._small, name: most} for name, most in tops.items()]
        far = [tops, self._middles(ranges)] + (each if len(each) > 1 else [])
        return [sizes for sizes in far if self._holds(sizes) and sizes not in self.traces.at]

    def _middles(self, ranges: Ranges) -> Sizes:
        """Between the sizes where the graph was traced and the largest ones, by orders."""
        tops = [(name, max(most, 1)) for name, (_, most) in ranges.items()]
        middles = {n: int((self._near[n] * most) ** 0.5) + i for i, (n, most) in enumerate(tops)}
        return {name: min(middles[name], most) for name, most in tops}

    @property
    def _near(self) -> Sizes:
        """The largest sizes that are traced; those of the second point are the smallest."""
        return self.traces.at[0]

    @property
    def _small(self) -> Sizes:
        return self.traces.at[1]

    def _alone(self, name: str, largest: int) -> tuple[int, int]:
        """The range of one size, the others being small."""
        holds = self._one(name)
        least = next((n for n in range(1, self._small[name]) if holds(n)), self._small[name])
        if largest <= self._near[name]:
            return least, max(largest, least)
        top = largest
        while top > self._near[name] and holds(top) is None:
            top //= 2  # Its values are too large to be made.
        top = max(top, self._near[name])
        return least, _last(holds, self._near[name], top)

    def _contradictions(self, ranges: Ranges) -> Iterator[Sizes]:
        """Points within the ranges at which the graph means something else."""
        found = {
            name: _shuffled([s for s in candidates(self.thresholds, most) if s >= least], seed)
            for seed, (name, (least, most)) in enumerate(ranges.items())
        }
        if self._holds(middles := self._middles(ranges)) is False:
            yield middles
        for i in range(max(map(len, found.values()))):
            joint = {name: each[i % len(each)] for name, each in found.items()}
            alone = [{**self._small, n: each[i % len(each)]} for n, each in found.items()]
            points = [joint] if self._holds(joint) is not None else alone
            yield from (sizes for sizes in points if self._holds(sizes) is False)

    def _narrowed(self, ranges: Ranges, bad: Sizes) -> Ranges:
        """The ranges without a point at which the graph means something else."""
        narrowed = dict(ranges)
        for name, (least, most) in ranges.items():
            holds, near = self._one(name), self._near[name]
            if holds(bad[name]) is False:
                edge = _last(holds, near, bad[name])
                narrowed[name] = (least, edge) if bad[name] > near else (edge, most)
        if narrowed != ranges:
            return narrowed
        # It is several of the sizes together: all come nearer to where they were traced.
        for name, (least, most) in ranges.items():
            narrowed[name] = least, max(most // 2, min(self._near[name], most))
        if narrowed == ranges:
            raise UnsupportedModel(
                "The graph does something else for some of the sizes up to "
                f"{max(self._near.values())}: give numbers in place of names in the signature."
            )
        return narrowed

    def _one(self, name: str) -> Callable[[int], bool | None]:
        return lambda size: self._holds({**self._small, name: size})

    def _holds(self, sizes: Sizes) -> bool | None:
        """Whether the meaning is the same there; None where its values are too large to be made."""
        key = tuple(sizes[name] for name in self.traces.signature.symbols)
        if key not in self._seen:
            try:
                self._seen[key] = self.meaning.holds(sizes)
            except LimitExceeded:
                self._seen[key] = None
        return self._seen[key]


def _shuffled(sizes: Sequence[int], seed: int) -> list[int]:
    """The largest one, and the others in an order of their own, so that many pairs are met."""
    first, *others = sizes
    return [first, *np.random.default_rng(seed).permutation(others).astype(int).tolist()]


def _last(holds: Callable[[int], bool | None], good: int, bad: int) -> int:
    """The last size that holds, on the way from one that does to one that may not."""
    if holds(bad):
        return bad
    while abs(bad - good) > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return good
