from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST
from sardonyx.ops.definition import Op
from sardonyx.ops.normalization import (
    LRN,
    BatchNormalization,
    GroupNormalization,
    InstanceNormalization,
    LayerNormalization,
    LpNormalization,
    MeanVarianceNormalization,
    RMSNormalization,
)
from tests.ops.oracle import assert_same, onnxruntime_run, run

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
NARROW = pytest.mark.parametrize("dtype", [np.dtype(np.float16), BFLOAT16], ids=str)
WITH_NARROW = pytest.mark.parametrize(
    "backend", [HOST, JaxBackend()], ids=lambda backend: backend.name
)


def drawn(*shape: int, dtype: Any = np.float64, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def standardized(x: np.ndarray, axes: tuple[int, ...], epsilon: float) -> np.ndarray:
    x = x.astype(np.float64)
    centred = x - x.mean(axis=axes, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=axes, keepdims=True) + epsilon)


def by_channel(vector: np.ndarray, x: np.ndarray) -> np.ndarray:
    return vector.reshape(-1, *(1,) * (x.ndim - 2))


# -- over axes of one input -----------------------------------------------------------------------


@pytest.mark.parametrize("axis", [-1, 1, 0, -3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_LayerNormalization_is_that_of_onnxruntime(xp: Backend, axis: int, dtype: Any) -> None:
    x = drawn(2, 3, 4, dtype=dtype) + dtype(3)
    inner = x.shape[axis % 3 :]
    scale, bias = drawn(*inner, dtype=dtype, seed=1), drawn(*inner, dtype=dtype, seed=2)
    options: dict[str, Any] = {"axis": axis, "epsilon": 2.0**-10}
    y, mean, inverse = run(xp, LayerNormalization, x, scale, bias, **options)
    expected = onnxruntime_run("LayerNormalization", x, scale, bias, opset=17, **options)
    assert_same(y, expected, ulps=32)
    axes = tuple(range(axis % 3, 3))
    assert_same(mean, x.mean(axis=axes, keepdims=True).astype(np.float32), ulps=8)
    deviation = np.sqrt(x.var(axis=axes, keepdims=True) + 2.0**-10)
    assert_same(inverse, (1 / deviation).astype(np.float32), ulps=8)
    unbiased, _, _ = run(xp, LayerNormalization, x, scale, **options)
    assert_same(unbiased + bias, expected, ulps=32)


@WITH_NARROW
@NARROW
def test_layers_of_narrow_floats_are_normalised_in_float32(backend: Backend, dtype: Any) -> None:
    x = (drawn(3, 500) * 100 + 500).astype(dtype)
    scale = drawn(500, seed=1).astype(dtype)
    y, mean, inverse = run(backend, LayerNormalization, x, scale)
    normalized = standardized(x, (1,), 1e-5).astype(dtype)
    assert_same(y, normalized * scale, ulps=2)
    assert mean.dtype == inverse.dtype == np.float32
    y, mean, inverse = run(backend, LayerNormalization, x, scale, stash_type=BFLOAT16)
    assert y.dtype == dtype
    assert mean.dtype == inverse.dtype == BFLOAT16
    wide = x.astype(np.float64)
    normalized = (wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + 1e-5)).astype(dtype)
    assert_same(run(backend, RMSNormalization, x, scale), normalized * scale, ulps=2)
    # The result has the type of the scale, which may be another.
    result = run(backend, RMSNormalization, x, scale.astype(np.float32))
    assert_same(result, normalized.astype(np.float32) * scale.astype(np.float32), ulps=1e5)


def test_RMSNormalization_over_several_axes(xp: Backend) -> None:
    x, scale = drawn(2, 3, 4), drawn(3, 1, seed=1)
    expected = x / np.sqrt((x**2).mean(axis=(1, 2), keepdims=True) + 0.1) * scale
    assert_same(run(xp, RMSNormalization, x, scale, axis=1, epsilon=0.1), expected)


@pytest.mark.parametrize("shape", [(2, 4, 5), (2, 4, 3, 5), (1, 4, 2, 3, 2), (0, 4, 3)])
def test_instances_and_groups(xp: Backend, shape: tuple[int, ...]) -> None:
    x, scale, bias = drawn(*shape), drawn(4, seed=1), drawn(4, seed=2)
    by_instance = standardized(x, tuple(range(2, x.ndim)), 0.1)
    expected = by_instance * by_channel(scale, x) + by_channel(bias, x)
    assert_same(run(xp, InstanceNormalization, x, scale, bias, epsilon=0.1), expected, ulps=16)
    first = run(xp, InstanceNormalization, x, scale, bias, opset=1, consumed_inputs=(0,))
    assert first.shape == x.shape

    grouped = x.reshape(shape[0], 2, 2, *shape[2:])
    by_group = standardized(grouped, tuple(range(2, grouped.ndim)), 0.1)
    expected = by_group.reshape(shape) * by_channel(scale, x) + by_channel(bias, x)
    options: dict[str, Any] = {"num_groups": 2, "epsilon": 0.1}
    assert_same(run(xp, GroupNormalization, x, scale, bias, **options), expected, ulps=16)
    old = by_group * by_channel(scale[:2], grouped) + by_channel(bias[:2], grouped)
    actual = run(xp, GroupNormalization, x, scale[:2], bias[:2], opset=18, **options)
    assert_same(actual, old.reshape(shape), ulps=16)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_LpNormalization(xp: Backend, axis: int) -> None:
    x = drawn(3, 4, 5)
    x[1] = x[:, 1] = x[..., 1] = 0
    for p in (1, 2):
        norm = (np.abs(x) ** p).sum(axis=axis, keepdims=True) ** (1 / p)
        expected = np.divide(x, norm, out=np.zeros_like(x), where=norm != 0)
        assert_same(run(xp, LpNormalization, x, axis=axis, p=p), expected)


def test_MeanVarianceNormalization(xp: Backend) -> None:
    x = drawn(2, 3, 4, 5, dtype=np.float32) + np.float32(1000)
    expected = standardized(x, (0, 2, 3), 0).astype(np.float32)
    assert_same(run(xp, MeanVarianceNormalization, x), expected, ulps=2000)
    expected = standardized(x, (1, 3), 0).astype(np.float32)
    assert_same(run(xp, MeanVarianceNormalization, x, axes=(1, -1)), expected, ulps=2000)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("shape", [(2, 5, 3), (2, 5, 2, 3)])
def test_LRN_sums_over_neighbouring_channels(xp: Backend, size: int, shape: Any) -> None:
    x = drawn(*shape)
    sums = np.zeros_like(x)
    for c in range(5):
        first, last = max(0, c - (size - 1) // 2), min(4, c + size // 2)
        sums[:, c] = (x[:, first : last + 1] ** 2).sum(axis=1)
    expected = x / (2 + 0.5 / size * sums) ** 0.6
    assert_same(run(xp, LRN, x, size=size, alpha=0.5, beta=0.6, bias=2.0), expected)


@WITH_NARROW
@NARROW
def test_squares_of_narrow_floats_do_not_overflow(backend: Backend, dtype: Any) -> None:
    x = (drawn(1, 4, 6) * 1000).astype(dtype)
    wide = x.astype(np.float64)
    norm = np.sqrt((wide**2).sum(axis=-1, keepdims=True))
    assert_same(run(backend, LpNormalization, x), (wide / norm).astype(dtype), ulps=1)
    expected = (wide / (1 + 1e-4 * wide**2) ** 0.75).astype(dtype)
    assert_same(run(backend, LRN, x, size=1), expected, ulps=1)
    scale = np.ones(4, dtype=dtype)
    expected = standardized(x, (2,), 1e-5).astype(dtype)
    assert_same(run(backend, InstanceNormalization, x, scale, scale * 0), expected, ulps=1)
    assert_same(run(backend, BatchNormalization, x, *[scale] * 4), x, ulps=1)


# -- over a batch ---------------------------------------------------------------------------------


def statistics(*shape: int, dtype: Any = np.float32) -> list[np.ndarray]:
    scale, bias, mean, spread = (drawn(*shape, dtype=dtype, seed=i) for i in range(4))
    return [scale, bias, mean, np.abs(spread)]


@pytest.mark.parametrize("opset", [7, 9, 14, 15])
@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (2, 3, 4, 2)])
def test_inference_is_that_of_onnxruntime(xp: Backend, opset: int, shape: Any) -> None:
    inputs = [drawn(*shape, dtype=np.float32), *statistics(3)]
    expected = onnxruntime_run("BatchNormalization", *inputs, opset=opset, epsilon=0.01)
    count = {"outputs": 1} if opset < 14 else {}
    actual = run(xp, BatchNormalization, *inputs, opset=opset, epsilon=0.01, **count)
    assert_same(actual, expected, ulps=64)


