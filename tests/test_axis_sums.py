"""Sums along one axis as products with ones, and maxima of rows in another form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sardonyx.backends import axis_sums
from sardonyx.backends.axis_sums import max_of_rows, mean_of_rows, sum_as_product, sum_of_rows
from sardonyx.backends.executable import Spec
from sardonyx.backends.numpy import HOST
from sardonyx.backends.written_out.program import written_out

SHAPES = [(2, 3), (64, 32), (5, 1), (1, 7), (3, 4, 5), (2, 2, 4, 7), (0, 3), (3, 0), (8192, 16)]


def numbers(shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.random.default_rng(5).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_and_means_are_those_of_numpy(
    shape: tuple[int, ...], dtype: Any, keepdims: bool
) -> None:
    x, last = numbers(shape, dtype), len(shape) - 1
    axes: list[Any] = [-1, last, (last,), (-1,), 0, (0,), None, tuple(range(len(shape)))]
    for axis in axes:
        for array in (x, np.asfortranarray(x), np.repeat(x, 2, axis=-1)[..., ::2]):
            expected = np.sum(array, axis=axis, keepdims=keepdims)
            total = HOST.sum(array, axis=axis, keepdims=keepdims)
            assert (total.shape, total.dtype) == (expected.shape, expected.dtype)
            assert_allclose(total, expected, rtol=1e-4, atol=1e-4)
            if x.size:
                mean = HOST.mean(array, axis=axis, keepdims=keepdims)
                assert (mean.shape, mean.dtype) == (expected.shape, expected.dtype)
                count = x.size // expected.size
                assert_allclose(mean, expected / count, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("x", "options"),
    [
        (np.ones(4, np.float32), {"axis": 0}),
        (np.ones((2, 3), np.int32), {"axis": 1}),
        (np.ones((2, 3), np.float16), {"axis": 1}),
        (np.ones((2, 3), np.float32), {"axis": 1, "dtype": np.dtype(np.float64)}),
        (np.ones((2, 3), np.float32), {"axis": (0, 1)}),
        (np.ones((2, 3), np.float32), {}),
        (np.ones((2, 3, 4), np.float32), {"axis": 1}),
        (np.ones((2, axis_sums.MOST_NUMBERS + 1), np.float32), {"axis": 1}),
    ],
    ids=["a vector", "integers", "half", "in float64", "two axes", "all", "between", "many"],
)
def test_numpy_adds_all_else(x: np.ndarray[Any, Any], options: dict[str, Any]) -> None:
    assert sum_as_product(x, **options) is None
    assert_array_equal(HOST.sum(x, **options), np.sum(x, **options))


def test_sums_of_special_numbers() -> None:
    x = np.asarray([[np.inf, 1], [np.inf, -np.inf], [np.nan, 1], [-np.inf, 2]], np.float32)
    with HOST.scope():
        assert_array_equal(sum_of_rows(x)[:, 0], np.asarray([np.inf, np.nan, np.nan, -np.inf]))
        assert_array_equal(max_of_rows(x)[:, 0], np.asarray([np.inf, np.inf, np.nan, 2]))
        assert_array_equal(mean_of_rows(x)[:, 0], np.asarray([np.inf, np.nan, np.nan, -np.inf]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int8, np.bool_])
def test_maxima_have_the_bits_of_numpy(dtype: Any) -> None:
    for shape in ((2, 3), (5, 1), (7,), (2, 3, 4), (0, 3)):
        x = (4 * numbers(shape)).astype(dtype)
        expected = x.max(axis=-1, keepdims=True)
        assert max_of_rows(x).dtype == expected.dtype
        assert_array_equal(max_of_rows(x), expected)
    with pytest.raises(ValueError, match="zero-size"):
        max_of_rows(np.ones((2, 0), dtype))


def test_digits_are_kept() -> None:
    """As many as NumPy keeps, for the longest sums that are products."""
    x = np.random.default_rng(0).random((50, axis_sums.MOST_NUMBERS), np.float32)
    exact = x.astype(np.float64).sum(axis=1)
    errors = [np.abs(y - exact).max() / exact.max() for y in (sum_of_rows(x)[:, 0], x.sum(axis=1))]
    assert errors[0] < 1e-6
    assert errors[0] < 8 * errors[1] + 1e-7


@pytest.mark.parametrize("shape", [(2, 3), (64, 32), (2, 2, 4, 7)], ids=str)
def test_what_is_written_out_has_the_same_bits(shape: tuple[int, ...]) -> None:
    def function(xp: Any, x: Any) -> Sequence[Any]:
        weights = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
        return [
            weights / xp.sum(weights, axis=-1, keepdims=True),
            xp.mean(weights, axis=0, keepdims=True),
            xp.sum(x, axis=-1),
        ]

    x = numbers(shape)
    with HOST.scope():
        expected = function(HOST, x)
    found = written_out(function, [Spec(x.shape, x.dtype)], 1, list(map(HOST.spec, expected)))
    assert found is not None
    for result, other in zip(
        found.run(lambda: False, None, *found.ahead(), x), expected, strict=True
    ):
        assert_array_equal(result, other)
