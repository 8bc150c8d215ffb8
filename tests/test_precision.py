"""How exactly float32 is multiplied, where a model is loaded with a precision."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.errors import InvalidInput
from tests.support.onnx_builders import model, node, value, weight

RNG = np.random.default_rng(0)
PRODUCT = model([node("MatMul", ["a", "b"], ["y"])], ["a", "b"], ["y"])
WINDOWS = model([node("Conv", ["a", "b"], ["y"])], [value("a"), value("b")], ["y"])
CASES = [
    (PRODUCT, (16, 64), (64, 8)),
    (PRODUCT, (3, 16, 64), (3, 64, 8)),
    (WINDOWS, (1, 4, 9, 9), (8, 4, 3, 3)),
]
IDS = ["matrices", "batches", "convolution"]


def operands(shape: tuple[int, ...], other: tuple[int, ...]) -> list[Any]:
    return [RNG.normal(size=each).astype(np.float32) for each in (shape, other)]


def rounded(array: Any) -> Any:
    return array.astype(ml_dtypes.bfloat16).astype(np.float32)


@pytest.mark.parametrize(("proto", "a", "b"), CASES, ids=IDS)
def test_factors_are_rounded_to_bfloat16_and_sums_are_not(proto: Any, a: Any, b: Any) -> None:
    x, w = operands(a, b)
    exact = sardonyx.load(proto, backend="numpy")
    found = sardonyx.load(proto, backend="jax", precision="bfloat16")(x, w)
    np.testing.assert_allclose(found, exact(rounded(x), rounded(w)), rtol=1e-5, atol=1e-5)
    assert np.abs(found - exact(x, w)).max() > 1e-3


@pytest.mark.parametrize(("proto", "a", "b"), CASES[::2], ids=IDS[::2])
def test_weights_are_rounded_like_inputs(proto: Any, a: Any, b: Any) -> None:
    x, w = operands(a, b)
    bound = onnx.ModelProto.FromString(proto.SerializeToString())
    bound.graph.initializer.append(weight("b", w))
    found = sardonyx.load(bound, backend="jax", precision="bfloat16")(x)
    expected = sardonyx.load(proto, backend="jax", precision="bfloat16")(x, w)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("precision", ["highest", "high"])
@pytest.mark.parametrize(("proto", "a", "b"), CASES, ids=IDS)
def test_float32_is_exact_on_the_cpu(proto: Any, a: Any, b: Any, precision: str) -> None:
    x, w = operands(a, b)
    found = sardonyx.load(proto, backend="jax", device="cpu", precision=precision)(x, w)
    expected = sardonyx.load(proto, backend="numpy")(x, w)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("proto", "a", "b"), CASES, ids=IDS)
@pytest.mark.sampled(3)
def test_derivatives_go_through(proto: Any, a: Any, b: Any) -> None:
    loaded = sardonyx.load(proto, backend="jax", precision="bfloat16")
    x, w = map(jnp.asarray, operands(a, b))
    slopes = jax.grad(lambda x, w: (loaded(x, w) ** 2).sum(), argnums=(0, 1))(x, w)
    assert all(slope.dtype == jnp.float32 and jnp.isfinite(slope).all() for slope in slopes)


@pytest.mark.parametrize("dtype", [np.float64, np.int32])
def test_other_types_are_left_alone(dtype: Any) -> None:
    kind = {np.float64: 11, np.int32: 6}[dtype]
    proto = model(
        [node("MatMul", ["a", "b"], ["y"])],
        [value("a", None, kind), value("b", None, kind)],
        [value("y", None, kind)],
    )
    x, w = (np.arange(6, dtype=dtype).reshape(s) + 0.123456789 for s in ((2, 3), (3, 2)))
    x, w = x.astype(dtype), w.astype(dtype)
    found = sardonyx.load(proto, backend="jax", precision="bfloat16")(x, w)
    np.testing.assert_allclose(found, x @ w, rtol=1e-12)


def test_a_precision_that_is_none() -> None:
    with pytest.raises(InvalidInput, match="no precision 'low'"):
        sardonyx.load(PRODUCT, precision="low")