def test_each_place_may_have_its_statistics(xp: Backend) -> None:
    inputs = [drawn(2, 3, 4, dtype=np.float32), *statistics(3, 4)]
    expected = onnxruntime_run("BatchNormalization", *inputs, opset=7, spatial=0)
    actual = run(xp, BatchNormalization, *inputs, opset=7, spatial=0, outputs=1)
    assert_same(actual, expected, ulps=64)
    y, *states = run(xp, BatchNormalization, *inputs, opset=1, spatial=0)
    x, scale, bias, mean, spread = inputs
    assert_same(y, (standardized(x, (0,), 1e-5) * scale + bias).astype(np.float32), ulps=64)
    now, variance = x.mean(axis=0), x.var(axis=0)
    running = [mean * 0.9 + now * 0.1, spread * 0.9 + variance * 0.1]
    for actual, expected in zip(states, [*running, now, variance], strict=True):
        assert_same(actual, expected.astype(np.float32), ulps=64)


def test_training_updates_the_running_statistics(xp: Backend) -> None:
    inputs = [drawn(4, 3, 5, dtype=np.float32), *statistics(3)]
    node = helper.make_node(
        "BatchNormalization", list("xsbmv"), list("yrw"), training_mode=1, momentum=0.7
    )
    floats = [helper.make_tensor_value_info(n, 1, None) for n in "xsbmvyrw"]
    graph = helper.make_graph([node], "training", floats[:5], floats[5:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)])
    expected = ReferenceEvaluator(model).run(None, dict(zip("xsbmv", inputs, strict=True)))
    actual = run(xp, BatchNormalization, *inputs, training_mode=1, momentum=0.7)
    for one, other in zip(actual, expected, strict=True):
        assert_same(one, other, ulps=64)
    options: dict[str, Any] = {"momentum": 0.7}
    for opset, more in [(9, {"outputs": 5}), (7, {"outputs": 3}), (6, {}), (1, {"is_test": 0})]:
        old = run(xp, BatchNormalization, *inputs, opset=opset, **options, **more)
        for one, other in zip(old, expected, strict=False):
            assert_same(one, other, ulps=64)
    tested = run(xp, BatchNormalization, *inputs, opset=6, is_test=1)
    assert_same(tested, run(xp, BatchNormalization, *inputs), ulps=0)


