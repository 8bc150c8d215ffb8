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
from sardonyx.ops import reduction as ops
from tests.ops.oracle import assert_same, onnxruntime_run, run
from tests.support.types_present import needs

NARROW = [ml_dtypes.bfloat16, np.float16]
FLOATS = [np.float32, np.float64]
INTEGERS = [np.int32, np.int64, np.uint32, np.uint64]


def log_sum_exp(x: np.ndarray, **options: Any) -> Any:
    return np.log(np.sum(np.exp(x), **options))


ORACLES: dict[Any, Any] = {
    ops.ReduceSum: np.sum,
    ops.ReduceMean: np.mean,
    ops.ReduceMax: np.max,
    ops.ReduceMin: np.min,
    ops.ReduceProd: np.prod,
    ops.ReduceL1: lambda x, **options: np.sum(np.abs(x), **options),
    ops.ReduceL2: lambda x, **options: np.sqrt(np.sum(x * x, **options)),
    ops.ReduceSumSquare: lambda x, **options: np.sum(x * x, **options),
    ops.ReduceLogSum: lambda x, **options: np.log(np.sum(x, **options)),
    ops.ReduceLogSumExp: log_sum_exp,
}
REDUCTIONS = pytest.mark.parametrize("op", ORACLES, ids=lambda op: op.name)


def values(op: Any, dtype: Any) -> np.ndarray:
    x = np.random.default_rng(0).uniform(-2, 2, (2, 3, 4))
    x = np.abs(x) + 0.5 if op is ops.ReduceLogSum else x
    return x.astype(dtype)


# -- reductions -----------------------------------------------------------------------------------


@REDUCTIONS
@pytest.mark.parametrize("axes", [None, (), (1,), (-1, 0), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.sampled(3)
def test_over_some_axes_or_all(xp: Backend, op: Any, axes: Any, keepdims: int) -> None:
    x = values(op, np.float64)
    expected = ORACLES[op](x, axis=axes or None, keepdims=bool(keepdims))
    result = run(xp, op, x, axes=axes, keepdims=keepdims)
    assert_same(result, np.asarray(expected), ulps=32)


@REDUCTIONS
@pytest.mark.parametrize("dtype", [np.float32, *NARROW], ids=lambda dtype: dtype.__name__)
def test_floats_are_rounded_once(xp: Backend, op: Any, dtype: Any) -> None:
    needs(xp, dtype)
    x = values(op, dtype)
    expected = ORACLES[op](x.astype(np.float64), axis=(0, 2), keepdims=True).astype(dtype)
    result = run(xp, op, x, axes=(0, 2))
    assert_same(result, expected, ulps=8 if dtype == np.float32 else 1)


@pytest.mark.parametrize("dtype", NARROW, ids=lambda dtype: dtype.__name__)
def test_long_sums_of_narrow_floats_do_not_stall(dtype: Any) -> None:
    x = np.ones(6000, dtype)
    for xp in (HOST, JaxBackend()):
        assert float(run(xp, ops.ReduceSum, x)[0]) == float(dtype(6000))
        assert run(xp, ops.ReduceMean, x * dtype(30))[0] == 30
        assert float(run(xp, ops.ReduceL2, x * dtype(300))[0]) == float(dtype(300 * 6000**0.5))
        assert float(run(xp, ops.CumSum, x, axis=0)[-1]) == float(dtype(6000))


@REDUCTIONS
@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda dtype: dtype.__name__)
def test_integers(xp: Backend, op: Any, dtype: Any) -> None:
    x = np.random.default_rng(1).integers(max(np.iinfo(dtype).min, -6), 7, (3, 5)).astype(dtype)
    if op is ops.ReduceLogSum:
        x = np.clip(x, 1, 7).astype(dtype)
    exact = ORACLES[op](x.astype(np.float64), axis=(1,), keepdims=True)
    assert_same(run(xp, op, x, axes=(1,)), np.trunc(exact).astype(dtype))


def test_means_of_integers_are_cut_off_like_those_of_onnxruntime(xp: Backend) -> None:
    x = np.array([[-7, 2, 0], [7, -2, 0], [-3, -3, -3], [-1, -1, 0]], np.int32)
    result = run(xp, ops.ReduceMean, x, axes=(1,))
    expected = onnxruntime_run("ReduceMean", x, np.array([1]), opset=18)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, np.int8, np.uint8])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_the_extremes_of_nothing(xp: Backend, dtype: Any, keepdims: int) -> None:
    nothing = np.zeros((2, 0, 3), dtype)
    infinite = dtype in FLOATS
    bottom = -np.inf if infinite else np.iinfo(dtype).min
    top = np.inf if infinite else np.iinfo(dtype).max
    for op, identity in ((ops.ReduceMax, bottom), (ops.ReduceMin, top)):
        result = run(xp, op, nothing, axes=(1,), keepdims=keepdims)
        expected = np.full((2, 1, 3) if keepdims else (2, 3), identity, dtype)
        assert_same(result, expected)
        assert run(xp, op, nothing, axes=(2,), keepdims=0).shape == (2, 0)


