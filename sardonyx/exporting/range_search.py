"""Search for the ranges of sizes in which a program is right, up to a largest size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from sardonyx.errors import LimitExceeded, UnsupportedModel
from sardonyx.exporting.size_expressions import Sizes
from sardonyx.exporting.thresholds import candidates
from sardonyx.exporting.tracing import Traces
from sardonyx.exporting.value_formulas import ValueFormulas

# The least and the largest size of each name.
Ranges: TypeAlias = Mapping[str, tuple[int, int]]


@dataclass(eq=False)
class RangeSearch:
    """Finds how far the formulas of the traces hold.

    Probes the largest sizes, and sizes near numbers that occur in the graph, for all names at once.
    Ranges end before a size at which a formula is wrong.
    """

    traces: Traces
    formulas: ValueFormulas
    thresholds: Sequence[int]
    _seen: dict[tuple[int, ...], bool | None] = field(default_factory=dict)

    def ranges(self, largest: Sizes) -> Ranges:
        """Return the range of each name, which ends at its largest size or before."""
        names = self.traces.signature.symbols
        ranges: Ranges = {name: self._alone(name, largest[name]) for name in names}
        while (bad := next(self._contradictions(ranges), None)) is not None:
            ranges = self._narrowed(ranges, bad)
        return ranges

    def corners(self, ranges: Ranges) -> list[Sizes]:
        """Return sizes far from the traced ones that can be traced too, to check formulas there."""
        # At the very end of a range a step may have no effect, and not be traced.
        tops = {name: max(most - 1, least) for name, (least, most) in ranges.items()}
        each = [{**self._small, name: most} for name, most in tops.items()]
        far = [tops, self._middles(ranges)] + (each if len(each) > 1 else [])
        return [sizes for sizes in far if self._holds(sizes) and sizes not in self.traces.sizes]

    def _middles(self, ranges: Ranges) -> Sizes:
        """Return the geometric means of the traced sizes and the largest ones."""
        tops = [(name, max(most, 1)) for name, (_, most) in ranges.items()]
        middles = {n: int((self._near[n] * most) ** 0.5) + i for i, (n, most) in enumerate(tops)}
        return {name: min(middles[name], most) for name, most in tops}

    def is_wrong_beyond(self, name: str, most: int) -> bool:
        """Return whether a formula is wrong for a larger size, and not only too large to check."""
        return any(self._one(name)(size) is False for size in (most + 1, most * 3 // 2, most * 2))

    @property
    def _near(self) -> Sizes:
        """The largest sizes that are traced."""
        return self.traces.sizes[0]

    @property
    def _small(self) -> Sizes:
        """The smallest sizes that are traced."""
        return self.traces.sizes[1]

    def _alone(self, name: str, largest: int) -> tuple[int, int]:
        """Return the range of one name, while the others have their smallest size."""
        holds = self._one(name)
        least = next((n for n in range(1, self._small[name]) if holds(n)), self._small[name])
        if largest <= self._near[name]:
            return least, max(largest, least)
        top = largest
        while top > self._near[name] and holds(top) is None:
            top //= 2  # Its values are too large to compute.
        top = max(top, self._near[name])
        return least, last_good(holds, self._near[name], top)

    def _contradictions(self, ranges: Ranges) -> Iterator[Sizes]:
        """Yield sizes within the ranges for which a formula is wrong."""
        probes = {
            name: _shuffled([s for s in candidates(self.thresholds, most) if s >= least], seed)
            for seed, (name, (least, most)) in enumerate(ranges.items())
        }
        if self._holds(middles := self._middles(ranges)) is False:
            yield middles
        for i in range(max(map(len, probes.values()))):
            joint = {name: each[i % len(each)] for name, each in probes.items()}
            alone = [{**self._small, n: each[i % len(each)]} for n, each in probes.items()]
            probed = [joint] if self._holds(joint) is not None else alone
            yield from (sizes for sizes in probed if self._holds(sizes) is False)

    def _narrowed(self, ranges: Ranges, bad: Sizes) -> Ranges:
        """Return the ranges without sizes for which a formula is wrong."""
        narrowed = dict(ranges)
        for name, (least, most) in ranges.items():
            holds, near = self._one(name), self._near[name]
            if holds(bad[name]) is False:
                edge = last_good(holds, near, bad[name])
                narrowed[name] = (least, edge) if bad[name] > near else (edge, most)
        if narrowed != ranges:
            return narrowed
        # Only a combination of sizes is wrong: all ranges shrink towards the traced sizes.
        for name, (least, most) in ranges.items():
            narrowed[name] = least, max(most // 2, min(self._near[name], most))
        if narrowed == ranges:
            raise UnsupportedModel(
                "The graph computes something else for some of the sizes up to "
                f"{max(self._near.values())}. Give numbers in place of names in the signature."
            )
        return narrowed

    def _one(self, name: str) -> Callable[[int], bool | None]:
        return lambda size: self._holds({**self._small, name: size})

    def _holds(self, sizes: Sizes) -> bool | None:
        """Return whether the formulas hold; None if values are too large to compute."""
        key = tuple(sizes[name] for name in self.traces.signature.symbols)
        if key not in self._seen:
            try:
                self._seen[key] = self.formulas.holds(sizes)
            except LimitExceeded:
                self._seen[key] = None
        return self._seen[key]


def _shuffled(sizes: Sequence[int], seed: int) -> list[int]:
    """Return the first size, then the others shuffled, so that the sizes of two names mix."""
    first, *others = sizes
    return [first, *np.random.default_rng(seed).permutation(others).astype(int).tolist()]


def last_good(holds: Callable[[int], bool | None], good: int, bad: int) -> int:
    """Return the last size that holds between a good one and one that may be bad."""
    if holds(bad):
        return bad
    while abs(bad - good) > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return good
