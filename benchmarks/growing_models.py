"""Models of any size, with inputs and results: chains, trees, layers, weights, loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

WIDTH = 16
FLOAT, INT64, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Sized:
    """A model of some size, with the inputs of a call and its first result."""

    model: bytes | str
    feeds: Mapping[str, Array]
    expected: Callable[[], Array]
    # The inputs of further calls, each of another size.
    more: Callable[[], Iterator[Mapping[str, Array]]] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


def chain(size: int, folder: Path) -> Sized:
    """Elementwise nodes, one after the other."""
    x, c = _input(), np.full((WIDTH, WIDTH), 0.5, np.float32)
    functions: dict[str, Callable[[Array], Array]] = {
        "Add": lambda v: v + c,
        "Tanh": np.tanh,
        "Mul": lambda v: v * c,
        "Relu": lambda v: np.maximum(v, 0),
    }
    ops = [[*functions][i % 4] for i in range(size)]
    names = ["x", *(f"v{i}" for i in range(size))]
    nodes = [
        helper.make_node(
            op, [names[i], "c"] if op in ("Add", "Mul") else [names[i]], [names[i + 1]]
        )
        for i, op in enumerate(ops)
    ]

    def expected() -> Array:
        v = x
        for op in ops:
            v = functions[op](v)
        return v

    return Sized(_bytes(nodes, ["x"], names[-1], {"c": c}), {"x": x}, expected)


def tree(size: int, folder: Path) -> Sized:
    """Sines of one input, added in pairs until one value is left."""
    x, leaves = _input(), (size + 1) // 2
    nodes = [helper.make_node("Sin" if i % 2 else "Tanh", ["x"], [f"v{i}"]) for i in range(leaves)]
    level = [f"v{i}" for i in range(leaves)]
    while len(level) > 1:
        sums = [f"v{len(nodes) + i}" for i in range(len(level) // 2)]
        pairs = zip(level[::2], level[1::2], strict=False)
        nodes += [helper.make_node("Mean", pair, [s]) for pair, s in zip(pairs, sums, strict=True)]
        level = sums + level[2 * len(sums) :]

    def expected() -> Array:
        values = [np.sin(x) if i % 2 else np.tanh(x) for i in range(leaves)]
        while len(values) > 1:
            means = [(a + b) / 2 for a, b in zip(values[::2], values[1::2], strict=False)]
            values = means + values[2 * len(means) :]
        return values[0]

    return Sized(_bytes(nodes, ["x"], level[0], {}), {"x": x}, expected)


def layers(size: int, folder: Path) -> Sized:
    """Residual layers of five nodes, each with another weight."""
    rng, x = np.random.default_rng(1), _input()
    weights = rng.normal(size=(size // 5, WIDTH, WIDTH)).astype(np.float32) / WIDTH
    nodes, last = [], "x"
    for i in range(len(weights)):
        nodes += [
            helper.make_node("MatMul", [last, f"w{i}"], [f"product{i}"]),
            helper.make_node("Tanh", [f"product{i}"], [f"inner{i}"]),
            helper.make_node("Mul", [f"inner{i}", "half"], [f"scaled{i}"]),
            helper.make_node("Add", [last, f"scaled{i}"], [f"sum{i}"]),
            helper.make_node("Tanh", [f"sum{i}"], [f"layer{i}"]),
        ]
        last = f"layer{i}"

    def expected() -> Array:
        v = x
        for weight in weights:
            v = np.tanh(v + np.tanh(v @ weight) * np.float32(0.5))
        return v

    named = {f"w{i}": weight for i, weight in enumerate(weights)}
    return Sized(_bytes(nodes, ["x"], last, {**named, "half": np.float32(0.5)}), {"x": x}, expected)


def inputs(size: int, folder: Path) -> Sized:
    """The mean of many inputs, and an Add for each of them."""
    feeds = {f"x{i}": _input() * np.float32(1 / size) for i in range(size)}
    nodes, last = [], "zero"
    for i in range(size):
        nodes.append(helper.make_node("Add", [last, f"x{i}"], [f"v{i}"]))
        last = f"v{i}"
    content = _bytes(nodes, [*feeds], last, {"zero": np.zeros((WIDTH, WIDTH), np.float32)})
    return Sized(content, feeds, lambda: np.sum([*feeds.values()], axis=0))


def weights(size: int, folder: Path) -> Sized:
    """Rows of tables of 10 MB in a sparse file of `size` megabytes beside the model."""
    rows, table = 2_500, (2_500, 1_000)
    count = max(1, size // 10)
    with (folder / "weights").open("wb") as file:
        file.truncate(count * rows * 4_000)
    tensors, nodes = [], []
    for i in range(count):
        tensor = onnx.TensorProto(name=f"w{i}", data_type=FLOAT, dims=table)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", "weights"), ("offset", i * rows * 4_000)):
            tensor.external_data.add(key=key, value=str(value))
        tensors.append(tensor)
        nodes.append(helper.make_node("Gather", [f"w{i}", "x"], [f"rows{i}"]))
    nodes.append(helper.make_node("Sum", [f"rows{i}" for i in range(count)], ["y"]))
    graph = helper.make_graph(nodes, "weights", [_info("x", INT64, [2])], [_info("y")], tensors)
    path = folder / "model.onnx"
    path.write_bytes(_model(graph).SerializeToString())
    feeds = {"x": np.array([0, rows - 1])}
    return Sized(str(path), feeds, lambda: np.zeros((2, 1_000), np.float32))


def loop(size: int, folder: Path) -> Sized:
    """A Loop of `size` iterations, which counts them."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["before", "one"], ["after"]),
            helper.make_node("Identity", ["condition"], ["goes_on"]),
        ],
        "body",
        [_info("i", INT64, []), _info("condition", BOOL, []), _info("before", INT64, [1])],
        [_info("goes_on", BOOL, []), _info("after", INT64, [1])],
    )
    node = helper.make_node("Loop", ["x", "", "start"], ["y"], body=body)
    initial = {"one": np.array([1]), "start": np.array([0])}
    tensors = [numpy_helper.from_array(value, name) for name, value in initial.items()]
    graph = helper.make_graph([node], "loop", [_info("x", INT64, [])], [_info("y", INT64)], tensors)
    feeds = {"x": np.array(size)}
    return Sized(_model(graph).SerializeToString(), feeds, lambda: np.array([size]))