@REDUCTIONS
def test_reductions_of_nothing(xp: Backend, op: Any) -> None:
    result = run(xp, op, np.zeros((2, 0), np.float32), axes=(1,))
    log_of_zero = {ops.ReduceLogSum: -np.inf, ops.ReduceLogSumExp: -np.inf}
    special = {ops.ReduceMax: -np.inf, ops.ReduceMin: np.inf, ops.ReduceProd: 1}
    identity = (log_of_zero | special | {ops.ReduceMean: np.nan}).get(op, 0)
    np.testing.assert_array_equal(result, np.full((2, 1), identity, np.float32))


def test_extremes_of_truth(xp: Backend) -> None:
    x = np.array([[True, False], [False, False], [True, True]])
    assert run(xp, ops.ReduceMax, x, axes=(1,), keepdims=0).tolist() == [True, False, True]
    assert run(xp, ops.ReduceMin, x, axes=(1,), keepdims=0).tolist() == [False, False, True]
    assert run(xp, ops.ReduceMax, x[:, :0], axes=(1,)).tolist() == [[False]] * 3
    assert run(xp, ops.ReduceMin, x[:, :0], axes=(1,)).tolist() == [[True]] * 3
    assert run(xp, ops.ReduceMax, x, noop_with_empty_axes=1).tolist() == x.tolist()


@REDUCTIONS
@pytest.mark.parametrize("axes", [None, ()], ids=str)
def test_reducing_no_axis_leaves_what_is_done_to_each_element(
    xp: Backend, op: Any, axes: Any
) -> None:
    x = values(op, np.float64)
    each = {
        ops.ReduceL1: np.abs,
        ops.ReduceL2: np.abs,
        ops.ReduceSumSquare: np.square,
        ops.ReduceLogSum: np.log,
    }
    expected = each.get(op, np.asarray)(x)
    assert_same(run(xp, op, x, axes=axes, noop_with_empty_axes=1), expected)
    if op not in each and op is not ops.ReduceLogSumExp:
        array = xp.put(x)
        assert op(xp, array, noop_with_empty_axes=1) is array


def test_log_sum_exp_neither_overflows_nor_meets_nan(xp: Backend) -> None:
    rows = np.array(
        [
            [1000, 1000, 999],
            [-2000, -2000, -2000],
            [-np.inf, 0, 0],
            [np.inf, 0, -np.inf],
            [-np.inf, -np.inf, -np.inf],
            [np.nan, 0, np.inf],
        ]
    )
    result = run(xp, ops.ReduceLogSumExp, rows, axes=(1,), keepdims=0)
    exact = np.logaddexp.reduce(rows[:5], axis=1)
    np.testing.assert_allclose(result[:5], exact, rtol=1e-14)
    assert np.isnan(result[5])


def test_nan_is_the_extreme(xp: Backend) -> None:
    x = np.array([[1, np.nan, 3]], np.float32)
    assert np.isnan(run(xp, ops.ReduceMax, x, axes=(1,))).all()
    assert np.isnan(run(xp, ops.ReduceMin, x, axes=(1,))).all()


@REDUCTIONS
@pytest.mark.parametrize("axes", [(2,), (-3,), (0, -2)])
def test_axes_out_of_range_or_doubled_are_refused(op: Any, axes: Any) -> None:
    with pytest.raises(ValueError, match=r"out of range|twice"):
        op(HOST, np.ones((2, 2)), axes)


def test_scalars_have_no_axes(xp: Backend) -> None:
    for op in (ops.ReduceSum, ops.ReduceMean, ops.ReduceMax, ops.ReduceProd, ops.ReduceL2):
        assert run(xp, op, np.array(3.0)) == 3


