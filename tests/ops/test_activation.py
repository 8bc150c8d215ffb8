from __future__ import annotations

from math import erf
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST
from sardonyx.ops import activation as ops
from tests.ops.oracle import assert_same, onnxruntime_run, run

X = np.concatenate([np.linspace(-6, 6, 97), [-0.5, 0.5, 1, 40, -40]])
F32 = np.float32


def narrow_floats(xp: Backend) -> list[Any]:
    return [] if xp.name == "strict" else [ml_dtypes.bfloat16, np.float16]


@pytest.mark.parametrize(
    ("op", "opset", "attributes"),
    [
        (ops.Relu, 14, {}),
        (ops.LeakyRelu, 16, {}),
        (ops.LeakyRelu, 6, {"alpha": 0.3}),
        (ops.ThresholdedRelu, 10, {"alpha": 0.5}),
        (ops.Shrink, 9, {"bias": 0.25, "lambd": 0.75}),
        (ops.HardSigmoid, 6, {}),
        (ops.HardSigmoid, 6, {"alpha": 0.4, "beta": 0.7}),
        (ops.HardSwish, 14, {}),
        (ops.Elu, 6, {"alpha": 1.5}),
        (ops.Celu, 12, {"alpha": 2.0}),
        (ops.Celu, 12, {"alpha": -8.0}),
        (ops.Selu, 6, {}),
        (ops.Sigmoid, 13, {}),
        (ops.Softplus, 1, {}),
        (ops.Softsign, 1, {}),
        (ops.Gelu, 20, {}),
        (ops.Gelu, 20, {"approximate": "tanh"}),
        (ops.Mish, 18, {}),
    ],
    ids=str,
)
def test_agrees_with_onnxruntime(
    xp: Backend, op: Any, opset: int, attributes: dict[str, Any]
) -> None:
    x = X.astype(F32)
    expected = onnxruntime_run(op.name, x, opset=max(opset, 7), **attributes)
    assert_same(run(xp, op, x, opset=opset, **attributes), expected, ulps=16)
    wide = run(xp, op, x.astype(np.float64), opset=opset, **attributes)
    assert wide.dtype == np.float64
    for dtype in narrow_floats(xp):
        low = x.astype(dtype)
        oracle = run(HOST, op, low.astype(np.float64), opset=opset, **attributes).astype(dtype)
        assert_same(run(xp, op, low, opset=opset, **attributes), oracle, ulps=1)


def test_swish_and_gelu_by_their_formulas(xp: Backend) -> None:
    swish = X / (1 + np.exp(-1.5 * X))
    assert_same(run(xp, ops.Swish, X, alpha=1.5), swish, ulps=16)
    gelu = np.array([0.5 * v * (1 + erf(v / 2**0.5)) for v in X])
    assert_same(run(xp, ops.Gelu, X), gelu, ulps=16)
    with pytest.raises(ValueError, match="approximate is 'fast'"):
        run(xp, ops.Gelu, X, approximate="fast")


