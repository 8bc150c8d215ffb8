"""CuPy's own kernels, CUB's reductions and Thrust's sorts, against NumPy."""

from __future__ import annotations

import cupy
import numpy as np
import pytest

ALL = "?bhiqBHIQefdFD"


@pytest.mark.parametrize("dtype", ALL)
def test_elementwise(dtype: str) -> None:
    x = np.array([3, 0, 2, 1, 1]).astype(dtype)
    y = cupy.asarray(x)
    np.testing.assert_array_equal(cupy.asnumpy(y + y * y), x + x * x)


@pytest.mark.parametrize("dtype", ALL)
def test_orders(dtype: str) -> None:
    x = np.array([3, 0, 2, 1, 1]).astype(dtype)
    y = cupy.asarray(x)
    np.testing.assert_array_equal(cupy.asnumpy(cupy.sort(y)), np.sort(x))
    np.testing.assert_array_equal(cupy.asnumpy(cupy.argsort(y)), np.argsort(x, kind="stable"))
    np.testing.assert_array_equal(cupy.asnumpy(cupy.unique(y)), np.unique(x))


REDUCTIONS = "sum prod max min argmax argmin mean var any all cumsum cumprod"


@pytest.mark.parametrize("name", REDUCTIONS.split())
@pytest.mark.parametrize("axis", [None, 0, 1, 2])
def test_reductions(name: str, axis: int | None) -> None:
    x = np.random.default_rng(0).normal(size=(4, 33, 5))
    reduced = getattr(cupy, name)(cupy.asarray(x), axis=axis)
    np.testing.assert_allclose(cupy.asnumpy(reduced), getattr(np, name)(x, axis=axis))


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
def test_nan_is_the_greatest_and_the_least(name: str) -> None:
    x = np.array([1, np.nan, 3], np.float32)
    reduced = getattr(cupy, name)(cupy.asarray(x))
    np.testing.assert_array_equal(cupy.asnumpy(reduced), getattr(np, name)(x))


@pytest.mark.parametrize("dtype", ["e", "f", "d"])
def test_histograms(dtype: str) -> None:
    x = np.array([0.5, 1.5, 1.5, 2.5, 9.0]).astype(dtype)
    counts, _ = cupy.histogram(cupy.asarray(x), bins=cupy.asarray([0, 1, 2, 3], dtype))
    assert counts.tolist() == [1, 2, 1]


def test_a_float32_that_is_denormal_is_zero_and_a_float64_is_not() -> None:
    tiny = cupy.asarray([1e-40], "f")
    assert (tiny * np.float32(1)).tolist() == [0]
    assert (cupy.asarray([1e-310]) * 1.0).tolist() == [1e-310]


def test_a_product_and_a_sum_are_rounded_once() -> None:
    fused = cupy.ElementwiseKernel("float32 a, float32 b, float32 c", "float32 y", "y = a * b + c")
    a = np.float32(1 + 2**-12)
    exact = np.float64(a) * np.float64(a) - 1
    assert fused(cupy.asarray(a), cupy.asarray(a), cupy.float32(-1)) == np.float32(exact)


def test_products_are_not_fused_with_sums_if_the_caller_says_so() -> None:
    a = np.float32(1 + 2**-12)
    kernel = cupy.ElementwiseKernel(
        "float32 a, float32 b, float32 c", "float32 y", "y = a * b + c", options=("-fmad=false",)
    )
    rounded = np.float32(np.float32(a * a) + np.float32(-1))
    assert kernel(cupy.asarray(a), cupy.asarray(a), cupy.float32(-1)) == rounded
