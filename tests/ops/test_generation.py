from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST
from sardonyx.ops import fill as ops
from tests.ops.oracle import onnxruntime_run, run
from tests.support.types_present import needs

NARROW = [ml_dtypes.bfloat16, np.float16]


def scalars(dtype: Any, *values: float) -> dict[str, np.ndarray]:
    return dict(zip(("start", "limit", "delta"), np.array(values).astype(dtype), strict=True))


@pytest.mark.parametrize(
    "value",
    [
        np.array([3.5], np.float32),
        np.array([2**63 + 1], np.uint64),
        np.array([-1], np.int8),
        np.array(True),
        np.array([[0.1]], np.float64),
        np.array([2.5]).astype(ml_dtypes.bfloat16),
        np.array([-3]).astype(ml_dtypes.int4),
        np.array([448.0]).astype(ml_dtypes.float8_e4m3fn),
    ],
    ids=lambda value: value.dtype.name,
)
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 4)])
def test_constant_of_shape(xp: Backend, value: np.ndarray, shape: tuple[int, ...]) -> None:
    needs(xp, value.dtype)
    result = run(xp, ops.ConstantOfShape, input=shape, value=value)
    assert result.dtype == value.dtype
    assert result.shape == shape
    assert (result == value.reshape(())).all()


def test_constant_of_shape_is_a_float_zero_by_default(xp: Backend) -> None:
    result = run(xp, ops.ConstantOfShape, input=(2,))
    assert result.dtype == np.float32
    assert result.tolist() == [0, 0]


def test_constant_of_shape_refuses() -> None:
    with pytest.raises(ValueError, match="negative"):
        ops.ConstantOfShape(HOST, (2, -1))
    with pytest.raises(ValueError, match="one"):
        ops.ConstantOfShape(HOST, (2,), value=np.zeros(2))


small = st.integers(-20, 20)


@given(small, small, small.filter(bool), st.sampled_from([np.int16, np.int32, np.int64]))
@settings(deadline=None, max_examples=25)
def test_range_of_integers(start: int, limit: int, delta: int, dtype: Any) -> None:
    for xp in (HOST, JaxBackend()):
        result = run(xp, ops.Range, **scalars(dtype, start, limit, delta))
        assert result.dtype == dtype
        assert result.tolist() == list(range(start, limit, delta))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "values", [(0, 1, 0.1), (0, 0.3, 0.1), (5, -1, -1.5), (1, 0, 1), (2, 2, 1)]
)
def test_range_of_floats(xp: Backend, dtype: Any, values: tuple[float, ...]) -> None:
    inputs = scalars(dtype, *values)
    result = run(xp, ops.Range, **inputs)
    expected = onnxruntime_run("Range", *map(np.asarray, inputs.values()), opset=11)
    assert result.dtype == expected.dtype
    np.testing.assert_allclose(result, expected, rtol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", NARROW, ids=lambda dtype: dtype.__name__)
def test_range_of_narrow_floats_is_computed_in_float32(dtype: Any) -> None:
    for xp in (HOST, JaxBackend()):
        result = run(xp, ops.Range, **scalars(dtype, 0, 400, 1.5))
        exact = np.arange(0, 400, 1.5)
        assert result.dtype == dtype
        assert (result == exact.astype(dtype)).all()
        assert run(xp, ops.Range, stash_type=10, **scalars(dtype, 0, 4, 1)).dtype == dtype


def test_range_holds_integers_that_no_float_holds(xp: Backend) -> None:
    edge = 2**62 + 1
    inputs = {"start": np.array(edge), "limit": np.array(edge + 3), "delta": np.array(1)}
    assert run(xp, ops.Range, **inputs).tolist() == [edge, edge + 1, edge + 2]


@pytest.mark.parametrize("values", [(0, 1, 0), (0, np.inf, 1), (np.nan, 1, 1)])
def test_range_without_end_is_refused(values: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="no range"):
        ops.Range(HOST, *scalars(np.float32, *values).values())


@pytest.mark.parametrize("k", [0, 1, -2, 9, -9, 2**40])
@pytest.mark.parametrize("dtype", [None, np.int64, np.bool_, np.float64])
def test_eye_like(xp: Backend, k: int, dtype: Any) -> None:
    x = np.zeros((3, 4), np.float32)
    result = run(xp, ops.EyeLike, x, k=k, dtype=dtype and np.dtype(dtype))
    np.testing.assert_array_equal(result, np.eye(3, 4, k=min(k, 9), dtype=dtype or np.float32))
    assert result.dtype == (dtype or np.float32)


@pytest.mark.parametrize("dtype", NARROW, ids=lambda dtype: dtype.__name__)
def test_eye_like_of_narrow_floats(dtype: Any) -> None:
    for xp in (HOST, JaxBackend()):
        result = run(xp, ops.EyeLike, np.zeros((2, 2), dtype))
        assert result.dtype == dtype
        assert result.tolist() == [[1, 0], [0, 1]]


def test_eye_like_of_no_matrix_is_refused() -> None:
    with pytest.raises(ValueError, match="matrix"):
        ops.EyeLike(HOST, np.zeros((1, 2, 3)))
