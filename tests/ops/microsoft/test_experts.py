from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST
from sardonyx.ops.microsoft.experts import MoE
from tests.ops.microsoft.few_bits import normal
from tests.ops.oracle import onnxruntime_run, run

DOMAIN = "com.microsoft"
EXPERTS, HIDDEN, INNER = 5, 8, 12
INTERLEAVED = {"activation_type": "swiglu", "swiglu_fusion": 1}


def inputs_of(tokens: tuple[int, ...], *, fused: bool = False, gated: bool = False) -> list[Any]:
    wide = 2 * INNER if fused else INNER
    rows = int(np.prod(tokens))
    layers = [
        normal(EXPERTS, wide, HIDDEN),
        normal(EXPERTS, wide),
        normal(EXPERTS, HIDDEN, INNER),
        normal(EXPERTS, HIDDEN),
    ]
    if gated:
        layers += [normal(EXPERTS, INNER, HIDDEN, seed=1), normal(EXPERTS, INNER, seed=1)]
    return [normal(*tokens, HIDDEN), normal(rows, EXPERTS) * 2, *layers]


def require_same(xp: Backend, inputs: list[Any], **attributes: Any) -> None:
    expected = onnxruntime_run("MoE", *inputs, opset=1, domain=DOMAIN, **attributes)
    actual = run(xp, MoE, *inputs, **attributes)
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "k", "normalizes"),
    [("relu", 1, 0), ("gelu", 2, 1), ("silu", 5, 0), ("identity", 2, 0), ("relu", 1, 1)],
)
@pytest.mark.parametrize("tokens", [(1,), (7,), (2, 3)], ids=str)
def test_activations(
    xp: Backend, kind: str, k: int, normalizes: int, tokens: tuple[int, ...]
) -> None:
    attributes = {"activation_type": kind, "k": k, "normalize_routing_weights": normalizes}
    require_same(xp, inputs_of(tokens), **attributes)


@pytest.mark.parametrize("tokens", [(1,), (7,)], ids=str)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"activation_alpha": 1.702, "activation_beta": 1.0},
        {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 0.5},
    ],
)
def test_interleaved_swiglu(xp: Backend, tokens: tuple[int, ...], options: dict[str, Any]) -> None:
    require_same(xp, inputs_of(tokens, fused=True), k=2, **INTERLEAVED, **options)


def test_without_biases(xp: Backend) -> None:
    x, scores, first, _, second, _ = inputs_of((7,))
    require_same(xp, [x, scores, first, None, second], k=2)


def test_swiglu_of_two_layers_in_each_layout(xp: Backend) -> None:
    x, scores, gate, gate_bias, second, bias, linear, linear_bias = inputs_of((7,), gated=True)
    options = {"k": 2, "activation_type": "swiglu", "swiglu_limit": 1.0}
    apart = run(xp, MoE, x, scores, gate, gate_bias, second, bias, linear, linear_bias, **options)
    weights = np.stack([gate, linear], axis=2).reshape(EXPERTS, 2 * INNER, HIDDEN)
    biases = np.stack([gate_bias, linear_bias], axis=2).reshape(EXPERTS, 2 * INNER)
    fused = [x, scores, weights, biases, second, bias]
    actual = run(xp, MoE, *fused, **options, swiglu_fusion=1)
    np.testing.assert_allclose(actual, apart, rtol=1e-5, atol=1e-5)
    expected = onnxruntime_run("MoE", *fused, opset=1, domain=DOMAIN, **options, swiglu_fusion=1)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)
    joined = [np.concatenate([gate, linear], 1), np.concatenate([gate_bias, linear_bias], 1)]
    actual = run(xp, MoE, x, scores, *joined, second, bias, **options, swiglu_fusion=2)
    np.testing.assert_allclose(actual, apart, rtol=1e-5, atol=1e-5)


