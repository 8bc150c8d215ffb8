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


# -- of embeddings --------------------------------------------------------------------------------


@pytest.mark.parametrize("has_segments", [False, True])
@pytest.mark.parametrize("has_mask", [False, True])
@pytest.mark.parametrize("positions", [None, (2, 5), (1, 5)])
def test_EmbedLayerNormalization(
    xp: Backend, has_segments: bool, has_mask: bool, positions: tuple[int, ...] | None
) -> None:
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 11, (2, 5), dtype=np.int32)
    segments = rng.integers(0, 2, (2, 5), dtype=np.int32) if has_segments else None
    mask = rng.integers(0, 2, (2, 5), dtype=np.int32) if has_mask else None
    inputs = [ids, segments, drawn(11, 8), drawn(7, 8, seed=1)]
    inputs += [drawn(2, 8, seed=2) if has_segments else None, drawn(8, seed=3), drawn(8, seed=4)]
    inputs += [mask, None if positions is None else rng.integers(0, 7, positions, dtype=np.int32)]
    while inputs[-1] is None:
        inputs.pop()
    name = "EmbedLayerNormalization"
    options: dict[str, Any] = {"epsilon": 2.0**-20}
    expected = onnxruntime_run(name, *inputs, opset=1, domain=DOMAIN, outputs=3, **options)
    for actual, other in zip(run(xp, op_of(name), *inputs, **options), expected, strict=True):
        assert_close(actual, other)


# -- over groups of channels ----------------------------------------------------------------------


def normalized_groups(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, silu: int) -> np.ndarray:
    """The definition of GroupNorm with 3 groups, in NHWC and float64."""
    grouped = x.astype(np.float64).reshape(x.shape[0], -1, 3, x.shape[-1] // 3)
    mean, variance = (f(grouped, axis=(1, 3), keepdims=True) for f in (np.mean, np.var))
    y = ((grouped - mean) / np.sqrt(variance + 1e-5)).reshape(x.shape) * gamma + beta
    return y / (1 + np.exp(-y)) if silu else y


@pytest.mark.parametrize("channels_last", [0, 1])
@pytest.mark.parametrize("silu", [0, 1])
def test_GroupNorm(xp: Backend, channels_last: int, silu: int) -> None:
    x, gamma, beta = drawn(2, 4, 3, 6), drawn(6, seed=1), drawn(6, seed=2)
    expected = normalized_groups(x, gamma, beta, silu)
    attributes: dict[str, Any] = {"groups": 3, "activation": silu, "channels_last": channels_last}
    source = x if channels_last else np.moveaxis(x, -1, 1)
    actual = run(xp, op_of("GroupNorm"), source, gamma, beta, **attributes)
    expected = expected if channels_last else np.moveaxis(expected, -1, 1)
    assert_close(actual, expected.astype(np.float32))


@pytest.mark.parametrize("backend", [HOST, JaxBackend()], ids=lambda backend: backend.name)
def test_GroupNorm_of_narrow_floats_with_wide_parameters(backend: Backend) -> None:
    x, gamma, beta = drawn(2, 4, 3, 6, dtype=np.float16), drawn(6, seed=1), drawn(6, seed=2)
    actual = run(backend, op_of("GroupNorm"), x, gamma, beta, groups=3, activation=1)
    assert_close(actual, normalized_groups(x, gamma, beta, 1).astype(np.float16))


@pytest.mark.parametrize("skip", [(2, 4, 3, 6), (2, 1, 1, 6), (2, 6)])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("channels_last", [0, 1])
def test_SkipGroupNorm(
    xp: Backend, skip: tuple[int, ...], has_bias: bool, channels_last: int
) -> None:
    x, gamma, beta, bias = drawn(2, 4, 3, 6), *(drawn(6, seed=seed) for seed in (1, 2, 3))
    residual = drawn(*skip, seed=4)
    total = x + residual.reshape(2, *skip[1:-1] or (1, 1), 6) + bias * has_bias
    expected = [normalized_groups(total, gamma, beta, 1).astype(np.float32), total]
    if not channels_last:
        x, *expected = (np.moveaxis(v, -1, 1) for v in (x, *expected))
        residual = np.moveaxis(residual, -1, 1)
    inputs = [x, gamma, beta, residual, *([bias] if has_bias else [])]
    attributes: dict[str, Any] = {"groups": 3, "activation": 1, "channels_last": channels_last}
    results = run(xp, op_of("SkipGroupNorm"), *inputs, **attributes)
    for actual, other in zip(results, expected, strict=True):
        assert_close(actual, other)


# -- over parts of the last axis ------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["silu", "swish", "sigmoid"])
@pytest.mark.parametrize("shape", [(2, 3, 12), (4,), (0, 8)])
def test_GatedRMSNorm(xp: Backend, activation: str, shape: tuple[int, ...]) -> None:
    inputs = drawn(*shape), drawn(4, seed=1), drawn(*shape, seed=2)
    options: dict[str, Any] = {"activation": activation, "epsilon": 2.0**-10}
    expected = onnxruntime_run("GatedRMSNorm", *inputs, opset=1, domain=DOMAIN, **options)
    assert_close(run(xp, op_of("GatedRMSNorm"), *inputs, **options), expected)


@pytest.mark.parametrize(
    ("shape", "branches"), [((2, 3, 4), 0), ((2, 12), 3), ((12,), 3), ((3, 4), 0)]
)
@pytest.mark.parametrize("scale", [None, (12,), (3, 4), (4,)])
def test_BranchwiseRMSNorm(
    xp: Backend, shape: tuple[int, ...], branches: int, scale: tuple[int, ...] | None
) -> None:
    inputs = [drawn(*shape), *([] if scale is None else [drawn(*scale, seed=1)])]
    options: dict[str, Any] = {"num_branches": branches, "epsilon": 2.0**-10}
    expected = onnxruntime_run("BranchwiseRMSNorm", *inputs, opset=1, domain=DOMAIN, **options)
    assert_close(run(xp, op_of("BranchwiseRMSNorm"), *inputs, **options), expected)


@pytest.mark.parametrize("backend", [HOST, JaxBackend()], ids=lambda backend: backend.name)
@pytest.mark.parametrize("name", ["GatedRMSNorm", "BranchwiseRMSNorm"])
def test_parts_of_narrow_floats_are_rounded_once(backend: Backend, name: str) -> None:
    x, scale, gate = (
        drawn(*s, dtype=np.float16, seed=i) for i, s in enumerate([(7, 4, 8), (8,), (7, 4, 8)])
    )
    inputs = [x, scale, *([gate] if name == "GatedRMSNorm" else [])]
    expected = onnxruntime_run(name, *inputs, opset=1, domain=DOMAIN)
    assert_close(run(backend, op_of(name), *inputs), expected)


def test_parts_that_do_not_fit(xp: Backend) -> None:
    x, odd = drawn(2, 9), drawn(4)
    with pytest.raises(ValueError, match="a length that divides the last axis of X"):
        run(xp, op_of("GatedRMSNorm"), x, odd, x)
    with pytest.raises(ValueError, match=r"\(2, 9\) cannot be divided into 2 branches"):
        run(xp, op_of("BranchwiseRMSNorm"), x, num_branches=2)
