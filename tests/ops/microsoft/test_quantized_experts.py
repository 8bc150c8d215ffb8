from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.ops.microsoft.experts import MoE
from sardonyx.ops.microsoft.quantized_experts import QMoE
from tests.ops.microsoft.few_bits import normal, numbers, packed, scales
from tests.ops.oracle import onnxruntime_run, run
from tests.support import onnx_builders as builders

DOMAIN = "com.microsoft"
EXPERTS, HIDDEN, INNER = 4, 64, 32


@dataclass(frozen=True)
class Packed:
    """A layer of each expert: packed, and the weights that it stands for."""

    weight: np.ndarray
    scales: np.ndarray
    zero_points: np.ndarray | None
    plain: np.ndarray

    @classmethod
    def drawn(cls, outputs: int, inputs: int, bits: int, block_size: int, has_zero: bool) -> Packed:
        table = numbers(bits, EXPERTS, outputs, inputs)
        shape = (EXPERTS, outputs, inputs // block_size) if block_size else (EXPERTS, outputs)
        scale = scales(*shape) / (1 << bits)
        zero = numbers(bits, *shape, seed=1) if has_zero else np.full(shape, 1 << (bits - 1))
        spread = [
            np.repeat(each, block_size, axis=2) if block_size else each[..., None]
            for each in (zero.astype(np.float32), scale)
        ]
        zero_points = packed(zero, bits) if has_zero else None
        return cls(packed(table, bits), scale, zero_points, (table - spread[0]) * spread[1])


def case(
    tokens: int, bits: int, block_size: int, has_zero: bool, *, fused: bool = False
) -> tuple[list[Any], list[Any]]:
    """The inputs of QMoE, and those of MoE with plain weights."""
    wide = 2 * INNER if fused else INNER
    first = Packed.drawn(wide, HIDDEN, bits, block_size, has_zero)
    second = Packed.drawn(HIDDEN, INNER, bits, block_size, has_zero)
    biases = normal(EXPERTS, wide), normal(EXPERTS, HIDDEN)
    x, scores = normal(tokens, HIDDEN), normal(tokens, EXPERTS)
    inputs = [x, scores, first.weight, first.scales, biases[0]]
    inputs += [second.weight, second.scales, biases[1], None, None, None]
    inputs += [first.zero_points, second.zero_points]
    return inputs, [x, scores, first.plain, biases[0], second.plain, biases[1]]


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize(("block_size", "tokens"), [(0, 1), (16, 6), (32, 1)])
@pytest.mark.parametrize("has_zero", [False, True])
def test_every_layout(xp: Backend, bits: int, block_size: int, has_zero: bool, tokens: int) -> None:
    inputs, plain = case(tokens, bits, block_size, has_zero)
    options: dict[str, Any] = {"k": 2, "activation_type": "silu"}
    packing = {"expert_weight_bits": bits} | ({"block_size": block_size} if block_size else {})
    actual = run(xp, QMoE, *inputs, **options, **packing)
    expected = run(HOST, MoE, *plain, **options, normalize_routing_weights=1)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)
    theirs = onnxruntime_run("QMoE", *inputs, opset=1, domain=DOMAIN, **options, **packing)
    assert (actual.shape, actual.dtype) == (theirs.shape, theirs.dtype)
    np.testing.assert_allclose(actual, theirs, rtol=1e-3, atol=1e-3)


def test_swiglu(xp: Backend) -> None:
    inputs, _ = case(5, 4, 32, has_zero=True, fused=True)
    options: dict[str, Any] = {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1}
    options |= {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 7.0}
    actual = run(xp, QMoE, *inputs, **options, block_size=32)
    expected = onnxruntime_run("QMoE", *inputs, opset=1, domain=DOMAIN, **options, block_size=32)
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("normalizes", [0, 1])
def test_weights_apart_from_the_scores(xp: Backend, normalizes: int) -> None:
    inputs, _ = case(5, 4, 32, has_zero=False)
    weights = np.abs(normal(5, EXPERTS, seed=3))
    weights[0] = 0
    inputs += [None, weights]
    options = {"k": 2, "block_size": 32, "normalize_routing_weights": normalizes}
    actual = run(xp, QMoE, *inputs, **options)
    expected = onnxruntime_run("QMoE", *inputs, opset=1, domain=DOMAIN, **options)
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-3)


def test_layers_of_different_bits(xp: Backend) -> None:
    first = Packed.drawn(INNER, HIDDEN, 2, 32, has_zero=False)
    second = Packed.drawn(HIDDEN, INNER, 8, 32, has_zero=True)
    beside = Packed.drawn(INNER, HIDDEN, 2, 32, has_zero=True)
    x, scores = normal(3, HIDDEN), normal(3, EXPERTS)
    inputs: list[Any] = [x, scores]
    inputs += [v for each in (first, second, beside) for v in (each.weight, each.scales, None)]
    inputs += [each.zero_points for each in (first, second, beside)]
    options: dict[str, Any] = {"k": 2, "activation_type": "silu"}
    bits = {"fc2_expert_weight_bits": 8, "expert_weight_bits": 2, "block_size": 32}
    actual = run(xp, QMoE, *inputs, **options, **bits)
    plain = [x, scores, first.plain, None, second.plain, None, beside.plain]
    expected = run(HOST, MoE, *plain, **options, normalize_routing_weights=1)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("has_zero", [False, True])
def test_weights_are_unpacked_once(xp: Backend, has_zero: bool) -> None:
    inputs, _ = case(3, 4, 32, has_zero)
    named = {f"x{i}": each for i, each in enumerate(inputs) if each is not None}
    names = [f"x{i}" if each is not None else "" for i, each in enumerate(inputs)]
    options: dict[str, Any] = {"k": 2, "block_size": 32, "activation_type": "gelu"}
    proto = builders.model(
        [builders.node("QMoE", names, ["y"], domain=DOMAIN, **options)],
        [builders.value("x0", ["n", HIDDEN]), builders.value("x1", ["n", EXPERTS])],
        ["y"],
        [builders.weight(name, each) for name, each in named.items() if name not in ("x0", "x1")],
        com_microsoft=1,
    )
    model = sardonyx.load(proto, backend=xp)
    titles = [
        step.title
        for stage in model.trace(*inputs[:2]).stages
        if stage.segment is not None
        for step in stage.segment.steps
    ]
    assert titles == ["MoE"]
    expected = sardonyx.load(proto, backend=xp, rewrites=False)(*inputs[:2])
    np.testing.assert_allclose(
        np.asarray(model(*inputs[:2])), np.asarray(expected), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(
    ("place", "value", "attributes", "message"),
    [
        (2, np.zeros((4, 32, 33), np.uint8), {}, "scales has shape"),
        (2, np.zeros((4, 32, 32), np.int8), {}, "has type int8"),
        (3, None, {}, "an input of scales"),
        (11, np.zeros((4, 32, 2), np.uint8), {}, "zero_points has shape"),
        (None, None, {"quant_type": "fp4"}, "quant_type is 'fp4'"),
        (None, None, {"weights_prepacked": 1}, "weights_prepacked is 1"),
        (None, None, {"expert_weight_bits": 3}, "bits is 3"),
        (None, None, {"block_size": 24}, "block_size is 24"),
    ],
    ids=str,
)
def test_bad_inputs_are_refused(
    place: int | None, value: Any, attributes: dict[str, Any], message: str
) -> None:
    inputs, _ = case(3, 4, 32, has_zero=True)
    if place is not None:
        inputs[place] = value
    with pytest.raises(ValueError, match=message):
        run(HOST, QMoE, *inputs, **{"k": 2, "block_size": 32} | attributes)
