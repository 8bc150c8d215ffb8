"""Formulas that turn the sizes of a call into the numbers that its program needs.

They are fitted to the numbers of a few calls, and must return these numbers bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from operator import mul
from typing import Any, TypeAlias

import numpy as np

from sardonyx.backends.integer_factors import nearest_factors
from sardonyx.graph.values.kinds import digest

Array: TypeAlias = np.ndarray[Any, Any]
# The sizes of a call's dimensions, always in the same order.
SizeVector: TypeAlias = tuple[int, ...]

# Beyond this number of dimensions too many calls would have to be traced.
MAX_DIMENSIONS = 3


def terms(sizes: SizeVector) -> list[int]:
    """Return the terms of every formula: 1, the sizes, and their products in pairs.

    >>> terms((3, 5))
    [1, 3, 5, 15]
    """
    if len(sizes) == 1:  # As of most; this runs at each new size.
        return [1, *sizes]
    return [1, *sizes, *(a * b for a, b in combinations(sizes, 2))]


def determine_formulas(sampled: Sequence[SizeVector]) -> bool:
    """Whether formulas that fit at these sizes are unique, and were checked at one more."""
    rows = np.asarray([terms(sizes) for sizes in set(sampled)], np.float64)
    return len(rows) > rows.shape[1] and bool(np.linalg.matrix_rank(rows) == rows.shape[1])


@dataclass(frozen=True, eq=False, slots=True)
class Formula:
    """An array whose elements are linear in the terms of the sizes, or the inverse of that."""

    # The array at one size.
    sample: Array
    # A row per term, a column per element; None for an array that is equal at all sizes.
    factors: Array | None
    convert: Callable[[Sequence[int], np.dtype[Any]], Array]
    # The same factors by elements, if they are few.
    few: Sequence[Sequence[int]] | None = None

    @property
    def is_inverse(self) -> bool:
        """Whether the elements are inverses of what is linear."""
        return self.convert is _inverse

    def at(self, of_sizes: Sequence[int]) -> Array:
        """Return the array, for the terms of the sizes."""
        if self.factors is None:
            return self.sample
        array = self.convert(self.numbers(of_sizes), self.sample.dtype)
        return array if self.sample.ndim == 1 else array.reshape(self.sample.shape)

    def numbers(self, of_sizes: Sequence[int]) -> list[int]:
        """Return the elements of an array of integers, for the terms of the sizes."""
        if self.factors is None:
            return list(self.sample.ravel().tolist())
        if self.few is None:
            return list(np.dot(of_sizes, self.factors).tolist())
        if len(of_sizes) == 2:
            size = of_sizes[1]
            return [constant + factor * size for constant, factor in self.few]
        return [sum(map(mul, row, of_sizes)) for row in self.few]

    @classmethod
    def fitted(cls, sampled: Sequence[SizeVector], values: Sequence[Array]) -> Formula | None:
        """Return the formula for these values at these sizes; None if there is none."""
        first = values[0]
        if any((v.shape, v.dtype) != (first.shape, first.dtype) for v in values):
            return None
        if len({digest(value) for value in values}) == 1:
            return cls(first, None, _cast)
        if first.dtype.kind not in "iuf":
            return None
        rows = np.asarray([terms(sizes) for sizes in sampled], np.int64)
        columns = np.stack([value.ravel() for value in values])
        for convert, inverse in _CONVERSIONS[: 1 + (first.dtype.kind == "f")]:
            factors = nearest_factors(rows, inverse(columns))
            if factors is None:
                continue
            few = factors.T.tolist() if first.size <= FEW_NUMBERS else None
            formula = cls(first, factors, convert, few)
            pairs = zip(rows.tolist(), values, strict=True)
            if all(formula.at(row).tobytes() == value.tobytes() for row, value in pairs):
                return formula
        return None


# To calculate so many numbers takes Python less time than NumPy, at each new size of a bucket.
FEW_NUMBERS = 32


def _cast(numbers: Sequence[int], dtype: np.dtype[Any]) -> Array:
    try:
        return np.array(numbers, dtype)
    except OverflowError:  # Where a graph casts larger numbers, they wrap around.
        return np.array(numbers, np.int64).astype(dtype)


def _inverse(numbers: Sequence[int], dtype: np.dtype[Any]) -> Array:
    with np.errstate(divide="ignore"):
        return (1 / np.array(numbers, np.int64)).astype(dtype)


def _as_float(columns: Array) -> Array:
    return columns.astype(np.float64)


def _inverted(columns: Array) -> Array:
    with np.errstate(divide="ignore"):
        return 1 / columns.astype(np.float64)


_CONVERSIONS = ((_cast, _as_float), (_inverse, _inverted))
