"""Plans for new sizes by formulas, from the plans for a few other sizes.

To note a hundred kernels takes Python 2 ms, an eighth of a call of a small size. Plans for several
sizes differ in numbers alone, and these are sums of multiples of the sizes and their products, as
shapes, strides and bytes are.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from sardonyx.backends.integer_factors import nearest_factors
from sardonyx.backends.jax.onednn.plan_numbers import Numbers, put_together, taken_apart
from sardonyx.backends.jax.onednn.plans import Plan, Planned

# Formulas are looked for in so many of the last plans, and so often at most.
MOST_SAMPLES, MOST_SEARCHES = 24, 32
# Axes of fewer elements lie in several ways, so that plans for them differ in more.
LEAST_SIZE = 2
# The largest powers in a term: scores of all positions and all others have the square of a length.
MOST_OF_SIZE, MOST_OF_TERM = 2, 3
# Where sizes are so many times as large, a plan is made: kernels of long rows are other ones.
MOST_GROWTH = 2

Sizes: TypeAlias = tuple[int, ...]


class Sample(NamedTuple):
    """Sizes, and the numbers of the plan for them."""

    sizes: Sizes
    numbers: Numbers


class PlansBySizes:
    """Learns how the plans of one function with the same constants depend on sizes."""

    def __init__(self) -> None:
        # By which sizes are small; replaced as a whole, as other threads read it.
        self._learned: dict[tuple[bool, ...], _Learned] = {}

    def at(self, sizes: Sizes) -> Planned | None:
        """Return the plan for these sizes; None if it has to be made."""
        return self._of(_small(sizes), sizes)

    def for_one_call(self, sizes: Sizes) -> Planned | None:
        """Return a plan for sizes that are all 1, as if they were larger; None if there is none.

        It gives the same results as one that is made for them, which may have fewer kernels: arrays
        that else are copied lie as they should, and products of matrices are those of rows.
        """
        small = _small(sizes)
        return self._of((False,) * len(sizes), sizes) if small and all(small) else None

    def _of(self, small: tuple[bool, ...], sizes: Sizes) -> Planned | None:
        learned = self._learned.get(small)
        formulas = None if learned is None else learned.formulas
        if learned is None or formulas is None or not formulas.reach(sizes):
            return None
        numbers = formulas.numbers(sizes)
        return None if numbers is None else put_together(*learned.first, numbers)

    def note(self, sizes: Sizes, planned: Planned) -> None:
        """Learn from a plan that had to be made."""
        if planned.plan is None or 0 in sizes or all(_small(sizes)):
            return  # There is nothing to learn from sizes that are all 1, either.
        structure, numbers, lengths = taken_apart(planned, planned.plan)
        small, learned = _small(sizes), self._learned.get(_small(sizes))
        if learned is None or learned.structure != structure:
            if learned is not None and learned.formulas is not None:
                return  # One of the sizes for which something is special.
            learned = _Learned(structure, lengths, (planned, planned.plan))
        self._learned = {**self._learned, small: learned.with_sample(Sample(sizes, numbers))}


def _small(sizes: Sizes) -> tuple[bool, ...]:
    return tuple([size < LEAST_SIZE for size in sizes])


@dataclass(frozen=True, eq=False, slots=True)
class _Learned:
    """What was learned from plans with the same kernels, whose arrays have as many axes."""

    structure: Hashable
    lengths: Numbers
    first: tuple[Planned, Plan]
    # Those that no formulas hold for.
    samples: Sequence[Sample] = ()
    searches: int = 0
    formulas: Formulas | None = None

    def with_sample(self, sample: Sample) -> _Learned:
        """Return the same with one more plan."""
        if self.formulas is not None and (wider := self.formulas.widened(sample)) is not None:
            return replace(self, formulas=wider)
        if self.searches == MOST_SEARCHES:
            return self
        others = [each for each in self.samples if each.sizes != sample.sizes]
        samples = [*others, sample][-MOST_SAMPLES:]
        found, searches = Formulas.fitted(samples, self.lengths), self.searches + 1
        if found is None:
            return replace(self, samples=samples, searches=searches)
        return replace(self, samples=(), searches=searches, formulas=found)


@dataclass(frozen=True, eq=False, slots=True)
class Formulas:
    """The numbers of plans for all sizes up to some, from those for a few."""

    # The numbers of one plan; which of them differ, and by what each term is multiplied for them.
    sample: Numbers
    differing: Numbers
    factors: Numbers
    # Which terms are multiplied, the others, and what these are of the former.
    terms: Sequence[int]
    others: Sequence[int]
    of_terms: Numbers
    # The largest of each size that was planned for.
    largest: Sizes
    # Which numbers are at least 1.
    lengths: Numbers

    @classmethod
    def fitted(cls, samples: Sequence[Sample], lengths: Numbers) -> Formulas | None:
        """Return formulas that hold for all of these plans; None if there are none.

        There are more plans than decide what formulas can be: one more for each size that changes.
        """
        columns = list(zip(*(sample.sizes for sample in samples), strict=True))
        changing = sum(len(set(column)) > 1 for column in columns)
        if not changing or len(samples) <= 1 + 2 * changing:
            return None  # One size has three terms. The search for them takes a while.
        rows = np.array([_terms(sample.sizes) for sample in samples])
        terms, others = _independent(rows)
        if len(samples) < len(terms) + changing:
            return None
        numbers = np.stack([sample.numbers for sample in samples])
        differing = np.flatnonzero((numbers != numbers[0]).any(axis=0))
        factors = _exact_factors(rows[:, terms], numbers[:, differing])
        of_terms = _exact_factors(rows[:, terms], rows[:, others])
        if factors is None or of_terms is None:
            return None
        largest = tuple(map(max, columns))
        return cls(numbers[0], differing, factors, terms, others, of_terms, largest, lengths)

    def reach(self, sizes: Sizes) -> bool:
        """Whether the sizes are not much larger than those that were planned for."""
        pairs = zip(sizes, self.largest, strict=True)
        return all(size <= MOST_GROWTH * largest for size, largest in pairs)

    def numbers(self, sizes: Sizes) -> Numbers | None:
        """Return the numbers of a plan for these sizes; None if there are none."""
        terms = _terms(sizes)
        multiplied = [terms[i] for i in self.terms]
        if np.dot(multiplied, self.of_terms).tolist() != [terms[i] for i in self.others]:
            return None
        numbers = self.sample.copy()
        numbers[self.differing] = np.dot(multiplied, self.factors)
        return numbers if (numbers[self.lengths] > 0).all() else None

    def widened(self, sample: Sample) -> Formulas | None:
        """Return those that reach one more plan; None if that does not follow them."""
        numbers = self.numbers(sample.sizes)
        if numbers is None or not np.array_equal(numbers, sample.numbers):
            return None
        return replace(self, largest=tuple(map(max, sample.sizes, self.largest)))


def _terms(sizes: Sizes) -> list[int]:
    """Return the terms of a number.

    >>> _terms((10,)), _terms((2, 10))
    ([1, 10, 100], [1, 10, 100, 2, 20, 200, 4, 40])
    """
    return [math.prod(map(pow, sizes, powers)) for powers in _powers(len(sizes))]


@cache
def _powers(count: int) -> list[tuple[int, ...]]:
    every = product(range(MOST_OF_SIZE + 1), repeat=count)
    return [powers for powers in every if sum(powers) <= MOST_OF_TERM]


def _independent(rows: Numbers) -> tuple[list[int], list[int]]:
    """Return the columns that no earlier ones decide, and the others."""
    kept: list[int] = []
    scaled = rows / rows.max(axis=0)
    for i in range(rows.shape[1]):
        if np.linalg.matrix_rank(scaled[:, [*kept, i]]) > len(kept):
            kept.append(i)
    return kept, [i for i in range(rows.shape[1]) if i not in kept]


def _exact_factors(terms: Numbers, sums: Numbers) -> Any:
    factors = nearest_factors(terms, sums)
    is_exact = factors is not None and np.array_equal(terms @ factors, sums)
    return factors if is_exact else None
