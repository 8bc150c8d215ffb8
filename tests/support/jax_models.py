"""Models that tests turn into functions of JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import onnx

import sardonyx
from tests.support.onnx_builders import INT64, model, node, value, weight


def drawn(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(shape).normal(size=shape).astype(np.float32)


def mixed() -> onnx.ModelProto:
    """Floats, and places in int64 that decide which of them are taken."""
    nodes = [
        node("Gemm", ["x", "w", "b"], ["h"]),
        node("ArgMax", ["h"], ["place"], axis=1),
        node("GatherElements", ["h", "place"], ["top"], axis=1),
        node("TopK", ["h", "k"], ["best", "places"], axis=1),
        node("Gather", ["table", "places"], ["rows"]),
        node("ReduceSum", ["rows", "last"], ["sums"], keepdims=0),
        node("Mul", ["sums", "best"], ["m"]),
        node("Mul", ["m", "top"], ["y"]),
    ]
    weights = {
        "w": drawn(5, 7),
        "b": drawn(7),
        "k": np.array([3]),
        "table": drawn(7, 4),
        "last": np.array([-1]),
    }
    return model(
        nodes,
        [value("x", ["n", 5])],
        ["y", value("place", None, INT64)],
        [weight(*entry) for entry in weights.items()],
    )


def recurrent() -> onnx.ModelProto:
    weights = {"w": drawn(1, 16, 3), "r": drawn(1, 16, 4), "b": drawn(1, 32)}
    return model(
        [node("LSTM", ["x", "w", "r", "b"], ["y", "h", "c"], hidden_size=4)],
        [value("x", [6, "n", 3])],
        ["y", "h"],
        [weight(*entry) for entry in weights.items()],
    )


def perceptrons() -> tuple[Callable[..., Any], Callable[..., Any], dict[str, Any]]:
    """One that was imported, the same as a person would write it, and the params of both."""
    weights = {"p1": drawn(6, 16), "p2": drawn(16), "p3": drawn(16, 3), "p4": drawn(3)}
    nodes = [
        node("Gemm", ["x", "p1", "p2"], ["h"]),
        node("Relu", ["h"], ["a"]),
        node("MatMul", ["a", "p3"], ["m"]),
        node("Add", ["m", "p4"], ["y"]),
    ]
    imported, params = sardonyx.to_jax(
        model(nodes, ["x"], ["y"], [weight(*entry) for entry in weights.items()])
    )

    def written(params: dict[str, Any], x: Any) -> Any:
        hidden = jnp.maximum(x @ params["p1"] + params["p2"], 0)
        return hidden @ params["p3"] + params["p4"]

    return imported, written, params