def test_a_vector_is_a_batch_of_one_channel(xp: Backend) -> None:
    x, (scale, bias, mean, spread) = drawn(6), statistics(1, dtype=np.float64)
    expected = (x - mean) / np.sqrt(spread + 1e-5) * scale + bias
    assert_same(run(xp, BatchNormalization, x, scale, bias, mean, spread), expected, ulps=16)
    y, running, _ = run(xp, BatchNormalization, x, scale, bias, mean, spread, training_mode=1)
    assert_same(y, standardized(x, (0,), 1e-5) * scale + bias, ulps=16)
    assert_same(running, mean * 0.9 + x.mean() * 0.1, ulps=16)


@WITH_NARROW
@NARROW
def test_statistics_may_be_wider_than_the_data(backend: Backend, dtype: Any) -> None:
    x, (scale, bias, mean, spread) = drawn(4, 3, 8).astype(dtype), statistics(3)
    scale, bias = scale.astype(dtype), bias.astype(dtype)
    wide = [v.astype(np.float64) for v in (x, scale, bias, mean, spread)]
    plain = run(HOST, BatchNormalization, *wide).astype(dtype)
    assert_same(run(backend, BatchNormalization, x, scale, bias, mean, spread), plain, ulps=1)
    trained = run(backend, BatchNormalization, x, scale, bias, mean, spread, training_mode=1)
    assert [v.dtype for v in trained] == [dtype, np.float32, np.float32]


X, VECTOR = drawn(2, 4, 3), np.ones(4)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "message"),
    [
        (LayerNormalization, [X, np.ones(3)], {"axis": 3}, "axis 3 is out of range"),
        (LayerNormalization, [X, np.ones((5, 1, 1, 1))], {}, "does not broadcast"),
        (LayerNormalization, [X, np.ones(4)], {}, "does not broadcast"),
        (RMSNormalization, [X, np.ones(2)], {}, "does not broadcast"),
        (InstanceNormalization, [X, np.ones(3), VECTOR], {}, "one number per channel"),
        (GroupNormalization, [X, VECTOR, VECTOR], {"num_groups": 3}, "groups"),
        (GroupNormalization, [X, VECTOR, VECTOR], {"num_groups": 0}, "groups"),
        (BatchNormalization, [X, *[np.ones(3)] * 4], {}, "one number per channel"),
        (LpNormalization, [X], {"p": 3}, "p is 3"),
        (LpNormalization, [X], {"axis": -4}, "axis -4 is out of range"),
        (MeanVarianceNormalization, [X], {}, "axis 3 is out of range"),
        (MeanVarianceNormalization, [X], {"axes": (1, -2)}, "twice"),
        (LRN, [X], {"size": 0}, "size is 0"),
    ],
)
def test_normalisations_refuse(
    xp: Backend, op: Op, inputs: Any, attributes: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        run(xp, op, *inputs, **attributes)