def signatures(size: int, folder: Path) -> Sized:
    """Calls of `size` lengths, of which the model remembers 64."""

    def more() -> Iterator[Mapping[str, Array]]:
        return ({"x": np.ones(length, np.float32)} for length in range(1, size + 1))

    graph = helper.make_graph(
        [helper.make_node("Sin", ["x"], ["a"]), helper.make_node("ReduceSum", ["a"], ["y"])],
        "signatures",
        [_info("x", FLOAT, ["n"])],
        [_info("y")],
    )
    feeds = {"x": np.ones(3, np.float32)}
    options = {"max_signatures": 64}
    content = _model(graph).SerializeToString()
    return Sized(content, feeds, lambda: np.sin(feeds["x"]).sum(keepdims=True), more, options)


CASES: Mapping[str, Callable[[int, Path], Sized]] = {
    "chain": chain,
    "tree": tree,
    "layers": layers,
    "inputs": inputs,
    "weights": weights,
    "loop": loop,
    "signatures": signatures,
}


def _input() -> Array:
    return np.random.default_rng(0).normal(size=(WIDTH, WIDTH)).astype(np.float32)


def _info(name: str, kind: int = FLOAT, shape: Sequence[int | str] | None = None) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def _bytes(
    nodes: Sequence[Any], inputs: Sequence[str], output: str, initial: Mapping[str, Any]
) -> bytes:
    square = [_info(name, FLOAT, [WIDTH, WIDTH]) for name in inputs]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in initial.items()]
    graph = helper.make_graph(nodes, "growth", square, [_info(output)], tensors)
    return bytes(_model(graph).SerializeToString())


def _model(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
