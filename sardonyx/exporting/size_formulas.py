"""Formulas for numbers that follow from the sizes of a call, derived from a few examples."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from sardonyx.exporting.size_expressions import Sizes

# Maximum divisor of a formula that divides a size and rounds down.
MAX_DIVISOR = 8


class NoFormula(Exception):  # noqa: N818  (a finding, not a fault)
    """No formula of a supported form returns a number at all probed sizes."""


def probe_sizes(symbols: Sequence[str], least: int, most: int) -> list[dict[str, int]]:
    """Sizes to trace, odd and even: more of them than a formula has coefficients.

    The first entry has the largest sizes, the second the smallest.

    >>> probe_sizes(["n"], 2, 255)[:2]
    [{'n': 255}, {'n': 2}]
    """
    if not symbols:
        return [{}]
    count = len(symbols)
    ends = [range(most, most - count, -1), range(least, least + count)]
    between = np.arange(least, most + 1)
    rng = np.random.default_rng(count)
    drawn = [rng.permutation(between)[:count].tolist() for _ in range(count + 5)]
    return [dict(zip(symbols, sizes, strict=True)) for sizes in (*ends, *drawn)]


class Formulas:
    """Turns numbers, one for each choice of sizes, into expressions of the symbols.

    Expressions have the type of the symbols, which Python's operators combine.
    """

    def __init__(self, at: Sequence[Sizes], symbols: Mapping[str, Any]) -> None:
        self._at = at
        self._symbols = symbols
        self._known: dict[tuple[int, ...], Any] = {}
        for name, symbol in symbols.items():
            self.learn(symbol, [sizes[name] for sizes in at])

    def learn(self, expression: Any, values: Sequence[int]) -> None:
        """Remember the values of an expression at the probed sizes."""
        self._known.setdefault(tuple(values), expression)

    def of(self, values: Sequence[int]) -> Any:
        """The expression with these values; raises `NoFormula` if there is none."""
        key = tuple(values)
        if len(set(key)) == 1:
            return values[0]
        if key not in self._known:
            self._known[key] = self._search(key)
        if self._known[key] is None:
            raise NoFormula(f"it is {', '.join(map(str, key))} for different sizes")
        return self._known[key]

    def _search(self, values: tuple[int, ...]) -> Any:
        found = self._simple(values)
        if found is not None:
            return found
        known = [(k, e) for k, e in self._known.items() if e is not None]
        for (a, first), (b, second) in combinations_with_replacement(known, 2):
            for combine in (operator.mul, operator.add):
                combined = partial(combine, first, second)
                found = _scaled(values, tuple(map(combine, a, b)), combined)
                if found is not None:
                    return found
        product = self._product(values, known)
        return self._rounded(values, known) if product is None else product

    def _simple(self, values: tuple[int, ...]) -> Any:
        """A known or linear expression, or a multiple, a fraction or a shift of a known one."""
        found = self._known.get(values)
        if found is None:
            found = self._linear(values)
        for numbers, expression in list(self._known.items()):
            if found is None and expression is not None:
                found = _scaled(values, numbers, partial(_itself, expression))
        return found

    def _product(self, values: tuple[int, ...], known: Sequence[tuple[Any, Any]]) -> Any:
        """A product of known expressions and one simple expression."""
        for numbers, expression in known:
            if all(n and v % n == 0 for v, n in zip(values, numbers, strict=True)):
                rest = tuple(v // n for v, n in zip(values, numbers, strict=True))
                for others, other in known:
                    if all(n and r % n == 0 for r, n in zip(rest, others, strict=True)):
                        last = tuple(r // n for r, n in zip(rest, others, strict=True))
                        found = last[0] if len(set(last)) == 1 else self._simple(last)
                        if found is not None:
                            return expression * other * found
        return None

    def _rounded(self, values: tuple[int, ...], known: Sequence[tuple[Any, Any]]) -> Any:
        """A known expression, shifted and divided with rounding, if only one shift fits."""
        for numbers, expression in known:
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
        """A sum of multiples of the symbols and a constant."""
        names = list(self._symbols)
        rows = np.asarray([[1, *(sizes[name] for name in names)] for sizes in self._at], np.float64)
        numbers = np.round(np.linalg.lstsq(rows, np.asarray(values, np.float64))[0])
        if np.any(rows @ numbers != values):
            return None
        first, *factors = numbers.astype(np.int64).tolist()
        terms = zip(factors, self._symbols.values(), strict=True)
        return sum((factor * symbol for factor, symbol in terms if factor), start=first)


def _itself(expression: Any) -> Any:
    return expression


def _scaled(values: Sequence[int], numbers: Sequence[int], build: Callable[[], Any]) -> Any:
    """Shift, multiply or divide an expression with these numbers so that it has these values."""
    if 0 in numbers or 0 in values:
        return None
    pairs = list(zip(values, numbers, strict=True))
    if len(shifts := {v - n for v, n in pairs}) == 1:
        return build() + shifts.pop()
    times, rest = divmod(values[0], numbers[0])
    if not rest and all(v == times * n for v, n in pairs):
        return build() * times
    times, rest = divmod(numbers[0], values[0])
    if not rest and all(n == times * v for v, n in pairs):
        return build() // times
    return None
