"""An encoder layer as quantizers write it: each tensor is quantized and dequantized again."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper


class _Nodes:
    """Nodes and initializers of a graph that is being written."""

    def __init__(self, activations: type[np.integer[Any]], weights: type[np.integer[Any]]) -> None:
        self.activations, self.weights = activations, weights
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self._rng = np.random.default_rng(0)

    def constant(self, value: Any) -> str:
        name = f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"{operator}{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def quantized(self, x: str) -> str:
        zero = _middle(self.activations)
        x = self.add("QuantizeLinear", x, self.constant(np.float32(0.02)), self.constant(zero))
        return self.add("DequantizeLinear", x, self.constant(np.float32(0.02)), self.constant(zero))

    def weight(self, *shape: int) -> str:
        numbers = self._rng.integers(0, 100, shape).astype(self.weights)
        scale, zero = np.float32(0.01), _middle(self.weights)
        return self.add("DequantizeLinear", *map(self.constant, (numbers, scale, zero)))

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        product = self.add("MatMul", self.quantized(x), self.weight(inputs, outputs))
        bias = self.constant(self._rng.standard_normal(outputs).astype(np.float32))
        return self.quantized(self.add("Add", self.quantized(product), bias))

    def normalized(self, x: str, width: int) -> str:
        scale, bias = (np.ones(width, np.float32), np.zeros(width, np.float32))
        return self.add("LayerNormalization", x, self.constant(scale), self.constant(bias))

    def by_head(self, x: str, heads: int, width: int, order: list[int]) -> str:
        shape = self.constant(np.array([0, 0, heads, width // heads]))
        return self.add("Transpose", self.add("Reshape", x, shape), perm=order)

    def attention(self, x: str, heads: int, width: int) -> str:
        orders = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        q, k, v = (
            self.by_head(self.linear(x, width, width), heads, width, order) for order in orders
        )
        scores = self.add("MatMul", self.quantized(q), self.quantized(k))
        scores = self.add("Mul", scores, self.constant(np.float32(0.125)))
        shares = self.add("Softmax", scores)
        read = self.add("MatMul", self.quantized(shares), self.quantized(v))
        read = self.add("Transpose", read, perm=[0, 2, 1, 3])
        return self.add("Reshape", read, self.constant(np.array([0, 0, width])))

    def gelu(self, x: str) -> str:
        inner = self.add("Erf", self.add("Div", x, self.constant(np.float32(2**0.5))))
        inner = self.add("Add", inner, self.constant(np.float32(1)))
        product = self.add("Mul", x, self.quantized(inner))
        return self.quantized(self.add("Mul", product, self.constant(np.float32(0.5))))


def _middle(dtype: type[np.integer[Any]]) -> Any:
    return dtype(0 if dtype is np.int8 else 128)


def encoder(
    shape: tuple[int, int, int],
    *,
    heads: int,
    hidden: int,
    activations: type[np.integer[Any]],
    weights: type[np.integer[Any]],
) -> bytes:
    """The bytes of a model of one layer, for inputs of a shape (batch, length, width)."""
    width = shape[-1]
    layer = _Nodes(activations, weights)
    y = layer.linear(layer.attention("x", heads, width), width, width)
    y = layer.normalized(layer.add("Add", "x", y), width)
    z = layer.linear(layer.gelu(layer.linear(y, width, hidden)), hidden, width)
    z = layer.normalized(layer.add("Add", y, z), width)
    floats = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        layer.nodes,
        "encoder",
        [helper.make_tensor_value_info("x", floats, shape)],
        [helper.make_tensor_value_info(z, floats, shape)],
        layer.initializers,
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return bytes(model.SerializeToString())
