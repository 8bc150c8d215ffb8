"""Products with weights in panels: all of them without AVX-512, and those of few rows with it."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from sardonyx.backends.fused_epilogue import NOTHING, Epilogue
from tests.support.kernels import NEEDS_ONEDNN, has_avx512
from tests.test_onednn import EPILOGUES, assert_close, drawn, matrix_product, multiplied, others_of

pytestmark = NEEDS_ONEDNN

# One tile of rows and less, a few, and several pieces; the inner axis at once or in two parts;
# panels of 16, of 24 and of 64 columns, whole ones and others.
ROWS, INNER = [1, 3, 5, 13, 64, 66, 300], [1, 7, 127, 1500]
COLUMNS = [10, 16, 17, 24, 40, 64, 100, 640, 1003]


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("sizes", list(product(ROWS, INNER, COLUMNS)), ids=str)
def test_products_of_all_sizes(sizes: tuple[int, int, int]) -> None:
    rows, inner, columns = sizes
    x, matrix = drawn(rows, inner), drawn(inner, columns)
    kernel = matrix_product(x.shape, matrix.shape)
    assert_close(kernel.run(x, kernel.form.pack(matrix)), multiplied(NOTHING, x, matrix))


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("columns", [600, 1003])
@pytest.mark.parametrize("rows", [1, 9, 64, 270])
@pytest.mark.parametrize("epilogue", EPILOGUES, ids=str)
@pytest.mark.sampled(4)
def test_what_follows_a_product(epilogue: Epilogue, rows: int, columns: int) -> None:
    x, matrix = drawn(rows, 130), drawn(130, columns)
    kernel = matrix_product(x.shape, matrix.shape, epilogue=epilogue)
    others = others_of(kernel, epilogue, columns)
    for is_finite in (True, False):
        if not is_finite:
            x[0, 3], x[rows // 2, 2], x[-1, 129] = np.nan, np.inf, -np.inf
        found = kernel.run(x, kernel.form.pack(matrix), *others)
        assert_close(found, multiplied(epilogue, x, matrix, *others))


@pytest.mark.parametrize("threads", [1, 2, 7, 64])
def test_threads_and_rows_beside_it_leave_a_row_as_it_is(threads: int) -> None:
    x, matrix = drawn(600, 800), drawn(800, 500)
    expected = _product(x, matrix, threads=1)
    few = _product(x[:64], matrix, threads=1)
    for rows in (1, 2, 13, 64, 70, 600):
        found = _product(x[:rows], matrix, threads=threads)
        assert_close(found, expected[:rows], 1e-6)
        # With AVX-512, oneDNN computes more rows, with a kernel for each number of them.
        if rows <= 64 or not has_avx512():
            np.testing.assert_array_equal(found, (few if rows <= 64 else expected)[:rows])


def _product(x: Any, matrix: Any, *, threads: int) -> Any:
    kernel = matrix_product(x.shape, matrix.shape, threads=threads)
    return kernel.run(x, kernel.form.pack(matrix))