# -- ArgMax and ArgMin ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("axis", [-2, -1, 0, 1])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_places_of_extremes(xp: Backend, name: str, axis: int, last: int, keepdims: int) -> None:
    x = np.array([[2, 1, 2, 1], [2, 2, 1, 1], [0, 2, 2, 0]], np.float32)
    attributes = {"axis": axis, "keepdims": keepdims, "select_last_index": last}
    result = run(xp, getattr(ops, name), x, **attributes)
    assert_same(result, onnxruntime_run(name, x, opset=13, **attributes))


@pytest.mark.parametrize("dtype", [*NARROW, np.uint8, np.int16, np.uint64], ids=str)
def test_places_in_every_type(xp: Backend, dtype: Any) -> None:
    needs(xp, dtype)
    x = np.array([[3, 5, 5, 1, 1]]).astype(dtype)
    found = [
        run(xp, op, x, axis=1, keepdims=0, select_last_index=last).item()
        for op in (ops.ArgMax, ops.ArgMin)
        for last in (0, 1)
    ]
    assert found == [1, 2, 3, 4]


@pytest.mark.parametrize("op", [ops.ArgMax, ops.ArgMin], ids=lambda op: op.name)
def test_places_that_are_not_there(op: Any) -> None:
    with pytest.raises(ValueError, match="out of range"):
        op(HOST, np.ones((2, 2)), axis=2)
    with pytest.raises(ValueError, match="no elements"):
        op(HOST, np.ones((2, 0)), axis=1)


# -- CumSum and CumProd --------------------------------------------------------------------------


@pytest.mark.slow
@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.data(), st.booleans(), st.booleans())
@settings(deadline=None, max_examples=25)
def test_cumsum(shape: list[int], data: st.DataObject, exclusive: bool, reverse: bool) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = np.random.default_rng(0).normal(size=shape)
    attributes = {"exclusive": int(exclusive), "reverse": int(reverse)}
    expected = onnxruntime_run("CumSum", x, np.array(axis), opset=14, **attributes)
    for xp in (HOST, JaxBackend()):
        assert_same(run(xp, ops.CumSum, x, axis=axis, **attributes), expected, ulps=16)


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
@pytest.mark.parametrize(
    ("exclusive", "reverse", "expected"),
    [(0, 0, [1, 3, 6]), (1, 0, [0, 1, 3]), (0, 1, [6, 5, 3]), (1, 1, [5, 3, 0])],
)
def test_cumsum_in_every_type(
    xp: Backend, dtype: Any, exclusive: int, reverse: int, expected: list[int]
) -> None:
    x = np.array([[1, 2, 3]], dtype)
    result = run(xp, ops.CumSum, x, axis=1, exclusive=exclusive, reverse=reverse)
    assert_same(result, np.array([expected], dtype))


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
@pytest.mark.parametrize(
    ("exclusive", "reverse", "expected"),
    [(0, 0, [2, 6, 24]), (1, 0, [1, 2, 6]), (0, 1, [24, 12, 4]), (1, 1, [12, 4, 1])],
)
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.sampled(3)
def test_cumprod(
    xp: Backend, dtype: Any, exclusive: int, reverse: int, expected: list[int], axis: int
) -> None:
    x, y = np.array([[2, 3, 4]], dtype), np.array([expected], dtype)
    if not axis:
        x, y = x.T.copy(), y.T.copy()
    result = run(xp, ops.CumProd, x, axis=axis, exclusive=exclusive, reverse=reverse)
    assert_same(result, y)


@pytest.mark.parametrize("backend", [HOST, JaxBackend()], ids=lambda backend: backend.name)
@pytest.mark.parametrize("op", [ops.CumSum, ops.CumProd], ids=lambda op: op.name)
def test_narrow_floats_are_rounded_once_so_far(backend: Backend, op: Any) -> None:
    x = np.linspace(0.99, 1.0125, 300).astype(ml_dtypes.bfloat16)
    exact = {ops.CumSum: np.cumsum, ops.CumProd: np.cumprod}[op](x.astype(np.float64))
    assert_same(run(backend, op, x, axis=0), exact.astype(ml_dtypes.bfloat16), ulps=1)


@pytest.mark.parametrize("op", [ops.CumSum, ops.CumProd], ids=lambda op: op.name)
def test_no_axis_to_go_along_is_refused(xp: Backend, op: Any) -> None:
    with pytest.raises(ValueError, match="out of range"):
        run(xp, op, np.ones(3), axis=1)
    assert run(xp, op, np.ones((2, 0)), axis=1, exclusive=1).shape == (2, 0)
