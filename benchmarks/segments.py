"""Programs in segments: a detector with NonMaxSuppression, and a greedy decoder with a Loop.

Run it: `python -m benchmarks.segments`. Results are compared with onnxruntime's before anything is
timed; then the number of segments, of round trips to the host, and the time of a call are printed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import sardonyx

ROUNDS = 30
FLOAT, INT64, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL
RNG = np.random.default_rng(0)


def detector() -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Boxes and scores by convolutions, the best boxes of them, and their scores."""
    node, anchors = helper.make_node, 16 * 16
    nodes = [
        node("Conv", ["image", "stem"], ["a"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Relu", ["a"], ["b"]),
        node("Conv", ["b", "body"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["features"]),
        node("Conv", ["features", "to_boxes"], ["d"]),
        node("Reshape", ["d", "boxes_shape"], ["e"]),
        node("Transpose", ["e"], ["moved"], perm=[0, 2, 1]),
        node("Add", ["moved", "centres"], ["boxes"]),
        node("Conv", ["features", "to_scores"], ["f"]),
        node("Reshape", ["f", "scores_shape"], ["g"]),
        node("Sigmoid", ["g"], ["scores"]),
        node(
            "NonMaxSuppression",
            ["boxes", "scores", "most", "overlap", "least"],
            ["chosen"],
            center_point_box=1,
        ),
        node("Gather", ["chosen", "last"], ["places"], axis=1),
        node("Gather", ["boxes", "places"], ["kept"], axis=1),
        node("Mul", ["kept", "size"], ["found"]),
    ]
    rows, columns = np.meshgrid(np.arange(16) / 16, np.arange(16) / 16, indexing="ij")
    sides = np.full(anchors, 0.2)
    centres = np.stack([columns.ravel(), rows.ravel(), sides, sides], axis=1)
    weights = {
        "stem": _normal(16, 3, 3, 3),
        "body": _normal(32, 16, 3, 3),
        "to_boxes": _normal(4, 32, 1, 1) / 2000,
        "to_scores": _normal(2, 32, 1, 1) / 30,
        "centres": centres.astype(np.float32)[None],
        "boxes_shape": np.array([1, 4, anchors]),
        "scores_shape": np.array([1, 2, anchors]),
        "most": np.array(20),
        "overlap": np.array(0.4, np.float32),
        "least": np.array(0.55, np.float32),
        "last": np.array(2),
        "size": np.array([64, 64, 64, 64], np.float32),
    }
    graph = _graph(nodes, {"image": (FLOAT, [1, 3, 64, 64])}, {"found": FLOAT}, weights)
    return graph, {"image": _normal(1, 3, 64, 64)}


def decoder(width: int = 64, words: int = 200) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Words by a recurrent step until the last of them is said, or fifty are."""
    node = helper.make_node
    body = helper.make_graph(
        [
            node("Gather", ["table", "word"], ["seen"]),
            node("MatMul", ["before", "mix"], ["turned"]),
            node("Add", ["turned", "seen"], ["both"]),
            node("Tanh", ["both"], ["next_state"]),
            node("MatMul", ["next_state", "head"], ["logits"]),
            node("ArgMax", ["logits"], ["next_word"], axis=1, keepdims=0),
            node("Equal", ["next_word", "end"], ["is_end"]),
            node("Squeeze", ["is_end", "first"], ["ended"]),
            node("Not", ["ended"], ["goes_on"]),
            node("Identity", ["next_word"], ["said"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", INT64, []),
            helper.make_tensor_value_info("condition", BOOL, []),
            helper.make_tensor_value_info("word", INT64, [1]),
            helper.make_tensor_value_info("before", FLOAT, [1, width]),
        ],
        [
            helper.make_tensor_value_info("goes_on", BOOL, []),
            helper.make_tensor_value_info("next_word", INT64, [1]),
            helper.make_tensor_value_info("next_state", FLOAT, [1, width]),
            helper.make_tensor_value_info("said", INT64, [1]),
        ],
    )
    nodes = [
        node(
            "Loop",
            ["longest", "begin", "start", "state"],
            ["last_word", "last_state", "sentence"],
            body=body,
        ),
        node("Gather", ["table", "sentence"], ["embedded"]),
        node("ReduceSum", ["embedded", "first"], ["y"], keepdims=0),
    ]
    weights = {
        "table": _normal(words, width),
        "mix": _normal(width, width) / width**0.5 * 2,
        "head": _normal(width, words),
        "end": np.array([words - 1]),
        "first": np.array([0]),
        "longest": np.array(50),
        "begin": np.array(True),
        "start": np.array([1]),
    }
    ends = {"sentence": INT64, "y": FLOAT}
    graph = _graph(nodes, {"state": (FLOAT, [1, width])}, ends, weights)
    return graph, {"state": _normal(1, width)}


def _normal(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.normal(size=shape).astype(np.float32)


def _graph(
    nodes: list[Any],
    inputs: Mapping[str, tuple[int, list[int]]],
    outputs: Mapping[str, int],
    weights: Mapping[str, Any],
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "segments",
        [helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def report(title: str, proto: onnx.ModelProto, feeds: dict[str, Any]) -> None:
    """Compare with onnxruntime, then print how the program runs."""
    theirs = onnxruntime.InferenceSession(proto.SerializeToString())
    model = sardonyx.load(proto, backend="jax", compile="now")
    for ours, expected in zip(model.run(None, feeds), theirs.run(None, feeds), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4)
    program = model.trace(**feeds)
    kinds = ["host" if segment.host else "device" for segment in program.segments]
    times = [_median(lambda: model.run(None, feeds)), _median(lambda: theirs.run(None, feeds))]
    print(f"{title:<10}{len(kinds):>9}{program.round_trips:>13}", end="")
    print(f"{times[0] * 1e6:>12.0f}{times[1] * 1e6:>14.0f}   {', '.join(kinds)}")


def _median(call: Callable[[], Any]) -> float:
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    print("          segments  round trips  us a call  onnxruntime   where")
    report("detector", *detector())
    report("decoder", *decoder())


if __name__ == "__main__":
    main()
