from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST
from sardonyx.ops import OPS
from sardonyx.ops.definition import Op
from tests.ops.oracle import assert_same, onnxruntime_run, run

DOMAIN = "com.microsoft"
WITH_NARROW = pytest.mark.parametrize(
    "backend", [HOST, JaxBackend()], ids=lambda backend: backend.name
)


def drawn(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def op_of(name: str) -> Op[Any]:
    return OPS[DOMAIN, name]


# -- a bias ---------------------------------------------------------------------------------------


def test_BiasAdd(xp: Backend) -> None:
    X, bias, skip = drawn(2, 3, 4), drawn(4, seed=1), drawn(2, 3, 4, seed=2)
    assert_same(run(xp, op_of("BiasAdd"), X, bias, skip), X + bias + skip)


@pytest.mark.parametrize("shape", [(2, 3, 8), (0, 8)])
def test_BiasSplitGelu(xp: Backend, shape: tuple[int, ...]) -> None:
    X, bias = drawn(*shape), drawn(8, seed=1)
    left, right = np.split(X + bias, 2, axis=-1)
    expected = left * onnxruntime_run("Gelu", right, opset=1, domain=DOMAIN)
    actual = run(xp, op_of("BiasSplitGelu"), X, bias)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_a_last_axis_without_halves(xp: Backend) -> None:
    with pytest.raises(ValueError, match=r"\(2, 3\), but its last axis must have two halves"):
        run(xp, op_of("BiasSplitGelu"), drawn(2, 3), drawn(3))


@pytest.mark.parametrize(
    ("bias", "axis", "inner"),
    [
        ((2, 1, 1, 5), 3, 1),
        ((2, 1, 1, 5), -1, 1),
        ((1, 1, 4, 5), 3, 0),
        ((4, 5), 3, 0),
        ((2, 3, 4, 5), 3, 0),
        ((1, 1, 4, 5), 2, 0),
        ((2, 1, 4, 5), 2, 1),
        ((1, 1, 1, 5), 3, 1),
    ],
)
def test_BiasSoftmax(xp: Backend, bias: tuple[int, ...], axis: int, inner: int) -> None:
    """Each of these biases broadcasts to the data as NumPy does it."""
    data, added = drawn(2, 3, 4, 5), drawn(*bias, seed=1)
    added.flat[0] = -np.inf
    powers = np.exp((data + added).astype(np.float64))
    axes = tuple(range(axis % 4, 4))
    expected = (powers / powers.sum(axis=axes, keepdims=True)).astype(np.float32)
    op = op_of("BiasSoftmax")
    actual = run(xp, op, data, added, axis=axis, is_inner_broadcast=inner)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-7)
    assert actual.dtype == np.float32


def test_a_bias_with_rows_that_do_not_divide(xp: Backend) -> None:
    with pytest.raises(ValueError, match="rows of 5 numbers, of which as many as divide the 6"):
        run(xp, op_of("BiasSoftmax"), drawn(6, 5), drawn(4, 5), is_inner_broadcast=1)


# -- a gate ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(2, 3, 4), (4,), (0, 4)])
def test_GatedAdd(xp: Backend, shape: tuple[int, ...]) -> None:
    inputs = drawn(*shape), drawn(*shape, seed=1), drawn(*shape[:-1], 1, seed=2)
    expected = onnxruntime_run("GatedAdd", *inputs, opset=1, domain=DOMAIN)
    assert_same(run(xp, op_of("GatedAdd"), *inputs), expected)


@pytest.mark.parametrize("has_scale", [False, True])
def test_ScaledSiLU(xp: Backend, has_scale: bool) -> None:
    inputs = [drawn(2, 3, 4), *([drawn(seed=1)] if has_scale else [])]
    expected = onnxruntime_run("ScaledSiLU", *inputs, opset=1, domain=DOMAIN, alpha=0.25)
    actual = run(xp, op_of("ScaledSiLU"), *inputs, alpha=0.25)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@WITH_NARROW
@pytest.mark.parametrize("name", ["GatedAdd", "ScaledSiLU"])
def test_narrow_floats_are_rounded_at_each_step(backend: Backend, name: str) -> None:
    X, Y, gate = (
        drawn(*s, dtype=np.float16, seed=i) for i, s in enumerate([(9, 33), (9, 33), (9, 1)])
    )
    inputs = [X, Y, gate] if name == "GatedAdd" else [X, drawn()]
    expected = onnxruntime_run(name, *inputs, opset=1, domain=DOMAIN)
    assert_same(run(backend, op_of(name), *inputs), expected, ulps=1)


@WITH_NARROW
def test_ScaledSiLU_of_bfloat16(backend: Backend) -> None:
    bfloat16 = np.dtype(ml_dtypes.bfloat16)
    X = drawn(9, 33).astype(bfloat16)
    z = (X.astype(np.float32) * 0.3).astype(bfloat16)
    sigmoid = (1 / (1 + np.exp(-z.astype(np.float32)))).astype(bfloat16)
    assert_same(run(backend, op_of("ScaledSiLU"), X, alpha=0.3), z * sigmoid, ulps=1)


# -- dropout --------------------------------------------------------------------------------------


def called(name: str, *inputs: np.ndarray | None, **attributes: Any) -> tuple[np.ndarray, ...]:
    results: tuple[np.ndarray, ...] = sardonyx.run_op(
        name, *inputs, domain=DOMAIN, outputs=2, **attributes
    )
    return results


RATIO, TRAINING = np.array(0.25, np.float32), np.array(True)


@pytest.mark.parametrize("bias", [(4,), (2, 3, 4)])
@pytest.mark.parametrize("name", ["BiasDropout", "BitmaskBiasDropout"])
def test_nothing_is_dropped_in_inference(name: str, bias: tuple[int, ...]) -> None:
    data, added, residual = drawn(2, 3, 4), drawn(*bias, seed=1), drawn(2, 3, 4, seed=2)
    output, mask = called(name, data, added, residual)
    assert_same(output, data + added + residual)
    assert np.all(mask) if name == "BiasDropout" else mask.tolist() == [2**24 - 1]


@pytest.mark.parametrize("name", ["BiasDropout", "BitmaskBiasDropout"])
def test_elements_of_the_sum_are_dropped_in_training(name: str) -> None:
    data, added, residual = drawn(7, 11), drawn(11, seed=1), drawn(7, 11, seed=2)
    output, mask = called(name, data, added, residual, RATIO, TRAINING, seed=3)
    if name == "BitmaskBiasDropout":
        assert mask.dtype == np.uint32
        mask = np.unpackbits(mask.view(np.uint8), bitorder="little")[:77].reshape(7, 11)
    assert 0.5 < np.mean(mask) < 0.95
    expected = (data + added) * mask / np.float32(0.75) + residual
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [0, 5, 32, 70])
def test_a_bit_per_element(size: int) -> None:
    data = np.abs(drawn(size)) + 1
    output, mask = called("BitmaskDropout", data, RATIO, TRAINING, seed=3)
    assert mask.shape == (-(-size // 32),)
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    np.testing.assert_array_equal(bits[:size], output > 0)
    assert not bits[size:].any()
