from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST
from sardonyx.ops.linalg import Det, Gemm, MatMul
from tests.ops.oracle import assert_same, run


def drawn(*shape: int, dtype: Any = np.float64, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3,), (3,)),
        ((3,), (3, 4)),
        ((2, 3), (3,)),
        ((3,), (5, 3, 4)),
        ((2, 3), (3, 4)),
        ((5, 2, 3), (3, 4)),
        ((2, 3), (5, 3, 4)),
        ((6, 1, 2, 3), (5, 3, 4)),
        ((2, 0), (0, 4)),
        ((0, 3), (3, 4)),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "dtype", [np.float32, np.float64, np.int32, np.uint32, np.int64, np.uint64]
)
def test_MatMul(xp: Backend, a: Any, b: Any, dtype: Any) -> None:
    # Integers beyond 2**53 and products that wrap around, so that no float could stand in.
    scale = 1 if np.dtype(dtype).kind == "f" else 2.0 ** (8 * np.dtype(dtype).itemsize - 3)
    x, y = (np.abs(drawn(*shape, seed=i)) % 1 * scale for i, shape in enumerate((a, b)))
    x, y = x.astype(dtype), y.astype(dtype)
    assert_same(run(xp, MatMul, x, y), np.asarray(np.matmul(x, y)), ulps=8)


NARROW_TYPES = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]


@pytest.mark.parametrize("backend", [HOST, JaxBackend()], ids=lambda backend: backend.name)
@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
def test_narrow_floats_accumulate_in_float32(backend: Backend, dtype: Any) -> None:
    a, b = (np.abs(drawn(*shape)).astype(dtype) for shape in [(3, 5000), (5000, 2)])
    expected = (a.astype(np.float64) @ b.astype(np.float64)).astype(dtype)
    assert_same(run(backend, MatMul, a, b), expected, ulps=1)
    assert_same(run(backend, Gemm, a, b, alpha=1.0), expected, ulps=1)
    half = (a.astype(np.float64) @ b.astype(np.float64) / 2).astype(dtype)
    result = run(backend, Gemm, a, b, expected, alpha=2.5, beta=-2.0)
    assert_same(result, half, ulps=16)


@pytest.mark.parametrize(("a", "b"), [((2,), (3,)), ((), (3,)), ((2, 3), (2, 3)), ((2, 3), ())])
def test_MatMul_refuses(xp: Backend, a: Any, b: Any) -> None:
    with pytest.raises(ValueError, match="shapes"):
        run(xp, MatMul, np.ones(a), np.ones(b))


@pytest.mark.parametrize("transA", [0, 1])
@pytest.mark.parametrize("transB", [0, 1])
@pytest.mark.parametrize("c", [None, (2, 4), (4,), (1, 4), (2, 1), (1,), ()], ids=str)
def test_Gemm(xp: Backend, transA: int, transB: int, c: Any) -> None:
    a, b = drawn(2, 3), drawn(3, 4)
    given = [a.T.copy() if transA else a, b.T.copy() if transB else b]
    expected = 0.5 * (a @ b)
    if c is not None:
        given.append(np.asarray(drawn(*c, seed=3)))
        expected = expected - 1.5 * given[2]
    options: dict[str, Any] = {"alpha": 0.5, "beta": -1.5, "transA": transA, "transB": transB}
    assert_same(run(xp, Gemm, *given, **options), expected)


def test_what_is_scaled_by_zero_is_not_read(xp: Backend) -> None:
    a, b = drawn(2, 3), drawn(3, 4)
    assert_same(run(xp, Gemm, a, b, np.full(4, np.nan), beta=0.0), a @ b)


@pytest.mark.parametrize("dtype", [np.int32, np.uint64])
def test_Gemm_of_integers(xp: Backend, dtype: Any) -> None:
    a, b = np.arange(6, dtype=dtype).reshape(2, 3), np.arange(12, dtype=dtype).reshape(3, 4)
    c = np.array([7], dtype=dtype)
    actual = run(xp, Gemm, a, b, c, alpha=3.0, beta=2.0)
    assert_same(actual, a @ b * dtype(3) + c * dtype(2))
    actual = run(xp, Gemm, a, b, c, alpha=0.5)
    assert_same(actual, ((a @ b) * 0.5 + 7).astype(dtype))


def test_Gemm_once_broadcast_on_request_alone(xp: Backend) -> None:
    a, b, c = drawn(2, 3), drawn(3, 4), drawn(4)
    assert_same(run(xp, Gemm, a, b, c, opset=6, broadcast=1), a @ b + c)
    assert_same(run(xp, Gemm, a, b, a @ b, opset=1), 2 * (a @ b))
    with pytest.raises(ValueError, match="broadcast is 0"):
        run(xp, Gemm, a, b, c, opset=6)


def test_Gemm_refuses_what_does_not_fit_though_it_is_scaled_by_zero(xp: Backend) -> None:
    with pytest.raises(ValueError, match="does not broadcast"):
        run(xp, Gemm, np.ones((2, 3)), np.ones((3, 4)), np.ones(3), beta=0.0)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(2, 3), (3, 4), (3,)], "does not broadcast"),
        ([(2, 3), (3, 4), (1, 2, 4)], "does not broadcast"),
        ([(2, 3), (4, 4)], "cannot be multiplied"),
        ([(1, 2, 3), (3, 4)], "must be matrices"),
    ],
)
def test_Gemm_refuses(xp: Backend, shapes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(xp, Gemm, *map(np.ones, shapes))


@pytest.mark.parametrize(
    "shape",
    [(1, 1), (2, 2), (3, 3), (7, 7), (2, 4, 4), (3, 2, 5, 5), (0, 3, 3), (2, 0, 0)],
    ids=str,
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_Det(xp: Backend, shape: Any, dtype: Any) -> None:
    x = drawn(*shape, dtype=dtype)
    expected = np.asarray(np.linalg.det(x.astype(np.float64)), dtype)
    assert_same(run(xp, Det, x), expected, ulps=64)


def test_Det_of_what_has_none_and_of_many_swaps(xp: Backend) -> None:
    singular = np.array([[1.0, 2], [2, 4]])
    assert run(xp, Det, singular) == 0
    assert run(xp, Det, np.eye(6)[::-1].copy()) == -1
    assert np.isnan(run(xp, Det, np.full((4, 4), np.nan)))


@pytest.mark.parametrize("backend", [HOST, JaxBackend()], ids=lambda backend: backend.name)
@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
def test_Det_of_narrow_floats(backend: Backend, dtype: Any) -> None:
    x = drawn(5, 4, 4).astype(dtype)
    expected = np.linalg.det(x.astype(np.float64)).astype(dtype)
    assert_same(run(backend, Det, x), expected, ulps=1)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (3, 3, 2)], ids=str)
def test_Det_refuses(xp: Backend, shape: Any) -> None:
    with pytest.raises(ValueError, match="must form square matrices"):
        run(xp, Det, np.ones(shape))
