"""Products with weights of 4 bits in the formats that belong to one library each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as onnxruntime_errors

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST
from sardonyx.ops.microsoft.matmul_bnb4 import MatMulBnb4
from sardonyx.ops.microsoft.matmul_fpq4 import MatMulFpQ4
from tests.ops.microsoft.few_bits import normal, numbers, scales
from tests.ops.oracle import onnxruntime_run, run
from tests.support import onnx_builders as builders

DOMAIN = "com.microsoft"


def bnb4(K: int, N: int, block_size: int) -> list[np.ndarray]:
    count = N * K
    return [numbers(8, -(-count // 2)), scales(-(-count // block_size))]


@pytest.mark.parametrize("quant_type", [0, 1])
@pytest.mark.parametrize(
    ("K", "N", "block_size"), [(32, 8, 16), (7, 5, 16), (64, 3, 128), (50, 9, 32)]
)
def test_bnb4(xp: Backend, quant_type: int, K: int, N: int, block_size: int) -> None:
    inputs = [normal(2, 3, K), *bnb4(K, N, block_size)]
    attributes = {"K": K, "N": N, "block_size": block_size, "quant_type": quant_type}
    expected = onnxruntime_run("MatMulBnb4", *inputs, opset=1, domain=DOMAIN, **attributes)
    actual = run(xp, MatMulBnb4, *inputs, **attributes)
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_bnb4_without_transposition(xp: Backend) -> None:
    # onnxruntime gives the result the right shape, but transposes all the same.
    weights, A = bnb4(32, 8, 16), normal(3, 8)
    attributes = {"K": 32, "N": 8, "block_size": 16, "quant_type": 0}
    transposed = run(xp, MatMulBnb4, np.eye(32, dtype=np.float32), *weights, **attributes)
    actual = run(xp, MatMulBnb4, A, *weights, **attributes, transB=0)
    np.testing.assert_allclose(actual, A @ transposed.T, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("backend", [HOST, JaxBackend()], ids=lambda backend: backend.name)
def test_bnb4_of_halves(backend: Backend) -> None:
    B, absmax = bnb4(32, 8, 16)
    A, attributes = normal(3, 32), {"K": 32, "N": 8, "block_size": 16, "quant_type": 1}
    halves = [A.astype(np.float16), B, absmax.astype(np.float16)]
    expected = run(backend, MatMulBnb4, A, B, absmax, **attributes)
    actual = run(backend, MatMulBnb4, *halves, **attributes)
    assert actual.dtype == np.float16
    np.testing.assert_allclose(actual, expected, rtol=1e-2, atol=1e-2)


def blocks_of_fpq4(K: int, N: int, kind: int) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of a weight, and its values."""
    size = 64 if kind == 2 else 32
    blocks = -(-K // size)
    table, scale = numbers(4, N, blocks, size), scales(N, blocks)
    zero = numbers(4, N, blocks, seed=1) if kind == 1 else np.full((N, blocks), 8, np.uint8)
    halves = table.reshape(N, blocks, -1, 2, 16)
    data = (halves[..., 0, :] | halves[..., 1, :] << 4).reshape(N, blocks, -1)
    head = [scale[..., None].view(np.uint8), zero[..., None]][: 2 if kind == 1 else 1]
    values = (table.astype(np.float32) - zero[..., None]) * scale[..., None]
    return np.concatenate([*head, data], axis=-1).reshape(-1), values.reshape(N, -1)[:, :K].T


@pytest.mark.parametrize("kind", [0, 1, 2])
@pytest.mark.parametrize(("K", "N"), [(32, 4), (96, 5), (70, 3)])
def test_fpq4(xp: Backend, kind: int, K: int, N: int) -> None:
    B, weight = blocks_of_fpq4(K, N, kind)
    A, shape = normal(2, 3, K), np.array([K, N])
    actual = run(xp, MatMulFpQ4, A, B, blk_quant_type=kind, B_shape=(K, N))
    np.testing.assert_allclose(actual, A @ weight, rtol=1e-4, atol=1e-4)
    if kind != 2:  # onnxruntime reads 2 as 1.
        try:
            expected = onnxruntime_run(
                "MatMulFpQ4", A, B, shape, opset=1, domain=DOMAIN, blk_quant_type=kind
            )
        except onnxruntime_errors.Fail as error:
            if "not yet supported on this hardware platform" not in str(error):
                raise
            pytest.skip("onnxruntime has MatMulFpQ4 on processors with AVX512 alone")
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


def test_weights_are_unpacked_once(xp: Backend) -> None:
    B, absmax = bnb4(64, 96, 32)
    blob, _ = blocks_of_fpq4(96, 40, 1)
    options: dict[str, Any] = {"K": 64, "N": 96, "block_size": 32, "quant_type": 1}
    proto = builders.model(
        [
            builders.node("MatMulBnb4", ["x", "B", "absmax"], ["h"], domain=DOMAIN, **options),
            builders.node("MatMulFpQ4", ["h", "blob", "shape"], ["y"], domain=DOMAIN),
        ],
        [builders.value("x", ["n", 64])],
        ["y"],
        [
            builders.weight("B", B),
            builders.weight("absmax", absmax),
            builders.weight("blob", blob),
            builders.weight("shape", np.array([96, 40])),
        ],
        com_microsoft=1,
    )
    x = normal(3, 64)
    program = sardonyx.load(proto, backend=xp).trace(x)
    text = str(program)
    assert "MatMulBnb4" not in text
    assert "MatMulFpQ4" not in text
    actual = sardonyx.load(proto, backend=xp)(x)
    expected = sardonyx.load(proto, backend=xp, rewrites=False)(x)
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("inputs", "attributes", "message"),
    [
        ((np.zeros(15, np.uint8), scales(2)), {}, "B has shape"),
        ((np.zeros(16, np.uint8), scales(3)), {}, "absmax has shape"),
        ((np.zeros(16, np.int8), scales(2)), {}, "B has type int8"),
        ((np.zeros(16, np.uint8), scales(2)), {"quant_type": 2}, "quant_type is 2"),
        ((np.zeros(16, np.uint8), scales(2)), {"block_size": 20}, "block_size is 20"),
    ],
    ids=str,
)
def test_bad_inputs_are_refused(
    inputs: tuple[np.ndarray, ...], attributes: dict[str, int], message: str
) -> None:
    options = {"K": 8, "N": 4, "block_size": 16, "quant_type": 0} | attributes
    with pytest.raises(ValueError, match=message):
        run(HOST, MatMulBnb4, normal(2, 8), *inputs, **options)


@pytest.mark.parametrize(
    ("B_shape", "kind", "message"),
    [((32, 5), 1, "B has shape"), ((32,), 1, "two sizes"), ((32, 4), 3, "blk_quant_type is 3")],
)
def test_bad_blocks_are_refused(B_shape: tuple[int, ...], kind: int, message: str) -> None:
    B, _ = blocks_of_fpq4(32, 4, 1)
    with pytest.raises(ValueError, match=message):
        run(HOST, MatMulFpQ4, normal(2, 32), B, B_shape=B_shape, blk_quant_type=kind)