@pytest.mark.parametrize("op", [ops.Relu, ops.Shrink], ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_of_integers(xp: Backend, op: Any, dtype: Any) -> None:
    x = np.arange(-4, 5).astype(dtype)
    expected = np.maximum(x, 0) if op is ops.Relu else np.trunc(run(HOST, op, x.astype(float)))
    assert_same(run(xp, op, x), expected.astype(dtype))


def test_shrink_of_unsigned(xp: Backend) -> None:
    x = np.arange(5, dtype=np.uint8)
    expected = np.array([0, 0, 0.5, 1.5, 2.5]).astype(np.uint8)
    assert_same(run(xp, ops.Shrink, x, lambd=1.5, bias=1.5), expected)


def test_infinities_and_nan_go_through(xp: Backend) -> None:
    x = np.array([-np.inf, np.inf, np.nan], F32)
    assert_same(run(xp, ops.Relu, x), np.array([0, np.inf, np.nan], F32))
    assert_same(run(xp, ops.Sigmoid, x), np.array([0, 1, np.nan], F32))
    assert_same(run(xp, ops.Softplus, x), np.array([0, np.inf, np.nan], F32))
    assert_same(run(xp, ops.Elu, x), np.array([-1, np.inf, np.nan], F32))


@pytest.mark.parametrize("shape", [(3, 1, 1), (1,), (4, 5), ()], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
def test_prelu(xp: Backend, shape: tuple[int, ...], dtype: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-5, 5, (2, 3, 4, 5)).astype(dtype)
    slope = rng.integers(-3, 3, shape).astype(dtype)
    assert_same(run(xp, ops.PRelu, x, slope), np.where(x < 0, slope * x, x))


def test_prelu_before_7_has_a_slope_per_channel(xp: Backend) -> None:
    x = np.linspace(-1, 1, 24, dtype=F32).reshape(2, 3, 4)
    slope = np.array([0.1, 0.2, 0.3], F32)
    expected = np.where(x < 0, slope[:, None] * x, x)
    assert_same(run(xp, ops.PRelu, x, slope, opset=6), expected)
    one = np.array([0.5], F32)
    assert_same(run(xp, ops.PRelu, x, one, opset=1), np.where(x < 0, one * x, x))
    with pytest.raises(ValueError, match="does not match"):
        run(xp, ops.PRelu, x, np.ones(4, F32), opset=6)


def test_selu_of_opset_1_has_shorter_defaults(xp: Backend) -> None:
    x = np.array([-1.0, 2.0])
    expected = 1.0507 * np.where(x > 0, x, 1.6732 * np.expm1(x))
    assert_same(run(xp, ops.Selu, x, opset=1), expected)


def test_celu_needs_a_scale(xp: Backend) -> None:
    with pytest.raises(ValueError, match="alpha must not be 0"):
        run(xp, ops.Celu, X, alpha=0.0)


@pytest.mark.parametrize("op", [ops.Elu, ops.Selu, ops.Celu, ops.Sigmoid, ops.Softplus, ops.Mish])
def test_gradients_stay_finite_far_out(op: Any) -> None:
    backend = JaxBackend()
    with backend.scope():
        slopes = jax.vmap(jax.grad(lambda x: op(backend, x)))(backend.put(X.astype(F32) * 30))
    assert np.isfinite(slopes).all()


NORMALISED = [ops.Softmax, ops.LogSoftmax, ops.Hardmax]


@pytest.mark.parametrize("opset", [7, 11, 13])
@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, None])
@pytest.mark.parametrize("op", NORMALISED, ids=lambda op: op.name)
@pytest.mark.sampled(3)
def test_normalised_along_an_axis(xp: Backend, op: Any, axis: int | None, opset: int) -> None:
    if opset == 7 and axis is not None and axis < 0:
        axis += 3  # negative axes came with opset 11
    attributes = {} if axis is None else {"axis": axis}
    x = np.random.default_rng(2).normal(size=(2, 3, 4)).astype(F32) * 20
    x[0, 1] = x[0, 2]
    expected = onnxruntime_run(op.name, x, opset=opset, **attributes)
    assert_same(run(xp, op, x, opset=opset, **attributes), expected, ulps=16)


@pytest.mark.parametrize("op", NORMALISED, ids=lambda op: op.name)
def test_normalised_at_the_edges(xp: Backend, op: Any) -> None:
    for opset in (11, 13):
        empty = np.zeros((0, 3), F32)
        assert_same(run(xp, op, empty, opset=opset), empty)
        with pytest.raises(ValueError, match="axis 2 is out of range for rank 2"):
            run(xp, op, empty, opset=opset, axis=2)
    huge = np.array([[1e30, -1e30, 1e30]], F32)
    assert np.isfinite(run(xp, ops.Softmax, huge)).all()
    for dtype in narrow_floats(xp):
        x = (np.random.default_rng(3).normal(size=(3, 500)) * 3).astype(dtype)
        oracle = run(HOST, op, x.astype(np.float64)).astype(dtype)
        assert_same(run(xp, op, x), oracle, ulps=1)


@pytest.mark.parametrize("backend", [HOST, JaxBackend()], ids=lambda backend: backend.name)
def test_rows_of_float16_are_rounded_step_by_step(backend: Backend) -> None:
    x = (np.random.default_rng(4).normal(size=(200, 6)) * 3).astype(np.float16)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    assert_same(run(backend, ops.Softmax, x), e / e.sum(axis=1, keepdims=True), ulps=0)
    flat = np.zeros((1, 2**17), np.float16)
    assert_same(run(backend, ops.Softmax, flat), np.full_like(flat, 2**-17), ulps=0)


def test_SwiGLU(xp: Backend) -> None:
    gate, x = np.random.default_rng(5).normal(size=(2, 3, 40))
    wanted = gate / (1 + np.exp(-1.5 * gate)) * x
    assert_same(run(xp, ops.SwiGLU, gate, x, alpha=1.5), wanted)
    for dtype in narrow_floats(xp):
        low = [gate.astype(dtype), x.astype(dtype)]
        oracle = run(HOST, ops.SwiGLU, *(v.astype(np.float64) for v in low)).astype(dtype)
        assert_same(run(xp, ops.SwiGLU, *low), oracle, ulps=1)
    with pytest.raises(ValueError, match="they must be equal"):
        run(xp, ops.SwiGLU, gate, x[:1])
