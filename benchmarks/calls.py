"""What a replayed call costs over a hand-written `jax.jit` of the same function.

Run it: `python -m benchmarks.calls`. Both are measured in one run, in turn, and the results are
compared first. The small graph is one Add; the large one has 500 nodes and 300 weights.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from onnx import helper, numpy_helper

import sardonyx

ROUNDS = 40
WIDTH = 16


def small_model() -> onnx.ModelProto:
    return _model([helper.make_node("Add", ["x", "x"], ["y"])], [], "y")


def large_model(nodes: int = 500, weights: int = 300) -> tuple[onnx.ModelProto, list[Any]]:
    """A chain: products with the weights, then sines between them until the nodes are used up."""
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(WIDTH, WIDTH)).astype(np.float32) / 4 for _ in range(weights)]
    chain, current = [], "x"
    for i in range(weights):
        chain.append(helper.make_node("MatMul", [current, f"w{i}"], [f"m{i}"]))
        current = f"m{i}"
        if len(chain) + (weights - i - 1) < nodes:
            chain.append(helper.make_node("Sin", [current], [f"s{i}"]))
            current = f"s{i}"
    assert len(chain) == nodes
    tensors = [numpy_helper.from_array(array, f"w{i}") for i, array in enumerate(arrays)]
    return _model(chain, tensors, current), arrays


def hand_written(weights: int, nodes: int) -> Callable[..., Any]:
    def function(x: Any, *arrays: Any) -> Any:
        for i, array in enumerate(arrays):
            x = jnp.matmul(x, array, precision="highest")
            if i < nodes - weights:
                x = jnp.sin(x)
        return x

    return jax.jit(function)


def _model(nodes: list[Any], weights: list[Any], output: str) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "calls",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [WIDTH, WIDTH])],
        [helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, None)],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def interleaved(
    ours: Callable[[], Any], theirs: Callable[[], Any], calls: int
) -> list[list[float]]:
    """Seconds a call, in turn, so that the machine's moods fall on both alike."""
    times: list[list[float]] = [[], []]
    for _ in range(ROUNDS):
        for function, record in ((ours, times[0]), (theirs, times[1])):
            start = time.perf_counter()
            for _ in range(calls):
                result = function()
            jax.block_until_ready(result)
            record.append((time.perf_counter() - start) / calls)
    return times


def report(title: str, ours: Callable[[], Any], theirs: Callable[[], Any], calls: int) -> None:
    np.testing.assert_allclose(np.asarray(ours()), np.asarray(theirs()), rtol=1e-5, atol=1e-6)
    a, b = interleaved(ours, theirs, calls)
    for name, pick in (("minimum", min), ("median", statistics.median)):
        x, y = pick(a) * 1e6, pick(b) * 1e6
        print(f"{title:<22}{name:<9}{x:9.1f}{y:9.1f}{x - y:11.1f}{x / y:8.3f}")


def main() -> None:
    x = jnp.asarray(np.random.default_rng(1).normal(size=(WIDTH, WIDTH)).astype(np.float32))
    print(f"{'microseconds a call':<31}{'sardonyx':>9}{'jax.jit':>9}{'difference':>11}{'ratio':>8}")

    add = sardonyx.load(small_model(), backend="jax", compile="now")
    plain = jax.jit(lambda x: x + x)
    report("one Add", lambda: add(x), lambda: plain(x), 500)

    proto, arrays = large_model()
    chain = sardonyx.load(proto, backend="jax", compile="now")
    written = hand_written(len(arrays), 500)
    placed = [jax.device_put(array) for array in arrays]
    report("500 nodes, 300 weights", lambda: chain(x), lambda: written(x, *placed), 20)


if __name__ == "__main__":
    main()
