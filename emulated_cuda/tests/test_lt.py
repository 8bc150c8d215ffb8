"""cuBLASLt, and what cuBLAS itself does during a capture."""

from __future__ import annotations

import ctypes
from ctypes import c_int32, c_int64, c_void_p
from typing import Any

import cupy
import numpy as np
import pytest

from emulated_cuda import counts
from emulated_cuda.tests import lt

TYPES = {"f": lt.F32, "e": lt.F16, "d": lt.F64}


def by_rows(c: Any) -> Any:
    return np.swapaxes(cupy.asnumpy(c), -1, -2)


def gelu(x: Any) -> Any:
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("transpose", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_products(dtype: str, transpose: tuple[int, int]) -> None:
    number = TYPES[dtype]
    compute, scale = (lt.IN_F64, lt.F64) if dtype == "d" else (lt.IN_F32, lt.F32)
    a, left = lt.columns(*((3, 5), (5, 3))[transpose[0]], dtype=dtype)
    b, right = lt.columns(*((5, 4), (4, 5))[transpose[1]], dtype=dtype, seed=1)
    c = cupy.full((4, 3), np.nan, dtype)
    product = lt.Product(3, 4, 5, number, number, compute, scale, transpose, alignment=2)
    assert product.run(a, b, c) == lt.SUCCESS
    left, right = (x.T if t else x for x, t in zip((left, right), transpose, strict=True))
    expected = left.astype("d") @ right.astype("d")
    np.testing.assert_allclose(by_rows(c), expected, rtol=2e-2 if dtype == "e" else 1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("epilogue", "function"),
    [
        (lt.RELU, lambda x, bias: np.maximum(x, 0)),
        (lt.BIAS, lambda x, bias: x + bias),
        (lt.RELU | lt.BIAS, lambda x, bias: np.maximum(x + bias, 0)),
        (lt.GELU, lambda x, bias: gelu(x)),
        (lt.GELU | lt.BIAS, lambda x, bias: gelu(x + bias)),
    ],
)
def test_epilogues_of_stacks(epilogue: int, function: Any) -> None:
    (a, left), (b, right) = lt.columns(2, 3, 5), lt.columns(2, 5, 4, seed=1)
    bias = np.array([1, np.nan, -1], np.float32)
    c = cupy.empty((2, 4, 3), np.float32)
    product = lt.Product(3, 4, 5, epilogue=epilogue, count=2)
    assert product.run(a, b, c, bias=cupy.asarray(bias)) == lt.SUCCESS
    # The rows of a matrix by columns share a bias; NaN stays.
    expected = function(left @ right, bias[:, None])
    np.testing.assert_allclose(by_rows(c), expected, rtol=1e-4, atol=1e-5)


INTEGERS: dict[str, Any] = {
    "type_in": lt.I8,
    "type_out": lt.I32,
    "compute": lt.IN_I32,
    "scale": lt.I32,
}


def test_integers() -> None:
    a, left = lt.columns(8, 4, dtype=np.int8)
    b, right = lt.columns(8, 3, dtype=np.int8, seed=1)
    c = cupy.empty((3, 4), np.int32)
    assert lt.Product(4, 3, 8, transpose=(1, 0), **INTEGERS).run(a, b, c) == lt.SUCCESS
    np.testing.assert_array_equal(by_rows(c), left.T.astype("i") @ right.astype("i"))


@pytest.mark.parametrize(
    "product",
    [
        lt.Product(4, 4, 8, **INTEGERS),
        lt.Product(4, 4, 8, transpose=(1, 1), **INTEGERS),
        lt.Product(6, 4, 8, transpose=(1, 0), **INTEGERS),
        lt.Product(4, 4, 6, transpose=(1, 0), **INTEGERS),
        lt.Product(4, 4, 8, transpose=(1, 0), alignment=2, **INTEGERS),
        lt.Product(4, 4, 8, transpose=(1, 0), epilogue=lt.RELU, **INTEGERS),
        lt.Product(4, 4, 8, type_in=lt.I8, type_out=lt.I32),
        lt.Product(4, 4, 4, type_in=lt.F16, type_out=lt.F64),
        lt.Product(4, 4, 4, compute=lt.IN_F64),
        lt.Product(4, 4, 4, epilogue=lt.RELU | lt.GELU),
        lt.Product(4, 4, 4, lt.F64, lt.F64, lt.IN_F64, lt.F64, epilogue=lt.BIAS),
    ],
    ids=lambda product: f"{product.type_in}-{product.transpose}-{product.epilogue}",
)
def test_what_the_library_refuses(product: lt.Product) -> None:
    assert product.choose()[0] == lt.NOT_SUPPORTED


def test_sizes_that_do_not_fit_are_refused() -> None:
    product = lt.Product(3, 4, 5)
    assert lt.put("MatrixLayout", product.layouts[1], 2, ctypes.c_uint64(6)) == lt.SUCCESS
    assert product.choose()[0] == lt.INVALID_VALUE
    assert lt.put("MatrixLayout", product.layouts[1], 2, c_int32(6)) == lt.INVALID_VALUE


def test_an_operand_that_is_less_aligned_than_promised_is_refused() -> None:
    a, b, c = (cupy.empty(32, np.float32) for _ in range(3))
    product = lt.Product(4, 4, 4, alignment=16)
    assert product.run(a, b, c) == lt.SUCCESS
    assert product.run(a[1:], b, c) == lt.INVALID_VALUE


def test_a_bias_needs_an_address() -> None:
    a, b, c = (cupy.empty(16, np.float32) for _ in range(3))
    assert lt.Product(4, 4, 4, epilogue=lt.BIAS).run(a, b, c) == lt.INVALID_VALUE


def test_products_are_captured_and_counted() -> None:
    (a, left), (b, right) = lt.columns(3, 5), lt.columns(5, 4, seed=1)
    c, bias = cupy.zeros((4, 3), np.float32), cupy.ones(3, np.float32)
    product = lt.Product(3, 4, 5, epilogue=lt.BIAS)
    stream = cupy.cuda.Stream(non_blocking=True)
    with counts.counted() as captured:
        stream.begin_capture()
        assert product.run(a, b, c, bias=bias, stream=stream.ptr) == lt.SUCCESS
        graph = stream.end_capture()
    assert captured.library_calls == 0
    # The address belongs to the call, not to the description.
    lt.put("MatmulDesc", product.how, 8, c_int64(0))
    with counts.counted() as launched:
        graph.launch(stream)
    assert (launched.graph_launches, launched.library_calls) == (1, 1)
    np.testing.assert_allclose(by_rows(c), left @ right + 1, rtol=1e-4, atol=1e-5)


# -- cuBLAS ---------------------------------------------------------------------------------------


BLAS = ctypes.CDLL("libcublas.so.13")


def test_a_workspace_has_to_be_aligned() -> None:
    handle, memory = c_void_p(), cupy.empty(1024, np.uint8)
    assert BLAS.cublasCreate_v2(ctypes.byref(handle)) == lt.SUCCESS
    for offset, status in ((0, lt.SUCCESS), (128, lt.INVALID_VALUE)):
        place = c_void_p(memory.data.ptr + offset)
        assert BLAS.cublasSetWorkspace_v2(handle, place, ctypes.c_size_t(256)) == status
    assert BLAS.cublasDestroy_v2(handle) == lt.SUCCESS


@pytest.mark.parametrize("name", ["cublasCreate_v2", "cublasLtCreate"])
def test_no_handle_is_created_during_a_capture(name: str) -> None:
    library = lt.LIBRARY if "Lt" in name else BLAS
    stream, handle = cupy.cuda.Stream(non_blocking=True), c_void_p()
    stream.begin_capture(cupy.cuda.runtime.streamCaptureModeGlobal)
    assert getattr(library, name)(ctypes.byref(handle)) == 3
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="Invalidated"):
        stream.end_capture()


def test_cublas_finds_the_functions_of_cublaslt() -> None:
    assert BLAS.cublasLtMatmul


def test_the_version_is_that_of_cublas() -> None:
    lt.LIBRARY.cublasLtGetVersion.restype = ctypes.c_size_t
    version = lt.LIBRARY.cublasLtGetVersion()
    assert version == cupy.cuda.cublas.getVersion(cupy.cuda.device.get_cublas_handle())
