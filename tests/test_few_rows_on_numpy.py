"""NumPy multiplies a few rows one by one, in parts of large matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from sardonyx.backends import few_rows
from sardonyx.backends.executable import Spec
from sardonyx.backends.numpy import HOST
from sardonyx.backends.written_out.program import written_out

# Few columns, several parts, several parts and a rest, one row in a part.
SHAPES = [(512, 300), (300, 512), (1024, 1800), (1000, 1801), (700_000, 2), (1, 2**17)]


def whole_numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    """Numbers of which float32 has all sums of products."""
    return np.random.default_rng(3).integers(-2, 3, shape).astype(dtype)


@pytest.mark.parametrize("is_turned", [False, True], ids=["by rows", "by columns"])
@pytest.mark.parametrize("rows", [(2,), (7,), (4, 1), (2, 1, 3)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products(
    shape: tuple[int, int], dtype: Any, rows: tuple[int, ...], is_turned: bool
) -> None:
    matrix = whole_numbers(*shape, dtype=dtype)
    matrix = np.asfortranarray(matrix) if is_turned else matrix
    a = whole_numbers(*rows, shape[0], dtype=dtype)
    assert few_rows.are_few(a, matrix)
    product = HOST.matmul(a, matrix)
    assert (product.dtype, product.shape) == (dtype, (*rows, shape[1]))
    np.testing.assert_array_equal(product, np.matmul(a, matrix))
    strided = np.repeat(a, 2, axis=-1)[..., ::2]
    np.testing.assert_array_equal(HOST.matmul(strided, matrix), product)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((1, 512), (512, 512)),
        ((8, 512), (512, 512)),
        ((512,), (512, 512)),
        ((2, 2, 512), (2, 512, 512)),
        ((0, 512), (512, 512)),
        ((2, 8), (8, 8)),
    ],
    ids=["one row", "many rows", "a vector", "a stack", "no rows", "a small matrix"],
)
def test_other_products_are_those_of_numpy(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    left, right = whole_numbers(*a), whole_numbers(*b)
    assert not few_rows.are_few(left, right)
    np.testing.assert_array_equal(HOST.matmul(left, right), np.matmul(left, right))


def test_other_numbers_are_those_of_numpy() -> None:
    left, right = whole_numbers(2, 512, dtype=np.int32), whole_numbers(512, 512, dtype=np.int32)
    assert not few_rows.are_few(left, right)
    np.testing.assert_array_equal(HOST.matmul(left, right), left @ right)


@pytest.mark.parametrize("rows", [(3,), (3, 1)], ids=str)
def test_a_function_that_is_written_out_has_the_same_bits(rows: tuple[int, ...]) -> None:
    def function(xp: Any, x: Any, w: Any) -> Sequence[Any]:
        return [xp.matmul(x, w)]

    rng = np.random.default_rng(5)
    x, w = (rng.standard_normal(s, np.float32) for s in ((*rows, 400), (400, 500)))
    specs = [Spec(each.shape, each.dtype) for each in (x, w)]
    (expected,) = function(HOST, x, w)
    found = written_out(function, specs, 1, [HOST.spec(expected)])
    assert found is not None
    (result,) = found.run(lambda: False, None, *found.ahead(w), x)
    np.testing.assert_array_equal(result, expected)
