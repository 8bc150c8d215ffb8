"""cuBLAS, cuSOLVER and cuFFT, through CuPy."""

from __future__ import annotations

import ctypes
from typing import Any

import cupy
import numpy as np
import pytest
from cupy.cuda import cublas

TOLERANCES = {"e": 2e-2, "f": 1e-5, "d": 1e-12, "F": 1e-5, "D": 1e-12, "i": 0, "b": 0}


def numbers(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCES.items())
@pytest.mark.parametrize("shape", [(5, 7), (2, 5, 7)])
def test_products(dtype: str, tolerance: float, shape: tuple[int, ...]) -> None:
    a, b = (numbers(*shape) * 3).astype(dtype), (numbers(7, 6, seed=1) * 3).astype(dtype)
    wide = "D" if dtype in "FD" else "d"
    product = cupy.asnumpy(cupy.asarray(a) @ cupy.asarray(b))
    if dtype == "b":
        expected = (a.astype("i") @ b.astype("i")).astype("b")
        np.testing.assert_array_equal(product, expected)
        return
    expected = a.astype(wide) @ b.astype(wide)
    np.testing.assert_allclose(product, expected, rtol=tolerance, atol=tolerance * 50)


def test_products_of_transposed_and_strided_matrices() -> None:
    a, b = numbers(6, 5), numbers(12, 7, seed=1)
    x, y = cupy.asarray(a), cupy.asarray(b)
    np.testing.assert_allclose(cupy.asnumpy(x.T @ y[::2]), a.T @ b[::2])
    np.testing.assert_allclose(cupy.asnumpy(cupy.dot(x[0], x[1])), a[0] @ a[1])
    np.testing.assert_allclose(cupy.asnumpy(x @ x[0]), a @ a[0])
    np.testing.assert_allclose(cupy.asnumpy(cupy.outer(x[0], x[1])), np.outer(a[0], a[1]))


INT8, INT32, FLOAT16, FLOAT32 = 3, 10, 2, 0
IN_FLOAT32, IN_FLOAT64, IN_INT32 = 68, 70, 72


def multiply(type_in: int, type_out: int, compute: int, offset: int = 0) -> None:
    """cublasGemmEx of one-element matrices, whatever they hold."""
    memory = cupy.zeros(8, np.int32)
    one = np.ones(1, np.float64)
    place = memory.data.ptr + offset
    cublas.gemmEx(
        cupy.cuda.device.get_cublas_handle(),
        *(0, 0, 1, 1, 1, one.ctypes.data),
        *(place, type_in, 4, place, type_in, 4, one.ctypes.data),
        *(memory.data.ptr, type_out, 4, compute, 0),
    )


def test_types_that_cublas_does_not_multiply_are_refused() -> None:
    multiply(INT8, INT32, IN_INT32)
    multiply(FLOAT16, FLOAT16, IN_FLOAT32)
    for types in (
        (INT8, FLOAT16, IN_FLOAT32),
        (INT8, INT32, IN_FLOAT32),
        (FLOAT32, FLOAT32, IN_FLOAT64),
    ):
        with pytest.raises(cublas.CUBLASError, match="NOT_SUPPORTED"):
            multiply(*types)


def test_integers_have_to_lie_in_fours() -> None:
    with pytest.raises(cublas.CUBLASError, match="NOT_SUPPORTED"):
        multiply(INT8, INT32, IN_INT32, offset=1)


def test_elements_have_to_lie_at_multiples_of_their_size() -> None:
    with pytest.raises(cublas.CUBLASError, match="NOT_SUPPORTED"):
        multiply(FLOAT32, FLOAT32, IN_FLOAT32, offset=1)


def test_sizes_that_do_not_fit_are_refused() -> None:
    x = cupy.zeros(4, "f")
    one = np.ones(1, "f").ctypes.data
    handle = cupy.cuda.device.get_cublas_handle()
    with pytest.raises(cublas.CUBLASError, match="INVALID_VALUE"):
        cublas.sgemm(handle, 0, 0, 2, 2, 2, one, x.data.ptr, 1, x.data.ptr, 2, one, x.data.ptr, 2)


def test_what_is_not_emulated_says_so() -> None:
    with pytest.raises(Exception, match="NOT_SUPPORTED"):
        cupy.linalg.svd(cupy.eye(3))


@pytest.mark.parametrize("name", ["inv", "det", "cholesky"])
@pytest.mark.parametrize("dtype", "fdFD")
def test_factorisations(name: str, dtype: str) -> None:
    a = numbers(3, 5, 5)
    a = (a @ a.transpose(0, 2, 1) + np.eye(5)).astype(dtype)
    tolerance = 1e-4 if dtype in "fF" else 1e-10
    for x in (a, a[0]):
        solved = cupy.asnumpy(getattr(cupy.linalg, name)(cupy.asarray(x)))
        np.testing.assert_allclose(solved, getattr(np.linalg, name)(x), rtol=tolerance, atol=1e-5)


def test_systems() -> None:
    a, b = numbers(3, 5, 5), numbers(3, 5, 2, seed=1)
    solved = cupy.linalg.solve(cupy.asarray(a), cupy.asarray(b))
    np.testing.assert_allclose(cupy.asnumpy(solved), np.linalg.solve(a, b))


@pytest.mark.parametrize("n", [1, 7, 8, 15])
@pytest.mark.parametrize("name", ["fft", "ifft", "fft2", "ifft2"])
def test_complex_transforms(n: int, name: str) -> None:
    x = numbers(3, n) + 1j * numbers(3, n, seed=1)
    transformed = cupy.asnumpy(getattr(cupy.fft, name)(cupy.asarray(x)))
    np.testing.assert_allclose(transformed, getattr(np.fft, name)(x), atol=1e-12)


@pytest.mark.parametrize("n", [2, 7, 8])
def test_real_transforms(n: int) -> None:
    x = numbers(3, n)
    half = cupy.fft.rfft(cupy.asarray(x))
    np.testing.assert_allclose(cupy.asnumpy(half), np.fft.rfft(x), atol=1e-12)
    np.testing.assert_allclose(cupy.asnumpy(cupy.fft.irfft(half, n)), x, atol=1e-12)
    whole = cupy.fft.rfftn(cupy.asarray(x))
    np.testing.assert_allclose(cupy.asnumpy(cupy.fft.irfftn(whole, x.shape)), x, atol=1e-12)


def test_a_scalar_of_the_host_is_read_when_the_function_is_called() -> None:
    """As by cuBLAS itself, which CuPy does not call while a stream captures."""
    library = ctypes.CDLL("libcublas.so.13")
    handle = ctypes.c_void_p()
    library.cublasCreate_v2(ctypes.byref(handle))
    stream = cupy.cuda.Stream(non_blocking=True)
    library.cublasSetStream_v2(handle, ctypes.c_void_p(stream.ptr))
    x = cupy.ones(3, "f")
    factor = ctypes.c_float(2)
    stream.begin_capture()
    vector = ctypes.c_void_p(x.data.ptr)
    assert library.cublasSscal_v2(handle, 3, ctypes.byref(factor), vector, 1) == 0
    factor.value = 100
    stream.end_capture().launch(stream)
    stream.synchronize()
    assert x.tolist() == [2, 2, 2]
