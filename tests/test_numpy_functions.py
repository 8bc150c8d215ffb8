"""The functions that the NumPy backend has of its own, against the general ones and NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from sardonyx.backends.dtypes import isdtype
from sardonyx.backends.numpy import HOST, FoldingBackend, TooLarge
from sardonyx.backends.operations.indexing import Indexing

DTYPES = ["bool", "int8", "uint64", "int64", "float32", "float64"]
keys = st.sampled_from(DTYPES).flatmap(lambda d: arrays.arrays(d, arrays.array_shapes(max_dims=1)))
SPECIAL = [0.0, -0.0, np.nan, -np.nan, np.inf, 1.0, -0.0, np.nan, 0.0, -np.inf]


def require_the_general_result(x: Any) -> None:
    order, is_new = HOST.runs(x)
    for found, expected in zip((order, is_new), Indexing.runs(HOST, x), strict=True):
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype
    np.testing.assert_array_equal(
        HOST.ranks(order, is_new), Indexing.ranks(HOST, order, is_new), strict=True
    )
    for found, expected in zip(HOST.distinct(x), Indexing.distinct(HOST, x), strict=True):
        np.testing.assert_array_equal(found, expected, strict=True)


@given(keys)
def test_distinct_values_are_those_of_the_general_form(x: Any) -> None:
    require_the_general_result(x)
    require_the_general_result(x[::-2])


@pytest.mark.parametrize(
    "x",
    [
        np.float32(SPECIAL),
        np.float64(SPECIAL)[::-1],
        np.zeros(0, np.float32),
        np.zeros(0, np.int64),
        np.float32([np.nan]),
        np.array(["b", "", "a\0", "b", "é"], object),
        np.zeros(0, object),
    ],
    ids=lambda x: f"{x.dtype}-{x.size}",
)
def test_distinct_special_values(x: Any) -> None:
    require_the_general_result(x)


@pytest.mark.parametrize("dtype", [*DTYPES, "object", "complex64"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3)])
def test_views_and_copies_are_those_of_numpy(shape: Any, dtype: str) -> None:
    x = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype).T
    for axis in range(-x.ndim - 1, x.ndim + 1):
        np.testing.assert_array_equal(
            HOST.expand_dims(x, axis=axis), np.expand_dims(x, axis), strict=True
        )
        np.testing.assert_array_equal(
            HOST.stack([x, x, x], axis=axis), np.stack([x, x, x], axis=axis), strict=True
        )
    np.testing.assert_array_equal(HOST.stack([x]), np.stack([x]), strict=True)
    np.testing.assert_array_equal(HOST.reshape(x, (-1,) if x.size else (0,)), x.reshape(-1))


def test_stacks_share_no_memory() -> None:
    x = np.arange(3)
    assert not np.shares_memory(HOST.stack([x]), x)
    assert HOST.stack([x, x]).base is None


@pytest.mark.parametrize("dtype", ["float32", "object"])
def test_arrays_that_do_not_fit_are_refused(dtype: str) -> None:
    with pytest.raises(ValueError, match="same shape"):
        HOST.stack([np.zeros(2, dtype), np.zeros(3, dtype)])
    with pytest.raises(ValueError, match="must match exactly"):
        HOST.concat([np.zeros((2, 2), dtype), np.zeros((2, 3), dtype)])
    with pytest.raises(ValueError, match="at least one"):
        HOST.concat([])
    with pytest.raises(ValueError, match="axis"):
        HOST.expand_dims(np.zeros(2), axis=3)


def test_folding_joins_no_large_arrays() -> None:
    x = np.zeros(2**23, np.bool_)
    with pytest.raises(TooLarge):
        FoldingBackend().concat([x, x, x])


@pytest.mark.parametrize("descending", [False, True])
def test_orders_are_those_of_numpy(descending: bool) -> None:
    x = np.int64([[3, 1, 3, 2, 1], [0, 0, 0, 0, 1]])
    sign = -1 if descending else 1
    for axis in (0, 1, -1):
        found = HOST.argsort(x, axis=axis, descending=descending)
        np.testing.assert_array_equal(found, np.argsort(sign * x, axis=axis, kind="stable"))


def test_kinds_are_asked_of_types_and_of_lists_of_kinds() -> None:
    assert isdtype(np.float32, "real floating")
    assert isdtype(np.dtype(">i4"), ("bool", "integral"))
    assert not isdtype(np.dtype("O"), "numeric")
    assert isdtype(np.dtype("int8"), np.int8)
