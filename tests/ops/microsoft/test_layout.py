from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.errors import InvalidInput
from tests.ops.microsoft.comparison import assert_agrees, results
from tests.support.types_present import needs

CUBE = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64, np.uint32])
def test_sample_op_returns_its_input(xp: Backend, dtype: Any) -> None:
    x = CUBE.astype(dtype)
    np.testing.assert_array_equal(results(xp, "SampleOp", x), x)


@pytest.mark.parametrize("axis", [0, 2, 3, -1, -4])
def test_expand_dims(xp: Backend, axis: int) -> None:
    assert_agrees(xp, "ExpandDims", CUBE, np.asarray(axis, np.int32))


@pytest.mark.parametrize("axis", [4, -5])
def test_expand_dims_checks_the_axis(axis: int) -> None:
    with pytest.raises(InvalidInput, match="out of range"):
        results(HOST, "ExpandDims", CUBE, np.asarray(axis, np.int32))


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
@pytest.mark.parametrize("pads", [[1, 2, 1, 0, 1, 3], [-1, 0, 1, 0, -1, 1], [[0, 1, 0, 1, 0, 2]]])
@pytest.mark.parametrize("value", [None, np.float32(2.5), np.asarray([-1], np.float32)])
def test_pad(xp: Backend, mode: str, pads: Any, value: Any) -> None:
    values = [] if value is None else [np.asarray(value)]
    assert_agrees(xp, "Pad", CUBE, np.asarray(pads, np.int64), *values, mode=mode)


@pytest.mark.parametrize(
    "indices", [[[0, 0], [1, 2]], [[1], [0]], [[[0, 1, 3]], [[1, 2, 0]]], [[-1, -3]]]
)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_gather_nd(xp: Backend, indices: Any, dtype: Any) -> None:
    assert_agrees(xp, "GatherND", CUBE, np.asarray(indices, dtype))


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [None, 0, 1, -2, 9, -9])
@pytest.mark.parametrize("shape", [(3, 5), (2, 4, 3), (0, 3)])
def test_trilu(xp: Backend, upper: int, k: int | None, shape: Any) -> None:
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    diagonal = [] if k is None else [np.asarray(k, np.int64)]
    assert_agrees(xp, "Trilu", x, *diagonal, upper=upper)


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64, np.float32, np.float64])
@pytest.mark.parametrize("bounds", [(0, 5), (2, 11, 3), (5, -3, -2), (4, 1), (1, 2, 7)])
@pytest.mark.parametrize("shape", [(), (1,)])
def test_range(xp: Backend, dtype: Any, bounds: Any, shape: Any) -> None:
    assert_agrees(xp, "Range", *(np.full(shape, bound, dtype) for bound in bounds))


def test_range_of_fractions(xp: Backend) -> None:
    numbers = (np.asarray(number, np.float32) for number in (0.5, 3.7, 0.4))
    assert_agrees(xp, "Range", *numbers, ulps=1)


@pytest.mark.parametrize("values", [[2, 1, 1, 3, 4, 3], [], [5], [0, -0.0, np.inf, -np.inf, 0]])
def test_unique_in_the_order_of_occurrence(xp: Backend, values: Any) -> None:
    assert_agrees(xp, "Unique", np.asarray(values, np.float32), outputs=3)


def test_unique_takes_vectors_alone() -> None:
    with pytest.raises(InvalidInput, match="one axis"):
        results(HOST, "Unique", CUBE, outputs=3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize(("dim", "size", "step"), [(-1, 2, 1), (0, 2, 3), (1, 1, 2), (2, 3, 1)])
def test_unfold(xp: Backend, dtype: Any, dim: int, size: int, step: int) -> None:
    assert_agrees(xp, "UnfoldTensor", CUBE.astype(dtype), dim=dim, size=size, step=step)


@pytest.mark.parametrize(("size", "step"), [(5, 1), (2, 0), (-1, 1)])
def test_unfold_checks_its_attributes(size: int, step: int) -> None:
    with pytest.raises(InvalidInput, match=f"size is {size}"):
        results(HOST, "UnfoldTensor", CUBE, size=size, step=step)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    ("values", "is_infinite", "is_nan"),
    [([1, 2], False, False), ([1, -np.inf], True, False), ([np.nan], False, True), ([], 0, 0)],
)
def test_is_all_finite(
    xp: Backend, dtype: Any, values: Any, is_infinite: bool, is_nan: bool
) -> None:
    needs(xp, dtype)
    inputs = CUBE.astype(dtype), np.asarray(values, dtype)
    expected = {"": is_infinite or is_nan, "isinf_only": is_infinite, "isnan_only": is_nan}
    for attribute, is_wrong in expected.items():
        found = results(xp, "IsAllFinite", *inputs, **({attribute: 1} if attribute else {}))
        assert found.shape == ()
        assert found == (not is_wrong)


def test_is_all_finite_refuses_both_options() -> None:
    with pytest.raises(InvalidInput, match="at most one"):
        results(HOST, "IsAllFinite", CUBE, isinf_only=1, isnan_only=1)
