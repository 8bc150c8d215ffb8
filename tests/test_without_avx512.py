"""Products as processors without AVX-512 compute them; on others, in a process that has none."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sardonyx.backends.fused_epilogue import NOTHING, Epilogue
from tests.support.kernels import NEEDS_ONEDNN, has_avx512
from tests.test_onednn import (
    EPILOGUES,
    Window,
    assert_close,
    convolution,
    convolved,
    drawn,
    matrix_product,
    multiplied,
    others_of,
)

pytestmark = NEEDS_ONEDNN

# One tile of rows and less, a few, and several pieces; the inner axis at once or in two parts;
# panels of 16 and of 24 columns, whole ones and others.
ROWS, INNER, COLUMNS = [1, 3, 5, 66, 300], [1, 7, 1500], [10, 16, 17, 24, 40, 100, 1003]
# For all of the image oneDNN chooses weights in blocks that its kernels for a half cannot read.
DIVIDED = [
    Window((1, 64, 56, 56), (256, 64, 1, 1)),
    Window((1, 256, 14, 14), (256, 256, 3, 3), 1, (1, 1)),
    Window((3, 256, 14, 14), (256, 256, 3, 3), 1, (1, 1)),
]


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
@pytest.mark.parametrize("epilogue", EPILOGUES, ids=str)
@pytest.mark.sampled(2)
def test_what_follows_a_product(epilogue: Epilogue, columns: int) -> None:
    x, matrix = drawn(270, 130), drawn(130, columns)
    kernel = matrix_product(x.shape, matrix.shape, epilogue=epilogue)
    others = others_of(kernel, epilogue, columns)
    for is_finite in (True, False):
        if not is_finite:
            x[0, 3], x[5, 2], x[269, 129] = np.nan, np.inf, -np.inf
        found = kernel.run(x, kernel.form.pack(matrix), *others)
        assert_close(found, multiplied(epilogue, x, matrix, *others))


@pytest.mark.parametrize("threads", [1, 2, 7, 64])
def test_threads_and_rows_beside_it_leave_a_row_as_it_is(threads: int) -> None:
    x, matrix = drawn(600, 800), drawn(800, 500)
    expected = _product(x, matrix, threads=1)
    for rows in (1, 2, 70, 600):
        found = _product(x[:rows], matrix, threads=threads)
        assert_close(found, expected[:rows], 1e-6)
        # With AVX-512, oneDNN has a kernel for each number of rows.
        if not has_avx512():
            np.testing.assert_array_equal(found, expected[:rows])


def _product(x: Any, matrix: Any, *, threads: int) -> Any:
    kernel = matrix_product(x.shape, matrix.shape, threads=threads)
    return kernel.run(x, kernel.form.pack(matrix))


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("window", DIVIDED, ids=str)
def test_convolutions_whose_images_are_divided(window: Window) -> None:
    x, weight = drawn(*window.x), drawn(*window.weight)
    kernel = convolution(window)
    found = kernel.run(x, kernel.form.pack(weight))
    assert_close(found, convolved(window, NOTHING, x, weight))


@pytest.mark.skipif(not has_avx512(), reason="without AVX-512 the tests above are all of it")
def test_all_of_it_without_avx512() -> None:
    files = __file__, str(Path(__file__).with_name("test_winograd.py"))
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *files]
    # Options of this run may be of plugins that the other one lacks.
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2", "PYTEST_ADDOPTS": ""}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-3000:]
