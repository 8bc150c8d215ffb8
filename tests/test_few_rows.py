"""oneDNN's products of a few rows, which share one machine code."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from sardonyx.backends.fused_epilogue import Epilogue
from tests.support.kernels import NEEDS_ONEDNN
from tests.test_onednn import EPILOGUES, drawn, matrix_product, others_of

pytestmark = NEEDS_ONEDNN


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("is_finite", [True, False], ids=["finite", "not finite"])
@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("epilogue", EPILOGUES, ids=str)
def test_a_few_rows_are_as_they_are_among_more(
    epilogue: Epilogue, dtype: Any, is_finite: bool
) -> None:
    """The same code computes up to four rows, with zeros for those that are not there."""
    matrix = drawn(512, 1030).astype(dtype)
    four = matrix_product((4, 512), matrix.shape, dtype, epilogue=epilogue)
    packed = four.form.pack(matrix)
    x, others = drawn(4, 512), others_of(four, epilogue, 1030)
    if not is_finite:
        x[0, 3], x[2, 5] = np.nan, np.inf
    x, *others = (array.astype(dtype) for array in (x, *others))
    expected = four.run(x, packed, *others).astype(np.float32)
    for rows in (1, 2, 3):
        product = matrix_product((rows, 512), matrix.shape, dtype, epilogue=epilogue)
        assert product.form == four.form
        of_rows = [other[:rows] if other.ndim > 1 else other for other in others]
        found = product.run(x[:rows], packed, *of_rows).astype(np.float32)
        np.testing.assert_array_equal(found, expected[:rows])
