"""Only CUDA has these in onnxruntime: they are compared with their definition in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.errors import InvalidInput
from tests.ops.microsoft.comparison import results
from tests.support.types_present import needs

DTYPES = [np.float32, np.float64, np.float16]


def parts(x: Any) -> Any:
    return np.stack([x.real, x.imag], axis=-1)


def assert_near(actual: Any, expected: Any, dtype: Any) -> None:
    assert actual.dtype == dtype
    bound = 8 * float(np.finfo(dtype).eps) * max(float(np.max(np.abs(expected), initial=0)), 1)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=bound)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "count"), [((8,), 1), ((2, 6), 1), ((2, 5), 2), ((2, 3, 5), 2), ((3, 2, 4), 3)]
)
def test_rfft(xp: Backend, dtype: Any, shape: Any, count: int) -> None:
    needs(xp, dtype)
    x = np.random.default_rng(0).normal(size=shape).astype(dtype)
    expected = parts(np.fft.rfftn(x.astype(np.float64), axes=range(-count, 0)))
    assert_near(results(xp, "Rfft", x, signal_ndim=count), expected, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "count"), [((5,), 1), ((2, 4), 1), ((2, 4), 2), ((2, 3, 2), 2), ((2, 3, 4), 3)]
)
def test_irfft(xp: Backend, dtype: Any, shape: Any, count: int) -> None:
    needs(xp, dtype)
    x = np.random.default_rng(0).normal(size=(*shape, 2)).astype(dtype)
    wide = x.astype(np.float64)
    expected = np.fft.irfftn(wide[..., 0] + 1j * wide[..., 1], axes=range(-count, 0))
    assert_near(results(xp, "Irfft", x, signal_ndim=count), expected, dtype)


def test_transforms_of_an_empty_batch(xp: Backend) -> None:
    assert results(xp, "Rfft", np.zeros((0, 4), np.float32)).shape == (0, 3, 2)
    spectrum = np.zeros((0, 3, 2), np.float32)
    assert results(xp, "Irfft", spectrum, signal_ndim=1).shape == (0, 4)


@pytest.mark.parametrize("count", [0, 3])
def test_transforms_check_the_number_of_axes(count: int) -> None:
    with pytest.raises(InvalidInput, match=f"signal_ndim is {count}"):
        results(HOST, "Rfft", np.ones((2, 4), np.float32), signal_ndim=count)
    with pytest.raises(InvalidInput, match=f"signal_ndim is {count}"):
        results(HOST, "Irfft", np.ones((2, 4, 2), np.float32), signal_ndim=count)


def test_the_inverse_gives_the_signal_back(xp: Backend) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 8)).astype(np.float32)
    spectrum = results(xp, "Rfft", x, signal_ndim=2)
    assert_near(results(xp, "Irfft", spectrum, signal_ndim=2), x, np.float32)


@pytest.mark.parametrize("option", [{"normalized": 1}, {"onesided": 0}])
def test_other_transforms_are_refused(option: Any) -> None:
    with pytest.raises(InvalidInput, match="must be 0 and 1"):
        results(HOST, "Rfft", np.ones(4, np.float32), **option)
    with pytest.raises(InvalidInput, match="must be 0 and 1"):
        results(HOST, "Irfft", np.ones((3, 2), np.float32), signal_ndim=1, **option)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("a", "b"), [((3, 2), (3, 2)), ((2,), (4, 2)), ((4, 1, 2), (3, 2)), ((0, 2), (1, 2))]
)
@pytest.mark.parametrize("op", ["ComplexMul", "ComplexMulConj"])
def test_complex_products(xp: Backend, dtype: Any, a: Any, b: Any, op: str) -> None:
    needs(xp, dtype)
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=shape).astype(dtype) for shape in (a, b))
    one, other = (z[..., 0].astype(np.float64) + 1j * z[..., 1] for z in (x, y))
    expected = parts(one * (np.conj(other) if op == "ComplexMulConj" else other))
    assert_near(results(xp, op, x, y), expected, dtype)


def test_complex_products_need_both_parts() -> None:
    with pytest.raises(InvalidInput, match="end in an axis of 2"):
        results(HOST, "ComplexMul", np.ones((3, 1), np.float32), np.ones((3, 2), np.float32))
