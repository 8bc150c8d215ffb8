"""cuBLASLt on floats of 8 bits."""

from __future__ import annotations

from ctypes import c_int8, c_void_p
from typing import Any

import cupy
import ml_dtypes
import numpy as np
import pytest

from emulated_cuda.tests import lt
from emulated_cuda.tests.faults import lines_of

TYPES = {lt.E4M3: ml_dtypes.float8_e4m3fn, lt.E5M2: ml_dtypes.float8_e5m2}
RESULTS: dict[int, Any] = {lt.F32: np.float32, lt.F16: np.float16, lt.BF16: ml_dtypes.bfloat16}
A_SCALE, B_SCALE, D_SCALE, FAST_SUMS = 17, 18, 20, 25
PAIRS = [(lt.E4M3, lt.E4M3), (lt.E4M3, lt.E5M2), (lt.E5M2, lt.E4M3)]


def float8(type_a: int = lt.E4M3, type_b: int = lt.E4M3, **options: Any) -> lt.Product:
    fixed: dict[str, Any] = {"transpose": (1, 0), "alignment": 16, "type_b": type_b}
    return lt.Product(**{"m": 16, "n": 3, "k": 32, "type_in": type_a, **fixed, **options})


def on_device(x: Any) -> Any:
    return cupy.asarray(x.view(np.uint8))


@pytest.mark.parametrize("to", RESULTS)
@pytest.mark.parametrize("pair", PAIRS)
def test_products_with_scales(pair: tuple[int, int], to: int) -> None:
    draw = np.random.default_rng(0)
    # By rows here, so the left side is transposed already.
    a, b = (draw.normal(size=(n, 32)).astype(TYPES[t]) for n, t in zip((16, 3), pair, strict=True))
    scales = [cupy.asarray(np.float32(value)) for value in (0.25, 3)]
    c = cupy.empty((3, 16), RESULTS[to])
    product = float8(*pair, type_out=to)
    for attribute, scale in zip((A_SCALE, B_SCALE), scales, strict=True):
        assert lt.put("MatmulDesc", product.how, attribute, c_void_p(scale.data.ptr)) == 0
    assert lt.put("MatmulDesc", product.how, FAST_SUMS, c_int8(0)) == lt.SUCCESS
    assert product.run(on_device(a), on_device(b), c) == lt.SUCCESS
    expected = (b.astype("d") @ a.astype("d").T) * 0.75
    unit = float(ml_dtypes.finfo(RESULTS[to]).eps)
    found = cupy.asnumpy(c).astype("d")
    np.testing.assert_allclose(found, expected, rtol=unit, atol=1e-5)


@pytest.mark.parametrize("number", TYPES)
def test_every_number(number: int) -> None:
    every = np.arange(256, dtype=np.uint8).view(TYPES[number])
    a = np.zeros((256, 16), TYPES[number])
    a[:, 0] = every
    b = np.zeros((1, 16), ml_dtypes.float8_e4m3fn)
    b[0, 0] = 1
    c = cupy.empty((1, 256), np.float32)
    product = float8(number, m=256, n=1, k=16)
    assert product.run(on_device(a), on_device(b), c) == lt.SUCCESS
    np.testing.assert_array_equal(cupy.asnumpy(c)[0], every.astype(np.float32))


@pytest.mark.parametrize(
    "product",
    [
        float8(lt.E5M2, lt.E5M2),
        float8(lt.E4M3, lt.F16),
        float8(transpose=(0, 0)),
        float8(transpose=(1, 1), n=16),
        float8(m=8),
        float8(k=24),
        float8(alignment=8),
        float8(epilogue=lt.RELU),
        float8(compute=lt.IN_F64),
        float8(type_out=lt.F64),
        float8(type_out=lt.E4M3),
    ],
    ids=lambda p: f"{p.type_in}-{p.type_b}-{p.transpose}-{p.m}-{p.k}-{p.alignment}-{p.type_out}",
)
def test_what_the_library_refuses(product: lt.Product) -> None:
    assert product.choose()[0] == lt.NOT_SUPPORTED


def test_scales_belong_to_float8() -> None:
    for product, attribute in ((lt.Product(4, 4, 4), A_SCALE), (float8(), D_SCALE)):
        assert lt.put("MatmulDesc", product.how, attribute, c_void_p(256)) == lt.SUCCESS
        assert product.choose()[0] == lt.INVALID_VALUE


OLDER = """
from emulated_cuda.tests import lt
from emulated_cuda.tests.test_lt_float8 import float8
import cupy
print(cupy.cuda.Device().compute_capability, float8().choose()[0])
"""


def test_older_devices_have_no_float8() -> None:
    assert lines_of(OLDER, EMULATED_CUDA_CAPABILITY=80) == [f"80 {lt.NOT_SUPPORTED}"]
    assert lines_of(OLDER, EMULATED_CUDA_CAPABILITY=89) == ["89 0"]
