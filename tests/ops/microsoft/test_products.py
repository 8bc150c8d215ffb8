from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.ops import OPS
from sardonyx.ops.microsoft.products import FusedMatMulActivation, GemmFastGelu
from tests.ops.oracle import onnxruntime_run, run

DOMAIN = "com.microsoft"


def drawn(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def assert_is_onnxruntime(xp: Backend, name: str, *inputs: np.ndarray, **attributes: Any) -> None:
    expected = onnxruntime_run(name, *inputs, opset=1, domain=DOMAIN, **attributes)
    actual = run(xp, OPS[DOMAIN, name], *inputs, **attributes)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
    assert actual.dtype == expected.dtype


FACTORS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((3, 4), (4, 5), {}),
    ((3, 4), (4, 5), {"alpha": 0.125}),
    ((4, 3), (4, 5), {"transA": 1}),
    ((3, 4), (5, 4), {"transB": 1, "alpha": -2.0}),
    ((4, 3), (5, 4), {"transA": 1, "transB": 1}),
    ((2, 1, 3, 4), (6, 5, 4), {"transB": 1}),
    ((4,), (4, 5), {"transA": 1}),
    ((2, 3, 4), (4,), {"transB": 1, "alpha": 3.0}),
    ((4,), (4,), {}),
    ((2, 0, 4), (4, 5), {}),
    ((3, 4), (0, 4), {"transB": 1}),
]
WITH_BATCH: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((3, 2, 4), (2, 4, 5), {"transBatchA": 1}),
    ((4, 2, 3), (2, 4, 5), {"transBatchA": 1, "transA": 1}),
    ((2, 3, 4), (4, 2, 5), {"transBatchB": 1}),
    ((2, 3, 4), (5, 2, 4), {"transBatchB": 1, "transB": 1}),
    ((3, 2, 6, 4), (5, 2, 6, 4), {"transBatchA": 1, "transBatchB": 1, "transB": 1, "alpha": 0.5}),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("a", "b", "attributes"), FACTORS + WITH_BATCH)
def test_FusedMatMul(
    xp: Backend, a: tuple[int, ...], b: tuple[int, ...], attributes: dict[str, Any], dtype: Any
) -> None:
    factors = drawn(*a, dtype=dtype), drawn(*b, dtype=dtype, seed=1)
    assert_is_onnxruntime(xp, "FusedMatMul", *factors, **attributes)


@pytest.mark.parametrize(("a", "b", "attributes"), FACTORS)
def test_TransposeMatMul(
    xp: Backend, a: tuple[int, ...], b: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    assert_is_onnxruntime(xp, "TransposeMatMul", drawn(*a), drawn(*b, seed=1), **attributes)


def test_batches_follow_their_matrices_only_in_equal_ranks(xp: Backend) -> None:
    with pytest.raises(ValueError, match=r"\(3, 4\).*at least three"):
        run(xp, OPS[DOMAIN, "FusedMatMul"], drawn(3, 4), drawn(2, 4, 5), transBatchA=1)


ACTIVATIONS: list[dict[str, Any]] = [
    {},
    {"activation": ""},
    {"activation": "Relu"},
    {"activation": "Tanh"},
    {"activation": "Sigmoid"},
    {"activation": "Softplus"},
    {"activation": "Softsign"},
    {"activation": "LeakyRelu", "activation_alpha": 0.25},
    {"activation": "Elu", "activation_alpha": 0.5},
    {"activation": "Celu", "activation_alpha": 0.5},
    {"activation": "ThresholdedRelu", "activation_alpha": 0.75},
    {"activation": "HardSigmoid", "activation_alpha": 0.3, "activation_beta": 0.4},
]


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
@pytest.mark.parametrize(
    ("c", "product"),
    [
        (None, {"transB": 1, "alpha": 0.5}),
        ((5,), {"transB": 1, "beta": 2.0}),
        ((3, 1), {"transB": 1}),
        ((), {"transB": 1, "alpha": 0.5, "beta": 0.0}),
    ],
)
def test_FusedGemm(
    xp: Backend,
    c: tuple[int, ...] | None,
    product: dict[str, Any],
    activation: dict[str, Any],
) -> None:
    inputs = [drawn(3, 4), drawn(5, 4, seed=1)] + ([] if c is None else [drawn(*c, seed=2)])
    if activation.get("activation"):
        assert_is_onnxruntime(xp, "FusedGemm", *inputs, **activation, **product)
        return
    expected = onnxruntime_run("Gemm", *inputs, opset=13, **product)
    actual = run(xp, OPS[DOMAIN, "FusedGemm"], *inputs, **activation, **product)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_an_unknown_activation_is_named_with_those_that_exist(xp: Backend) -> None:
    with pytest.raises(ValueError, match=r"activation is 'Foo', but must be Celu, .* or Thresh"):
        run(xp, OPS[DOMAIN, "FusedGemm"], drawn(3, 4), drawn(4, 5), activation="Foo")


def test_FusedMatMulActivation_is_a_product_and_then_the_activation(xp: Backend) -> None:
    A, B = drawn(2, 3, 4), drawn(5, 4, seed=1)
    product = 0.5 * A @ B.T
    leaky = {"activation": "LeakyRelu", "activation_alpha": 0.1}
    actual = run(xp, FusedMatMulActivation, A, B, transB=1, alpha=0.5, **leaky)
    np.testing.assert_allclose(actual, np.where(product < 0, 0.1 * product, product), rtol=1e-4)
    softmax = {"activation": "Softmax", "activation_axis": 1}
    actual = run(xp, FusedMatMulActivation, A, B, transB=1, alpha=0.5, **softmax)
    powers = np.exp(product)
    np.testing.assert_allclose(actual, powers / powers.sum(axis=1, keepdims=True), rtol=1e-4)


@pytest.mark.parametrize("has_bias", [False, True])
def test_GemmFastGelu_is_a_product_and_then_FastGelu(xp: Backend, has_bias: bool) -> None:
    X, W, bias = drawn(2, 3, 4), drawn(4, 5, seed=1), drawn(5, seed=2)
    x = X @ W + bias * has_bias
    expected = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    actual = run(xp, GemmFastGelu, X, W, *([bias] if has_bias else []))
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
