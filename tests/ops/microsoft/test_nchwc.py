"""Files that onnxruntime optimizes for this processor, against the files from before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import NodeProto, helper, numpy_helper
from onnx.helper import make_node as node

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.ops.microsoft import nchwc
from tests.ops.oracle import run


def weight(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).normal(0, 0.3, shape).astype(np.float32)


def conv(source: str, result: str, **attributes: Any) -> NodeProto:
    """A convolution whose weight is called like its result."""
    return node("Conv", [source, f"W{result}"], [result], **attributes)


# Each network from x to y, and the weights of its convolutions and of other nodes.
NETWORKS: dict[str, tuple[list[NodeProto], dict[str, np.ndarray]]] = {
    "few channels": ([conv("x", "y", pads=[1, 1, 1, 1], strides=[2, 2])], {"Wy": (24, 3, 3, 3)}),
    "groups": (
        [conv("x", "a"), conv("a", "b", group=32), conv("b", "y", group=2, dilations=[2, 1])],
        {"Wa": (32, 3, 1, 1), "Wb": (32, 1, 3, 3), "Wy": (64, 16, 2, 3)},
    ),
    "channels that fill no block": (
        [conv("x", "a"), conv("a", "b", group=12), conv("b", "y")],
        {"Wa": (12, 3, 3, 3), "Wb": (12, 1, 3, 3), "Wy": (20, 12, 1, 1)},
    ),
    "bias": (
        [node("Conv", ["x", "Wa", "B"], ["a"]), node("Relu", ["a"], ["y"])],
        {"Wa": (12, 3, 3, 3), "B": (12,)},
    ),
    "activations": (
        [
            conv("x", "a"),
            node("LeakyRelu", ["a"], ["b"], alpha=0.2),
            conv("b", "c"),
            node("HardSigmoid", ["c"], ["d"]),
            conv("d", "e"),
            node("Sigmoid", ["e"], ["f"]),
            node("Mul", ["e", "f"], ["y"]),
        ],
        {"Wa": (16, 3, 3, 3), "Wc": (32, 16, 1, 1), "We": (32, 32, 3, 3)},
    ),
    "residual": (
        [
            conv("x", "a"),
            node("Relu", ["a"], ["b"]),
            conv("b", "c", pads=[1, 1, 1, 1]),
            node("Add", ["c", "b"], ["d"]),
            node("Relu", ["d"], ["y"]),
        ],
        {"Wa": (20, 3, 3, 3), "Wc": (20, 20, 3, 3)},
    ),
    "sum with one element per channel": (
        [
            conv("x", "a"),
            node("GlobalAveragePool", ["a"], ["b"]),
            conv("b", "c"),
            node("Add", ["a", "c"], ["y"]),
        ],
        {"Wa": (32, 3, 3, 3), "Wc": (32, 32, 1, 1)},
    ),
    "pools": (
        [
            conv("x", "a"),
            node("MaxPool", ["a"], ["b"], kernel_shape=[3, 2], pads=[1, 0, 1, 1], ceil_mode=1),
            node("AveragePool", ["b"], ["c"], kernel_shape=[2, 2], pads=[0, 1, 1, 0]),
            node(
                "AveragePool",
                ["c"],
                ["d"],
                kernel_shape=[2, 2],
                pads=[0, 1, 1, 0],
                strides=[2, 1],
                count_include_pad=1,
            ),
            node("Concat", ["d", "d"], ["e"], axis=1),
            node("GlobalMaxPool", ["e"], ["y"]),
        ],
        {"Wa": (32, 3, 3, 3)},
    ),
    "pool alone": (
        [
            node("Concat", ["x"] * 16, ["a"], axis=1),
            node("MaxPool", ["a"], ["y"], kernel_shape=[2, 2], auto_pad="SAME_UPPER"),
        ],
        {},
    ),
    "batch normalization": (
        [
            conv("x", "a"),
            node("GlobalAveragePool", ["a"], ["p"]),
            node("Add", ["a", "p"], ["b"]),
            node("BatchNormalization", ["b", "S", "B", "S", "V"], ["c"]),
            node("Relu", ["c"], ["y"]),
        ],
        {"Wa": (16, 3, 3, 3), "S": (16,), "B": (16,), "V": np.arange(1, 17, dtype=np.float32)},
    ),
    "transposed": (
        [conv("x", "a"), node("Transpose", ["a"], ["y"], perm=[0, 2, 3, 1])],
        {"Wa": (20, 3, 3, 3)},
    ),
}


def resized(**attributes: Any) -> tuple[list[NodeProto], dict[str, np.ndarray]]:
    nodes = [conv("x", "a"), node("Resize", ["a", "", "scales"], ["y"], **attributes)]
    return nodes, {"Wa": (16, 3, 3, 3), "scales": np.array([1, 1, 2, 3], np.float32)}


NETWORKS |= {
    "nearest": resized(coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
    **{
        f"linear, {mode}": resized(mode="linear", coordinate_transformation_mode=mode)
        for mode in ("asymmetric", "align_corners", "half_pixel")
    },
}


def written_by_onnxruntime(
    network: str, sizes: Sequence[int | str], path: Path
) -> tuple[onnx.ModelProto, Callable[[np.ndarray], np.ndarray]]:
    """The optimized file, and a function that runs the file from before."""
    nodes, drawn = NETWORKS[network]
    weights = [
        numpy_helper.from_array(v if isinstance(v, np.ndarray) else weight(*v), name)
        for name, v in drawn.items()
    ]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 3, *sizes])
    graph = helper.make_graph(nodes, "g", [x], [onnx.ValueInfoProto(name="y")], weights)
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(path)
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return onnx.load(path), lambda value: session.run(None, {"x": value})[0]


@pytest.mark.parametrize("backend", ["numpy", "jax"])
@pytest.mark.parametrize("sizes", [(9, 8), ("height", "width")], ids=["sizes", "names"])
@pytest.mark.parametrize("network", NETWORKS)
def test_optimized_files_run(
    network: str, sizes: Sequence[int | str], backend: str, tmp_path: Path
) -> None:
    model, before = written_by_onnxruntime(network, sizes, tmp_path / "optimized.onnx")
    assert "com.microsoft.nchwc" in {one.domain for one in model.graph.node}
    x = np.random.default_rng(0).normal(size=(2, 3, 9, 8)).astype(np.float32)
    y = sardonyx.load(model, backend=backend)(x)
    np.testing.assert_allclose(y, before(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("block", [8, 16])
def test_blocks_are_the_memory_of_another_axis(block: int) -> None:
    x = np.arange(2 * 32 * 3 * 2, dtype=np.float32).reshape(2, 32, 3, 2)
    blocks = HOST.fetch(nchwc.in_blocks(HOST, x, block)).reshape(2, 32 // block, 3, 2, block)
    np.testing.assert_array_equal(blocks[1, 1, 2, 0], x[1, block : 2 * block, 2, 0])
    again = nchwc.without_blocks(HOST, nchwc.in_blocks(HOST, x, block), block)
    np.testing.assert_array_equal(again, x)


def test_channels_last(xp: Backend) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype(np.float32)
    blocks = run(xp, nchwc.ReorderInput, x, channels_last=1)
    y = run(xp, nchwc.ReorderOutput, blocks, channels=5)
    np.testing.assert_array_equal(y, np.moveaxis(x, -1, 1))
    y = run(xp, nchwc.ReorderOutput, blocks, channels=5, channels_last=1)
    np.testing.assert_array_equal(y, x)


def test_blocks_of_another_processor_are_refused(xp: Backend) -> None:
    x = np.zeros((1, nchwc.block_size() + 4, 2, 2), np.float32)
    with pytest.raises(ValueError, match="another processor wrote the file"):
        run(xp, nchwc.GlobalMaxPool, x)
    # The few channels of the result would have filled a single block.
    x = np.zeros((1, 2 * nchwc.block_size(), 2, 2), np.float32)
    with pytest.raises(ValueError, match="another processor wrote the file"):
        run(xp, nchwc.ReorderOutput, x, channels=nchwc.block_size() - 3)
