"""Formulas for the numbers of programs, from the numbers at a few sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from sardonyx.backends.padding.axes import Cut
from sardonyx.graph.buckets.formulas import FEW_NUMBERS, Formula, terms
from sardonyx.graph.buckets.plans import CutFormulas

ONE = [(3,), (7,), (10,)]
TWO = [(3, 5), (7, 5), (3, 9), (7, 9), (4, 6)]
OTHERS = {1: [(4,), (25,), (1000,)], 2: [(4, 4), (25, 8), (1000, 300)]}


def numbers(sizes: tuple[int, ...], count: int) -> np.ndarray[Any, Any]:
    """Numbers of which each is linear in the sizes and in their product."""
    first, last = sizes[0], sizes[-1]
    product = first * last if len(sizes) == 2 else 0
    return np.array([i + 2 * first - i * last + 3 * product for i in range(count)])


@pytest.mark.parametrize("count", [0, 1, 5, FEW_NUMBERS, FEW_NUMBERS + 1, 100])
@pytest.mark.parametrize("sampled", [ONE, TWO], ids=["one size", "two sizes"])
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float32])
def test_few_numbers_and_many(sampled: list[tuple[int, ...]], count: int, dtype: Any) -> None:
    formula = Formula.fitted(sampled, [numbers(n, count).astype(dtype) for n in sampled])
    assert formula is not None
    for sizes in (*sampled, *OTHERS[len(sampled[0])]):
        expected = numbers(sizes, count)
        assert formula.numbers(terms(sizes)) == expected.tolist()
        array = formula.at(terms(sizes))
        assert array.dtype == dtype
        assert_array_equal(array, expected.astype(dtype))


FORMS: dict[str, Callable[[int], np.ndarray[Any, Any]]] = {
    "a number": lambda n: np.array(3 * n),
    "a table": lambda n: np.array([[n, 2], [1, 5 - n]]),
    "an inverse": lambda n: np.array([1 / n, 1 / (2 * n)], np.float32),
    "what stays": lambda n: np.array([[1, 2]], np.int8),
    "what wraps around": lambda n: np.array([20 * n]).astype(np.uint8),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms_of_arrays(name: str) -> None:
    formula = Formula.fitted(ONE, [FORMS[name](n) for (n,) in ONE])
    assert formula is not None
    for n in (3, 4, 12, 40):
        array, expected = formula.at(terms((n,))), FORMS[name](n)
        assert (array.shape, array.dtype) == (expected.shape, expected.dtype)
        assert_array_equal(array, expected)


def test_values_with_one_cut_share_it() -> None:
    def cuts(n: int) -> list[Cut]:
        cache = Cut((16, 8), (n + 1, 8), (n + 1, 8))
        return [cache, Cut((16,), (n,), (1, n)), cache]

    formulas = CutFormulas.fitted(ONE, [cuts(n) for (n,) in ONE])
    assert formulas is not None
    found = formulas.at(terms((12,)))
    assert found == cuts(12)
    assert found[0] is found[2]
