from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST
from sardonyx.ops import OPS
from sardonyx.ops.definition import Op
from tests.ops.oracle import onnxruntime_run, run

DOMAIN = "com.microsoft"


def drawn(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def op_of(name: str) -> Op[Any]:
    return OPS[DOMAIN, name]


def assert_close(actual: np.ndarray, expected: np.ndarray) -> None:
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    tolerance = 1e-3 if expected.dtype == np.float16 else 1e-5
    np.testing.assert_allclose(
        actual.astype(np.float64), expected.astype(np.float64), rtol=tolerance, atol=tolerance
    )


# -- in the default domain ------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [1, 11, 16])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("axis", "has_bias"), [(-1, True), (1, False), (0, True)])
def test_LayerNormalization_before_the_standard_has_it(
    xp: Backend, opset: int, dtype: Any, axis: int, has_bias: bool
) -> None:
    x = drawn(2, 3, 4, dtype=dtype) + dtype(3)
    inner = x.shape[axis % 3 :]
    parameters = [drawn(*inner, dtype=dtype, seed=seed) for seed in range(1, 2 + has_bias)]
    options: dict[str, Any] = {"axis": axis, "epsilon": 2.0**-10}
    expected = onnxruntime_run(
        "LayerNormalization", x, *parameters, opset=opset, outputs=3, **options
    )
    op = OPS["", "LayerNormalization"]
    actual = run(xp, op, x, *parameters, opset=opset, **options)
    for one, other in zip(actual, expected, strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("axis", [-1, 1])
def test_SimplifiedLayerNormalization(xp: Backend, dtype: Any, axis: int) -> None:
    x = drawn(2, 3, 4, dtype=dtype)
    scale = drawn(*x.shape[axis % 3 :], dtype=dtype, seed=1)
    options: dict[str, Any] = {"axis": axis, "epsilon": 2.0**-10}
    expected = onnxruntime_run(
        "SimplifiedLayerNormalization", x, scale, opset=13, outputs=2, **options
    )
    actual = run(xp, OPS["", "SimplifiedLayerNormalization"], x, scale, **options)
    for one, other in zip(actual, expected, strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("backend", [HOST, JaxBackend()], ids=lambda backend: backend.name)
@pytest.mark.parametrize("name", ["LayerNormalization", "SimplifiedLayerNormalization"])
def test_both_round_narrow_floats_once(backend: Backend, name: str) -> None:
    x, scale = drawn(5, 64, dtype=np.float16), drawn(64, dtype=np.float16, seed=1)
    expected = onnxruntime_run(name, x, scale, opset=13)
    assert_close(run(backend, OPS["", name], x, scale, opset=13)[0], expected)


@pytest.mark.parametrize("backend", [HOST, JaxBackend()], ids=lambda backend: backend.name)
@pytest.mark.parametrize("name", ["LayerNormalization", "SimplifiedLayerNormalization"])
def test_results_have_the_type_of_the_scale(backend: Backend, name: str) -> None:
    x, scale = drawn(5, 64), drawn(64, dtype=np.float16, seed=1)
    y, *_ = run(backend, OPS["", name], x, scale, opset=13)
    expected, *_ = run(backend, OPS["", name], x, scale.astype(np.float32), opset=13)
    assert_close(y, expected.astype(np.float16))


@pytest.mark.parametrize("name", ["LayerNormalization", "SimplifiedLayerNormalization"])
@pytest.mark.parametrize("opset", [9, 13])
def test_models_of_older_opsets_load(name: str, opset: int) -> None:
    x, scale = drawn(2, 3, 8), drawn(8, seed=1)
    node = helper.make_node(name, ["x", "scale"], ["y"], epsilon=1e-6)
    values = [helper.make_tensor_value_info(n, 1, s) for n, s in (("x", [2, 3, 8]), ("scale", [8]))]
    graph = helper.make_graph([node], "g", values, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    y = sardonyx.load(model, backend="numpy")(x, scale)
    assert_close(y, onnxruntime_run(name, x, scale, opset=opset, epsilon=1e-6))


# -- of a sum with a residual ---------------------------------------------------------------------

SKIPS = {"same": (2, 3, 8), "one batch": (1, 3, 8), "no batch": (3, 8)}


@pytest.mark.parametrize("skip", SKIPS)
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("name", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_normalizations_of_a_sum(xp: Backend, name: str, skip: str, has_bias: bool) -> None:
    x, residual = drawn(2, 3, 8), drawn(*SKIPS[skip], seed=1)
    gamma, beta, bias = (drawn(8, seed=seed) for seed in (2, 3, 4))
    is_simple = name == "SkipSimplifiedLayerNormalization"
    inputs = [x, residual, gamma, *([] if is_simple else [beta]), *([bias] if has_bias else [])]
    node: dict[str, Any] = {"opset": 1, "domain": DOMAIN, "outputs": 4, "absent": (1, 2)}
    expected = onnxruntime_run(name, *inputs, epsilon=1e-5, **node)
    y, mean, inverse, total = run(xp, op_of(name), *inputs, epsilon=1e-5)
    assert_close(y, expected[0])
    assert_close(total, expected[1])
    assert_close(mean, total.mean(-1, keepdims=True, dtype=np.float64).astype(np.float32))
    centred = total - (0 if is_simple else mean)
    variance = np.square(centred).mean(-1, keepdims=True, dtype=np.float64)
    assert_close(inverse, (1 / np.sqrt(variance + 1e-5)).astype(np.float32))


@pytest.mark.parametrize("backend", [HOST, JaxBackend()], ids=lambda backend: backend.name)
@pytest.mark.parametrize("name", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_sums_of_narrow_floats_are_rounded_once(backend: Backend, name: str) -> None:
    x, residual, gamma = (
        drawn(*shape, dtype=np.float16, seed=i) for i, shape in enumerate([(7, 64), (7, 64), (64,)])
    )
    node: dict[str, Any] = {"opset": 1, "domain": DOMAIN, "outputs": 4, "absent": (1, 2)}
    expected = onnxruntime_run(name, x, residual, gamma, **node)
    y, _, _, total = run(backend, op_of(name), x, residual, gamma)
    assert_close(y, expected[0])
    assert_close(total, expected[1])


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ([(8,), (8,), (8,)], r"input has shape \(8,\), but must have two or three axes"),
        ([(2, 3, 8), (8,), (8,)], r"skip has shape \(8,\), but its last two axes must be \(3, 8\)"),
        ([(2, 3, 8), (4, 3, 8), (8,)], r"skip of shape \(4, 3, 8\) does not broadcast"),
        ([(2, 3, 8), (3, 8), (3, 8)], r"gamma has shape \(3, 8\), but must have shape \(8,\)"),
    ],
)
def test_shapes_that_do_not_fit(xp: Backend, shapes: list[tuple[int, ...]], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        run(xp, op_of("SkipLayerNormalization"), *(drawn(*shape) for shape in shapes))
