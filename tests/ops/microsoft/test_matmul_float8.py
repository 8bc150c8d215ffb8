"""Products that onnxruntime has on GPUs only, against their documentation."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx.helper import np_dtype_to_tensor_dtype

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.ops.microsoft.matmul_float8 import (
    GemmFloat8,
    MatMulBlockQuantizedFp4Weight,
    MatMulBlockQuantizedFp8Weight,
)
from sardonyx.ops.microsoft.matmul_nbits import MatMulNBits
from sardonyx.ops.microsoft.matmul_nbits_fused import MatMulNBitsMlp, MatMulNBitsQkv
from tests.ops.microsoft.few_bits import normal, numbers, packed, scales
from tests.ops.oracle import run
from tests.support.onnx_builders import model, node, value
from tests.support.types_present import with_narrow_types

FLOAT8 = np.dtype(ml_dtypes.float8_e4m3fn)
FLOAT4 = np.dtype(ml_dtypes.float4_e2m1fn)
WITH_NARROW = pytest.mark.parametrize("backend", with_narrow_types())


@WITH_NARROW
@pytest.mark.parametrize("activation", [None, "NONE", "RELU", "GELU"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, FLOAT8])
def test_gemm(backend: Backend, activation: str | None, dtype: Any) -> None:
    a, b, c = normal(3, 8).astype(FLOAT8), normal(5, 8).astype(FLOAT8), normal(3, 5)
    factors = [np.array([each], np.float32) for each in (0.5, 2.0, 3.0)]
    options: dict[str, Any] = {} if activation is None else {"activation": activation}
    options |= {"transB": 1, "alpha": 0.5, "beta": 2.0, "dtype": np.dtype(dtype)}
    actual = run(backend, GemmFloat8, a, b, c, *factors, **options)
    y = 0.5 * (a.astype(np.float64) * 0.5) @ (b.astype(np.float64) * 2).T + 2 * c
    if activation == "RELU":
        y = np.maximum(y, 0)
    if activation == "GELU":
        y = y / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3)))
    assert actual.dtype == dtype
    error = 0.07 if dtype == FLOAT8 else 0.01
    np.testing.assert_allclose(actual.astype(np.float64), 3 * y, rtol=error, atol=error)


@pytest.mark.parametrize("to", [np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
def test_the_attribute_says_the_type_of_a_models_result(to: Any) -> None:
    a, number = normal(16, 16).astype(FLOAT8), np_dtype_to_tensor_dtype(np.dtype(to))
    operator = node("GemmFloat8", ["A", "B"], ["Y"], domain="com.microsoft", dtype=number)
    inputs = [value(name, (16, 16), np_dtype_to_tensor_dtype(FLOAT8)) for name in "AB"]
    loaded = sardonyx.load(model([operator], inputs, [value("Y", None, number)], opset=20))
    assert np.asarray(loaded(a, a)).dtype == to


def test_gemm_of_plain_floats(xp: Backend) -> None:
    a, b = normal(8, 3), normal(8, 5)
    actual = run(xp, GemmFloat8, a, b, transA=1)
    np.testing.assert_allclose(actual, a.T @ b, rtol=1e-5, atol=1e-5)


@WITH_NARROW
@pytest.mark.parametrize("is_rounded", [False, True])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_weights_of_8_bits(backend: Backend, is_rounded: bool, dtype: Any) -> None:
    A, B = (normal(2, 3, 40) * 3).astype(dtype), normal(5, 40).astype(FLOAT8)
    b_scale, bias = scales(5, 3), normal(5).astype(dtype)
    a_scale = np.array(0.01, np.float32) if is_rounded else None
    inputs = [A, B, b_scale, a_scale, bias]
    actual = run(backend, MatMulBlockQuantizedFp8Weight, *inputs, block_size=16)
    a = A.astype(np.float32)
    if a_scale is not None:
        a = np.clip(a / a_scale, -448, 448).astype(FLOAT8).astype(np.float32) * a_scale
    weight = B.astype(np.float32) * np.repeat(b_scale, 16, axis=1)[:, :40]
    assert actual.dtype == dtype
    expected = a @ weight.T + bias.astype(np.float32)
    np.testing.assert_allclose(actual.astype(np.float32), expected, rtol=1e-2, atol=1e-2)


@WITH_NARROW
def test_weights_of_4_bits(backend: Backend) -> None:
    A, B = normal(2, 3, 40).astype(np.float16), normal(5, 40).astype(FLOAT4)
    scale, whole = scales(5, 3).astype(FLOAT8), np.array([2.0], np.float32)
    bias = normal(5).astype(np.float16)
    data = packed(B.view(np.uint8), 4)
    inputs = [A, data, scale.view(np.uint8), whole, None, bias]
    actual = run(backend, MatMulBlockQuantizedFp4Weight, *inputs)
    spread = np.repeat(scale.astype(np.float32), 16, axis=1)[:, :40]
    expected = A.astype(np.float32) @ (B.astype(np.float32) * 2 * spread).T + bias
    assert actual.dtype == np.float16
    np.testing.assert_allclose(actual.astype(np.float32), expected, rtol=1e-2, atol=1e-2)


PACKING = {"bits": 4, "block_size": 16}


def layer(outputs: int, seed: int) -> list[np.ndarray]:
    weight = packed(numbers(4, outputs, 3, 16, seed=seed), 4)
    return [weight, scales(outputs, 3, seed=seed), normal(outputs, seed=seed)]


def product(x: np.ndarray, weight: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
    options = PACKING | {"K": 40, "N": len(weight)}
    return np.asarray(run(HOST, MatMulNBits, x, weight, scale, None, None, bias, **options))


def normalized(x: np.ndarray, scale: np.ndarray, epsilon: float) -> np.ndarray:
    each = x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + epsilon) * scale
    return np.asarray(each)


@pytest.mark.parametrize("has_skip", [False, True])
def test_queries_keys_and_values(xp: Backend, has_skip: bool) -> None:
    A, scale = normal(2, 3, 40), normal(40)
    skip = normal(2, 3, 40, seed=1) if has_skip else None
    layers = layer(8, 0), layer(4, 1), layer(4, 2)
    inputs = [A, skip, scale, *(each for one in layers for each in one)]
    options = PACKING | {"K": 40, "Nq": 8, "Nkv": 4}
    *results, total = run(xp, MatMulNBitsQkv, *inputs, **options, epsilon=0.1)
    np.testing.assert_allclose(total, A if skip is None else A + skip, rtol=1e-6)
    x = normalized(total, scale, 0.1)
    for actual, one in zip(results, layers, strict=True):
        np.testing.assert_allclose(actual, product(x, *one), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("has_norm", [False, True])
@pytest.mark.parametrize("has_skip", [False, True])
def test_gated_layers(xp: Backend, has_norm: bool, has_skip: bool) -> None:
    A, scale = normal(2, 3, 40), normal(40) if has_norm else None
    skip = normal(2, 3, 40, seed=1) if has_skip else None
    gate, up = layer(8, 0), layer(8, 1)
    inputs = [A, skip, scale, *gate, *up]
    options: dict[str, Any] = PACKING | {"K": 40, "N": 8, "activation": "silu"}
    if has_skip and not has_norm:
        with pytest.raises(ValueError, match="norm_scale must be one too"):
            run(xp, MatMulNBitsMlp, *inputs, **options)
        return
    actual, total = run(xp, MatMulNBitsMlp, *inputs, **options)
    np.testing.assert_allclose(total, A if skip is None else A + skip, rtol=1e-6)
    x = total if scale is None else normalized(total, scale, 1e-5)
    gated = product(x, *gate)
    expected = gated / (1 + np.exp(-gated)) * product(x, *up)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


def test_bad_inputs_are_refused() -> None:
    B = normal(5, 40).astype(FLOAT8)
    with pytest.raises(ValueError, match="b_scale has shape"):
        run(HOST, MatMulBlockQuantizedFp8Weight, normal(2, 40), B, scales(5, 3))
    with pytest.raises(ValueError, match="activation is 'TANH'"):
        run(HOST, GemmFloat8, normal(2, 4), normal(4, 3), activation="TANH")
    with pytest.raises(ValueError, match="must be a single number"):
        run(HOST, GemmFloat8, normal(2, 4), normal(4, 3), None, normal(2))
