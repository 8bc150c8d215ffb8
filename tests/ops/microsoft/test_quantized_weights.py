"""Files that onnxruntime's quantizer of weights writes, and when their weights are unpacked."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.quantization.matmul_nbits_quantizer import (
    DefaultWeightOnlyQuantConfig,
    MatMulNBitsQuantizer,
)

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.graph.rewriting import few_bits
from tests.ops.microsoft.few_bits import normal
from tests.support import onnx_builders as builders
from tests.support.rewrite_cases import without_kernels

INPUTS, HIDDEN, OUTPUTS = 200, 96, 40
X = normal(3, INPUTS, seed=1)


def perceptron() -> onnx.ModelProto:
    """Two layers; the first has a bias, and an input size that is no multiple of a block."""
    node = builders.node
    return builders.model(
        [
            node("MatMul", ["x", "w0"], ["product"], name="first"),
            node("Add", ["product", "b0"], ["sum"], name="bias"),
            node("Relu", ["sum"], ["hidden"], name="activation"),
            node("MatMul", ["hidden", "w1"], ["y"], name="second"),
        ],
        [builders.value("x", ["n", INPUTS])],
        ["y"],
        [
            builders.weight("w0", normal(INPUTS, HIDDEN) / 14),
            builders.weight("b0", normal(HIDDEN)),
            builders.weight("w1", normal(HIDDEN, OUTPUTS) / 10),
        ],
        opset=17,
    )


@cache
def quantized(bits: int, block_size: int, is_symmetric: bool, accuracy: int = 0) -> bytes:
    config = DefaultWeightOnlyQuantConfig(
        block_size, is_symmetric=is_symmetric, bits=bits, accuracy_level=accuracy
    )
    quantizer = MatMulNBitsQuantizer(perceptron(), algo_config=config)
    quantizer.process()
    proto = quantizer.model.model
    assert [node.op_type for node in proto.graph.node].count("MatMulNBits") == 2
    return bytes(proto.SerializeToString())


def expected_from(source: bytes) -> np.ndarray:
    session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    result: Any = session.run(None, {"x": X})[0]
    return np.asarray(result)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("block_size", [16, 32, 128])
@pytest.mark.parametrize("is_symmetric", [False, True])
def test_files_of_the_quantizer(
    xp: Backend, bits: int, block_size: int, is_symmetric: bool
) -> None:
    source = quantized(bits, block_size, is_symmetric)
    actual = sardonyx.load(source, backend=xp)(X)
    np.testing.assert_allclose(np.asarray(actual), expected_from(source), rtol=1e-4, atol=1e-4)


def test_files_that_allow_activations_of_8_bits() -> None:
    # onnxruntime then quantizes the activations too, and differs by as much.
    source = quantized(4, 32, True, accuracy=4)
    actual, expected = sardonyx.load(source, backend=HOST)(X), expected_from(source)
    assert np.abs(np.asarray(actual) - expected).max() < 0.05 * np.abs(expected).max()


@pytest.mark.parametrize("backend", ["numpy", "jax"])
@pytest.mark.parametrize("is_symmetric", [False, True])
def test_files_with_a_quantized_embedding(backend: str, is_symmetric: bool) -> None:
    proto = builders.model(
        [builders.node("Gather", ["table", "tokens"], ["y"], name="embedding")],
        [builders.value("tokens", ["n", "m"], builders.INT64)],
        ["y"],
        [builders.weight("table", normal(20, 70))],
        opset=21,
    )
    config = DefaultWeightOnlyQuantConfig(
        32, is_symmetric=is_symmetric, op_types_to_quantize=("Gather",)
    )
    quantizer = MatMulNBitsQuantizer(proto, algo_config=config)
    quantizer.process()
    (node,) = quantizer.model.model.graph.node
    assert node.op_type == "GatherBlockQuantized"
    source, tokens = quantizer.model.model.SerializeToString(), np.array([[0, 19], [-1, 7]])
    session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    actual = sardonyx.load(source, backend=backend)(tokens)
    np.testing.assert_array_equal(np.asarray(actual), session.run(None, {"tokens": tokens})[0])


def steps_at_a_call(xp: Backend, source: bytes, **options: Any) -> list[str]:
    program = sardonyx.load(source, backend=without_kernels(xp), **options).trace(X)
    segments = (stage.segment for stage in program.stages if stage.segment is not None)
    return [step.title.rpartition("::")[2] for segment in segments for step in segment.steps]


def test_weights_are_unpacked_once(xp: Backend) -> None:
    source = quantized(4, 32, False)
    assert steps_at_a_call(xp, source) == ["MatMul", "Add", "Relu", "MatMul"]
    plain = ["MatMulNBits", "Add", "Relu", "MatMulNBits"]
    assert steps_at_a_call(xp, source, rewrites=False) == plain


def test_weights_that_would_fill_the_memory_stay_packed(
    xp: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = quantized(4, 32, True)
    monkeypatch.setattr(few_bits, "memory_limit", lambda: 2**18)
    assert "MatMulNBits" not in steps_at_a_call(xp, source)
    monkeypatch.setattr(few_bits, "memory_limit", lambda: 2**17)
    plain = ["MatMulNBits", "Add", "Relu", "MatMulNBits"]
    assert steps_at_a_call(xp, source) == plain


def test_a_replaced_weight_is_unpacked_again(xp: Backend) -> None:
    source = quantized(8, 32, True)
    model = sardonyx.load(source, backend=xp)
    before = np.asarray(model(X))
    (name,) = (name for name in model.params if name.startswith("w1") and "scale" in name)
    model.params[name] = 2 * model.params.host(name)
    np.testing.assert_allclose(np.asarray(model(X)), 2 * before, rtol=1e-5, atol=1e-5)