def test_a_layer_beside_the_first_gates_it(xp: Backend) -> None:
    x, scores, first, bias, second, last, beside, other = inputs_of((4,), gated=True)
    actual = run(
        xp, MoE, x, scores, first, bias, second, last, beside, other, k=5, activation_type="silu"
    )
    inner = np.einsum("th,eih->tei", x, first) + bias
    inner = inner / (1 + np.exp(-inner)) * (np.einsum("th,eih->tei", x, beside) + other)
    each = np.einsum("tei,ehi->teh", inner, second) + last
    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    np.testing.assert_allclose(actual, (shares[..., None] * each).sum(1), rtol=1e-3, atol=1e-3)


def test_the_last_of_equal_experts_comes_first(xp: Backend) -> None:
    inputs = inputs_of((7,))
    inputs[1] = np.zeros_like(inputs[1])
    require_same(xp, inputs, k=2)


def test_experts_that_are_not_chosen_have_no_part(xp: Backend) -> None:
    inputs = inputs_of((7,))
    inputs[1][:, 0] = -100
    inputs[2][0] = np.inf
    require_same(xp, inputs, k=2)


def test_weights_in_the_shapes_of_old_files(xp: Backend) -> None:
    inputs = inputs_of((7,))
    inputs[2] = inputs[2].reshape(EXPERTS, HIDDEN, INNER)
    inputs[4] = inputs[4].reshape(EXPERTS, INNER, HIDDEN)
    require_same(xp, inputs, k=2)


def test_no_tokens(xp: Backend) -> None:
    actual = run(xp, MoE, *inputs_of((0,)), k=2)
    assert actual.shape == (0, HIDDEN)


def sparse_mixer(scores: np.ndarray) -> np.ndarray:
    """The weights of all experts for one token: two softmaxes choose one expert each."""
    weights, left = np.zeros_like(scores), scores.copy()
    for _ in range(2):
        best = int(np.argmax(left))
        distance = (left[best] - scores) / np.maximum(np.abs(scores), left[best])
        shares = np.where(distance <= 0.02, np.exp(left - left[best]), 0)
        weights[best] = 1 / shares.sum()
        left[best] = -np.inf
    return weights


def test_the_sparse_mixer(xp: Backend) -> None:
    inputs = inputs_of((30,))
    inputs[1] = 1 + 0.02 * normal(30, EXPERTS)
    actual = run(xp, MoE, *inputs, k=2, use_sparse_mixer=1, activation_type="identity")
    x, scores, first, bias, second, last = (each.astype(np.float64) for each in inputs)
    inner = np.einsum("th,eih->tei", x, first) + bias
    each = np.einsum("tei,ehi->teh", inner, second) + last
    weights = np.stack([sparse_mixer(row) for row in scores])
    assert len(np.unique(weights.round(3))) > 10
    expected = (weights[..., None] * each).sum(1)
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("backend", [HOST, JaxBackend()], ids=lambda backend: backend.name)
def test_halves(backend: Backend) -> None:
    inputs = inputs_of((7,))
    expected = run(backend, MoE, *inputs, k=2)
    actual = run(backend, MoE, *(each.astype(np.float16) for each in inputs), k=2)
    assert actual.dtype == np.float16
    assert np.abs(actual - expected).max() < 0.01 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("place", "value", "attributes", "message"),
    [
        (0, np.zeros(8, np.float32), {}, "input has shape"),
        (1, np.zeros((6, 5), np.float32), {}, "router_probs has shape"),
        (1, np.zeros(7, np.float32), {}, "router_probs has shape"),
        (2, np.zeros((5, 11, 8), np.float32), {}, "fc1_experts_weights has shape"),
        (3, np.zeros((5, 11), np.float32), {}, "fc1_experts_bias has shape"),
        (None, None, {"k": 6}, "k is 6"),
        (None, None, {"k": 1, "use_sparse_mixer": 1}, "k is 1"),
        (None, None, {"activation_type": "tanh"}, "activation_type is 'tanh'"),
        (None, None, {"activation_type": "swiglu"}, "needs the input fc3"),
    ],
    ids=str,
)
def test_bad_inputs_are_refused(
    place: int | None, value: Any, attributes: dict[str, Any], message: str
) -> None:
    inputs = inputs_of((7,))
    if place is not None:
        inputs[place] = value
    with pytest.raises(ValueError, match=message):
        run(HOST, MoE, *inputs, **{"k": 2} | attributes)
