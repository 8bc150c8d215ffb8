"""Nodes that onnxruntime fused: the steps into which they are divided, and their results."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import NodeProto, helper, numpy_helper

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.graph.standard.types import number_of
from tests.support.rewrite_cases import PlainJax, without_kernels, working


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).normal(0, 0.5, shape).astype(np.float32)


def node(op: str, inputs: str, **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs.split(), ["y"], domain="com.microsoft", **attributes)


def one_node(one: NodeProto, x: np.ndarray, weights: dict[str, np.ndarray]) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info("x", number_of(x.dtype), x.shape)]
    initializers = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    outputs = [onnx.ValueInfoProto(name="y")]
    graph = helper.make_graph([one], "g", inputs, outputs, initializers)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


IMAGE, W, B = drawn(2, 4, 6, 5), drawn(4, 4, 3, 3), drawn(4)
SCALE = {"s": np.asarray(np.float32(0.1)), "z": np.asarray(np.uint8(9))}
LAYOUT: dict[str, Any] = {"pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}
CASES: dict[str, tuple[NodeProto, np.ndarray, dict[str, np.ndarray], list[str]]] = {
    "product": (node("FusedMatMul", "x b"), drawn(2, 3, 4), {"b": drawn(4, 5)}, ["MatMul"]),
    "transposed weight": (
        node("FusedMatMul", "x b", transB=1, alpha=0.25),
        drawn(2, 3, 4),
        {"b": drawn(5, 4)},
        # The factor goes into the weight.
        ["MatMul"],
    ),
    "transposed input": (
        node("FusedMatMul", "x x", transA=1, alpha=0.25),
        drawn(2, 3, 4),
        {},
        ["Transpose", "MatMul", "Mul"],
    ),
    "vectors": (node("TransposeMatMul", "x x", transA=1, transB=1), drawn(4), {}, ["MatMul"]),
    "batch between the axes of a matrix": (
        node("FusedMatMul", "x b", transBatchA=1),
        drawn(3, 2, 4),
        {"b": drawn(2, 4, 5)},
        ["FusedMatMul"],
    ),
    "gemm": (
        node("FusedGemm", "x b c", transB=1, activation="LeakyRelu", activation_alpha=0.2),
        drawn(3, 4),
        {"b": drawn(5, 4), "c": drawn(5)},
        ["Gemm", "LeakyRelu"],
    ),
    "gemm without a bias": (
        node("FusedGemm", "x b", activation="Tanh"),
        drawn(3, 4),
        {"b": drawn(4, 5)},
        ["Gemm", "Tanh"],
    ),
    "normalization of a sum": (
        node("SkipLayerNormalization", "x s g b b"),
        drawn(2, 3, 4),
        {"s": drawn(3, 4), "g": drawn(4), "b": drawn(4) + 1},
        ["Add", "Add", "LayerNormalization"],
    ),
    "normalization without a shift": (
        node("SkipLayerNormalization", "x x g", epsilon=0.25),
        drawn(2, 3, 4),
        {"g": drawn(4)},
        ["Add", "LayerNormalization"],
    ),
    "activation": (node("Gelu", "x"), drawn(3, 4), {}, ["Gelu"]),
    "bias and activation": (node("BiasGelu", "x b"), drawn(3, 4), {"b": B}, ["Add", "Gelu"]),
    "fast activation": (node("FastGelu", "x"), drawn(3, 4), {}, ["Gelu"]),
    "bias and fast activation": (
        node("FastGelu", "x b"),
        drawn(3, 4),
        {"b": B},
        ["Add", "Gelu"],
    ),
    "quantization": (node("QuantizeLinear", "x s z"), drawn(3, 4), SCALE, ["QuantizeLinear"]),
    "dequantization": (
        node("DequantizeLinear", "x s z", axis=0),
        np.arange(8, dtype=np.int8).reshape(2, 4),
        {"s": np.float32([0.5, 0.25]), "z": np.int8([1, 2])},
        ["DequantizeLinear"],
    ),
    "convolution": (
        node("FusedConv", "x w b", activation="Relu", **LAYOUT),
        IMAGE,
        {"w": W, "b": B},
        ["Conv", "Relu"],
    ),
    "convolution and sum": (
        node("FusedConv", "x w b x", activation="Clip", activation_params=[-0.5, 0.5], **LAYOUT),
        IMAGE,
        {"w": W, "b": B},
        ["Conv", "Add", "Clip"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_steps_of_a_fused_node(case: str, xp: Backend) -> None:
    one, x, weights, titles = CASES[case]
    program = sardonyx.load(one_node(one, x, weights), backend=without_kernels(xp)).trace(x)
    assert working(program) == titles


def test_quantization_of_both_domains_is_one_program(xp: Backend) -> None:
    x = drawn(3, 4)
    standard, fused = (one_node(node("QuantizeLinear", "x s z"), x, SCALE) for _ in range(2))
    standard.graph.node[0].domain = ""
    first, second = (sardonyx.load(each, backend=xp).trace(x) for each in (standard, fused))
    calls = [
        [step.call.function for stage in program.stages for step in stage.segment.steps]
        for program in (first, second)
    ]
    assert calls[0] == calls[1]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_their_results_are_those_of_onnxruntime(case: str, backend: str) -> None:
    one, x, weights, _ = CASES[case]
    model = one_node(one, x, weights)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    y = sardonyx.load(model, backend=backend)(x)
    np.testing.assert_allclose(y, session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-5)


def in_blocks(*, with_relu_between: bool) -> bytes:
    """Two convolutions and a pool, in a file that onnxruntime optimizes for this processor."""
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["a"]),
        helper.make_node("MaxPool", ["a"], ["b"], kernel_shape=[2, 2]),
        helper.make_node("Conv", ["b", "w"], ["c"]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    if with_relu_between:
        nodes[1:2] = [nodes[1], helper.make_node("Relu", ["b"], ["r"])]
        nodes[3].input[0] = "r"
    weights = [numpy_helper.from_array(drawn(*shape), name) for name, shape in FILTERS.items()]
    inputs = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 3, 8, 9])]
    graph = helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name="y")], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


FILTERS = {"v": (32, 3, 3, 3), "w": (64, 32, 3, 3)}


@pytest.mark.parametrize("library", ["numpy", "jax"])
@pytest.mark.parametrize("with_relu_between", [False, True])
def test_blocks_between_convolutions_disappear(
    library: str, with_relu_between: bool, tmp_path: Any
) -> None:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    session = onnxruntime.InferenceSession(
        in_blocks(with_relu_between=with_relu_between), options, ["CPUExecutionProvider"]
    )
    backend = PlainJax() if library == "jax" else library
    model = sardonyx.load(tmp_path / "optimized.onnx", backend=backend)
    x = drawn(2, 3, 8, 9)
    relu = ["InBlocks", "Relu", "WithoutBlocks"] if with_relu_between else []
    # A result keeps its own register, so the last blocks stay.
    last = ["Conv", "Relu", "InBlocks", "WithoutBlocks"]
    assert working(model.trace(x)) == ["Conv", "MaxPool", *relu, *last]
    np.testing.assert_allclose(model(x), session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-4)
