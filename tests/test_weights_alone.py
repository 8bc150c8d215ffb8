"""Parts of a graph that depend on weights alone: NumPy computes them once, in their own types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.types import Array, Backend
from tests.support.onnx_builders import model, node, value, weight

BACKENDS = ("numpy", "jax")
FLOATS = ("float64", "float32", "float16")
RNG = np.random.default_rng(11)


def drawn(dtype: str, *shape: int) -> Any:
    if np.dtype(dtype).kind in "iu":
        return RNG.integers(0, 5, shape).astype(dtype)
    return RNG.uniform(0.5, 1.5, shape).astype(dtype)


def chain(dtype: str, nodes: Sequence[onnx.NodeProto], shape: Any, **weights: Any) -> Any:
    """The nodes make `b` of weights; the model returns x + b."""
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return model(
        [*nodes, node("Add", ["x", "b"], ["y"])],
        [value("x", shape, kind)],
        [value("y", None, kind)],
        [weight(name, array) for name, array in weights.items()],
        opset=21,
    )


CHAINS = {
    "MatMul": (
        [node("Mul", ["w", "k"], ["a"]), node("MatMul", ["a", "w2"], ["b"])],
        {"w": (30, 50), "k": (30, 1), "w2": (50, 50)},
    ),
    "MatMul of three": (
        [node("MatMul", ["w", "w2"], ["a"]), node("MatMul", ["a", "w3"], ["b"])],
        {"w": (30, 50), "w2": (50, 20), "w3": (20, 50)},
    ),
    "Gemm": (
        [node("Gemm", ["w", "w2", "c"], ["a"], transB=1), node("Relu", ["a"], ["b"])],
        {"w": (30, 50), "w2": (40, 50), "c": (40,)},
    ),
    "Conv": (
        [node("Conv", ["w", "w2", "c"], ["a"], pads=[1, 1, 1, 1]), node("Relu", ["a"], ["b"])],
        {"w": (2, 8, 12, 12), "w2": (8, 8, 3, 3), "c": (8,)},
    ),
    "grouped Conv": (
        [node("Conv", ["w", "w2"], ["b"], group=8)],
        {"w": (2, 8, 12, 12), "w2": (8, 1, 3, 3)},
    ),
    "ConvTranspose": (
        [node("ConvTranspose", ["w", "w2"], ["b"])],
        {"w": (1, 4, 9, 9), "w2": (4, 3, 3, 3)},
    ),
    "LSTM": (
        [node("LSTM", ["w", "w2", "r"], ["", "b"], hidden_size=16)],
        {"w": (5, 2, 8), "w2": (1, 64, 8), "r": (1, 64, 16)},
    ),
    "Conv, scattered into": (
        [
            node("Conv", ["w", "w2"], ["a"], pads=[1, 1, 1, 1]),
            node("ScatterElements", ["a", "at", "k"], ["b"], axis=1),
        ],
        {"w": (1, 3, 8, 8), "w2": (4, 3, 3, 3), "k": (1, 4, 8, 8)},
    ),
    "MatMul, scattered into": (
        [node("MatMul", ["w", "w2"], ["a"]), node("ScatterElements", ["a", "at", "k"], ["b"])],
        {"w": (30, 50), "w2": (50, 50), "k": (30, 50)},
    ),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", CHAINS)
def test_products_of_weights_are_exact(name: str, dtype: str) -> None:
    nodes, shapes = CHAINS[name]
    weights = {key: drawn(dtype, *shape) for key, shape in shapes.items()}
    if "scattered" in name:
        weights["at"] = np.zeros(shapes["k"], np.int64)
    wide = {k: v.astype(np.float64) if v.dtype.kind == "f" else v for k, v in weights.items()}
    zero = np.zeros((), dtype)
    wanted = sardonyx.load(chain("float64", nodes, [], **wide), backend="numpy")(np.zeros(()))
    tolerance = {"float64": 1e-13, "float32": 2e-5, "float16": 2e-2}[dtype]
    for backend in BACKENDS:
        loaded = sardonyx.load(chain(dtype, nodes, [], **weights), backend=backend)
        for _ in range(2):  # The first call, and a replay.
            found = loaded(zero)
            assert found.dtype == dtype
            np.testing.assert_allclose(found.astype(float), wanted, rtol=tolerance)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint64"])
def test_products_of_integers_are_exact(dtype: str) -> None:
    weights = {"w": drawn(dtype, 30, 50), "w2": drawn(dtype, 50, 50)}
    if dtype != "int32":
        weights["w"] += np.asarray(2**40, dtype)
    nodes = [node("MatMul", ["w", "w2"], ["a"]), node("Mul", ["a", "w3"], ["b"])]
    proto = chain(dtype, nodes, [], **weights, w3=np.asarray([3], dtype))
    for backend in BACKENDS:
        loaded = sardonyx.load(proto, backend=backend)
        for _ in range(2):
            found = loaded(np.zeros((), dtype))
            np.testing.assert_array_equal(found, weights["w"] @ weights["w2"] * 3)


def test_a_product_of_products_of_weights_is_no_work_of_a_call() -> None:
    nodes, shapes = CHAINS["MatMul"]
    weights = {key: drawn("float32", *shape) for key, shape in shapes.items()}
    loaded = sardonyx.load(chain("float32", nodes, [30, 50], **weights), backend="jax")
    x = drawn("float32", 30, 50)
    (segment,) = loaded.trace(x).segments
    assert [step.title for step in segment.steps] == ["Add"]


def test_products_of_weights_follow_their_replacement() -> None:
    nodes, shapes = CHAINS["Conv, scattered into"]
    weights = {key: drawn("float32", *shape) for key, shape in shapes.items()}
    weights["at"] = np.full(shapes["k"], 2)
    zero = np.zeros((), np.float32)
    for backend in BACKENDS:
        loaded = sardonyx.load(chain("float32", nodes, [], **weights), backend=backend)
        before = loaded(zero)
        loaded.params["w2"] = 2 * weights["w2"]
        after = loaded(zero)
        np.testing.assert_allclose(after[:, [0, 1, 3]], 2 * before[:, [0, 1, 3]], rtol=1e-6)
        np.testing.assert_array_equal(after[:, 2], before[:, 2])


# -- operators of the caller's --------------------------------------------------------------------


def of_the_caller(operator: Any, dtype: str) -> Any:
    """The operator's result for a weight, scattered into as NumPy scatters, and added."""
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    proto = model(
        [
            node("Grown", ["w"], ["g"], domain="mine"),
            node("ScatterElements", ["g", "at", "k"], ["b"]),
            node("Add", ["x", "b"], ["y"]),
        ],
        [value("x", [], kind)],
        [value("y", None, kind)],
        [
            weight("w", np.full((30, 50), 1.1, dtype)),
            weight("at", np.zeros((1, 50), np.int64)),
            weight("k", np.zeros((1, 50), dtype)),
        ],
        mine=1,
    )
    return sardonyx.load(proto, backend="jax", ops=[operator])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_operator_may_use_a_library_of_its_own_on_weights(dtype: str) -> None:
    @sardonyx.op(domain="mine")
    def Grown(xp: Backend, x: Array) -> Array:
        return jnp.asarray(x) * 1.1

    loaded = of_the_caller(Grown, dtype)
    wanted = np.full((30, 50), 1.1, dtype) * np.asarray(1.1, dtype)
    wanted[0] = 0
    for _ in range(2):
        np.testing.assert_allclose(loaded(np.zeros((), dtype)), wanted, rtol=np.finfo(dtype).eps)


def test_an_operator_that_numpy_lacks_is_not_asked_of_it() -> None:
    @sardonyx.op(domain="mine")
    def Grown(xp: Backend, x: Array) -> Array:
        raise NotImplementedError("Grown is for JAX alone")

    @Grown.on("jax")
    def grown_in_jax(xp: Backend, x: Any) -> Any:
        return jnp.multiply(x, 2)

    loaded = of_the_caller(Grown, "float64")
    for _ in range(2):
        found = loaded(np.zeros(()))
        np.testing.assert_array_equal(found[1:], np.full((29, 50), 2.2))
        np.testing.assert_array_equal(found[0], np.zeros(50))
