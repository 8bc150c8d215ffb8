"""Formulas for numbers that follow from the sizes of a call, derived from a few examples."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from sardonyx.exporting.size_expressions import Sizes

# Maximum divisor of a formula that divides a size and rounds down.
MAX_DIVISOR = 8


class NoFormula(Exception):  # noqa: N818  (a finding, not a fault)
    """No formula of a supported form returns a number at all probed sizes."""


def probe_sizes(leasts: Sizes, most: int) -> list[dict[str, int]]:
    """Return sizes to trace, odd and even: more of them than a formula has coefficients.

    No size is less than the least one of its name. The first entry has the largest sizes, the
    second the smallest.

    >>> probe_sizes({"n": 2}, 255)[:2]
    [{'n': 255}, {'n': 2}]
    >>> probe_sizes({"n": 3, "m": 2}, 255)[1]
    {'n': 3, 'm': 2}
    """
    if not leasts:
        return [{}]
    count = len(leasts)
    tops = range(most, most - count, -1)
    between = np.arange(min(leasts.values()), most + 1)
    rng = np.random.default_rng(count)
    drawn = [rng.permutation(between)[:count].tolist() for _ in range(count + 5)]
    inner = [
        {name: max(least, size) for (name, least), size in zip(leasts.items(), sizes, strict=True)}
        for sizes in drawn
    ]
    return [dict(zip(leasts, tops, strict=True)), _smallest(leasts), *inner]


def _smallest(leasts: Sizes) -> dict[str, int]:
    """Return sizes that are as small as possible and all different."""
    sizes: dict[str, int] = {}
    for name in sorted(leasts, key=leasts.__getitem__):
        sizes[name] = max([leasts[name], *(size + 1 for size in sizes.values())])
    return {name: sizes[name] for name in leasts}


class Formulas:
    """Turns numbers, one for each choice of sizes, into expressions of the symbols.

    Expressions have the type of the symbols, which Python's operators combine.
    """

    def __init__(self, at: Sequence[Sizes], symbols: Mapping[str, Any]) -> None:
        self._at = at
        self._symbols = symbols
        self._expressions: dict[tuple[int, ...], Any] = {}
        self._refused: set[tuple[int, ...]] = set()
        for name, symbol in symbols.items():
            self.learn(symbol, [sizes[name] for sizes in at])

    def learn(self, expression: Any, values: Sequence[int]) -> None:
        """Remember the values of an expression at the probed sizes."""
        self._expressions.setdefault(tuple(values), expression)

    def of(self, values: Sequence[int]) -> Any:
        """Return the expression with these values; raise `NoFormula` if there is none."""
        key = tuple(values)
        if len(set(key)) == 1:
            return values[0]
        if key not in self._expressions and key not in self._refused:
            searches = (self._simple, self._combined, self._product, self._rounded)
            results = (search(key) for search in searches)
            expression = next((each for each in results if each is not None), None)
            if expression is None:
                self._refused.add(key)
            else:
                self._expressions[key] = expression
        if key in self._refused:
            raise NoFormula(f"it is {', '.join(map(str, key))} for different sizes")
        return self._expressions[key]

    def _simple(self, values: tuple[int, ...]) -> Any:
        """Find a linear expression, or a multiple, a fraction or a shift of a known one."""
        if values in self._expressions:
            return self._expressions[values]
        formula = self._linear(values)
        if formula is not None:
            return formula
        for numbers, expression in self._expressions.items():
            if scale := _scaling(values, numbers):
                return scale(expression)
        return None

    def _combined(self, values: tuple[int, ...]) -> Any:
        """Find a multiple, a fraction or a shift of a product or a sum of two known expressions."""
        pairs = combinations_with_replacement(self._expressions.items(), 2)
        for (numbers, first), (others, second) in pairs:
            for combine in (operator.mul, operator.add):
                if scale := _scaling(values, tuple(map(combine, numbers, others))):
                    return scale(combine(first, second))
        return None

    def _product(self, values: tuple[int, ...]) -> Any:
        """Find a product of two known expressions and a simple one."""
        for quotients, first in self._quotients(values):
            for rest, second in self._quotients(quotients):
                last = rest[0] if len(set(rest)) == 1 else self._simple(rest)
                if last is not None:
                    return first * second * last
        return None

    def _quotients(self, values: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Any]]:
        """Yield the quotients of the values by each known expression, and the expression."""
        for numbers, expression in self._expressions.items():
            if all(n and v % n == 0 for v, n in zip(values, numbers, strict=True)):
                yield tuple(map(operator.floordiv, values, numbers)), expression

    def _rounded(self, values: tuple[int, ...]) -> Any:
        """Find a known expression, shifted and divided with rounding, if only one shift fits."""
        for numbers, expression in self._expressions.items():
            pairs = list(zip(numbers, values, strict=True))
            for divisor in range(2, MAX_DIVISOR + 1):
                fitting = [
                    shift
                    for shift in range(-divisor, divisor + 1)
                    if all((n + shift) // divisor == value for n, value in pairs)
                ]
                if len(fitting) == 1:
                    return (expression + fitting[0]) // divisor
        return None

    def _linear(self, values: tuple[int, ...]) -> Any:
        """Find a sum of multiples of the symbols and a constant."""
        names = list(self._symbols)
        rows = np.asarray([[1, *(sizes[name] for name in names)] for sizes in self._at], np.float64)
        numbers = np.round(np.linalg.lstsq(rows, np.asarray(values, np.float64))[0])
        if np.any(rows @ numbers != values):
            return None
        first, *factors = numbers.astype(np.int64).tolist()
        terms = zip(factors, self._symbols.values(), strict=True)
        return sum((factor * symbol for factor, symbol in terms if factor), start=first)


def _scaling(values: Sequence[int], numbers: Sequence[int]) -> Callable[[Any], Any] | None:
    """Return the shift, the product or the quotient that turns the numbers into the values."""
    if 0 in numbers or 0 in values:
        return None
    pairs = list(zip(values, numbers, strict=True))
    shift = values[0] - numbers[0]
    if all(v - n == shift for v, n in pairs):
        return lambda expression: expression + shift
    factor, rest = divmod(values[0], numbers[0])
    if not rest and all(v == factor * n for v, n in pairs):
        return lambda expression: expression * factor
    divisor, rest = divmod(numbers[0], values[0])
    if not rest and all(n == divisor * v for v, n in pairs):
        return lambda expression: expression // divisor
    return None
