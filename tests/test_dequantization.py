"""Dequantization without a subtraction of zeros, and in the short type that XLA fuses on GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.backends.jax.xla_cuda.scaling import is_exact, scaled
from sardonyx.graph.values.kinds import is_zero
from tests.support.onnx_builders import model, node, value, weight

pytestmark = pytest.mark.sampled(3)

RNG = np.random.default_rng(5)
SHORT = ("int8", "uint8", "int4", "uint4", "float8_e4m3fn", "float8_e5m2")
HALVES = ("float16", "bfloat16")
# One zero point, few of them, which are known while tracing, and many, which are weights.
MANY = 2048
COLUMNS = pytest.mark.parametrize("columns", [None, 40, MANY])


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


def codes(dtype: np.dtype[Any]) -> np.ndarray:
    """All values of a type."""
    every = np.arange(256, dtype=np.uint8)
    if dtype.name.endswith("int4"):
        low = -8 if dtype.name == "int4" else 0
        return np.arange(low, low + 16).astype(dtype)
    return every.view(dtype)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("short", SHORT)
def test_products_in_a_short_type_are_those_of_float32(short: str, half: str) -> None:
    """Rounded once, for all codes and scales from the smallest numbers to the largest."""
    x, to = codes(dtype_of(short)), dtype_of(half)
    assert is_exact(x.dtype, to)
    bits = np.arange(0, 2**16, 37).astype(np.uint16)
    scale = bits.view(to)[:, None]
    with np.errstate(all="ignore"):
        wanted = (x.astype(np.float32) * scale.astype(np.float32)).astype(to)
    run = jax.jit(lambda x, s: scaled(x, s.astype(np.float32), dtype=to))
    found = np.asarray(run(x, scale))
    assert found.dtype == to
    # XLA for CPUs takes subnormal numbers of float32, as bfloat16 has them too, for zeros.
    least = float(ml_dtypes.finfo(to).tiny) if half == "bfloat16" else 0.0
    is_small = (np.abs(wide(wanted)) <= least) | (np.abs(wide(scale)) < least)
    found, wanted = found[~is_small], wanted[~is_small]
    is_nan = np.isnan(wide(wanted))
    np.testing.assert_array_equal(np.isnan(wide(found)), is_nan)
    np.testing.assert_array_equal(bits_of(found)[~is_nan], bits_of(wanted)[~is_nan])


def wide(x: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return x.astype(np.float64)


def bits_of(x: np.ndarray) -> np.ndarray:
    return x.view(np.uint16)


@pytest.mark.parametrize(
    ("short", "to"), [("int16", "float16"), ("int8", "float32"), ("float8_e4m3fnuz", "float16")]
)
def test_other_types_go_through_float32(short: str, to: str) -> None:
    assert not is_exact(dtype_of(short), dtype_of(to))


def dequantizing(zero_point: Any, columns: int | None, to: str = "float32") -> Any:
    """A product of `x` and dequantized weights, with a zero point for all or for each column."""
    w = RNG.integers(-128, 128, (48, columns or 40)).astype(np.int8)
    size = columns or ()
    scale = RNG.uniform(0.01, 0.1, size).astype(to)
    zeros = np.broadcast_to(np.asarray(zero_point, np.int8), size).copy()
    weights = [weight("w", w), weight("s", scale), weight("z", zeros)]
    nodes = [
        node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=1),
        node("MatMul", ["x", "d"], ["y"]),
    ]
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(to))
    return model(nodes, [value("x", (3, 48), kind)], [value("y", None, kind)], weights, opset=23)


def wanted_of(proto: Any, x: np.ndarray, **params: np.ndarray) -> np.ndarray:
    weights = {each.name: onnx.numpy_helper.to_array(each) for each in proto.graph.initializer}
    weights |= params
    codes = weights["w"].astype(np.float64) - weights["z"].astype(np.float64)
    return x.astype(np.float64) @ (codes * weights["s"].astype(np.float64))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("backend", ["numpy", "jax"])
@pytest.mark.parametrize("domain", ["", "com.microsoft"])
@pytest.mark.parametrize("inputs", [["x", "scale"], ["x", "scale", ""]], ids=len)
def test_zero_points_that_are_left_out(backend: str, domain: str, inputs: list[str]) -> None:
    proto = model(
        [node("DequantizeLinear", inputs, ["y"], domain=domain)],
        [value("x", ["n"], onnx.TensorProto.UINT8), value("scale", [])],
        ["y"],
        opset=21,
        com_microsoft=1,
    )
    loaded = sardonyx.load(proto, backend=backend)
    for _ in range(2):
        (found,) = loaded.run(None, {"x": np.array([255, 0], np.uint8), "scale": np.float32(0.5)})
        np.testing.assert_array_equal(found, np.array([127.5, 0], np.float32))


@pytest.mark.parametrize("backend", ["numpy", "jax"])
@COLUMNS
@pytest.mark.parametrize("zero_point", [0, 3])
@pytest.mark.parametrize("to", ["float32", "float16"])
def test_zero_points(backend: str, columns: int | None, zero_point: int, to: str) -> None:
    proto = dequantizing(zero_point, columns, to=to)
    x = RNG.normal(size=(3, 48)).astype(to)
    loaded = sardonyx.load(proto, backend=backend)
    tolerance = {"float32": 1e-4, "float16": 5e-2}[to]
    for _ in range(2):
        found = loaded.run(None, {"x": x})[0]
        assert found.dtype == np.dtype(to)
        np.testing.assert_allclose(found, wanted_of(proto, x), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("backend", ["numpy", "jax"])
@COLUMNS
def test_zero_points_may_be_replaced(backend: str, columns: int | None) -> None:
    proto = dequantizing(0, columns)
    x = RNG.normal(size=(3, 48)).astype(np.float32)
    loaded = sardonyx.load(proto, backend=backend)
    for zero_point in (0, 5, 0, -7):
        zeros = np.full(columns or (), zero_point, np.int8)
        loaded.params["z"] = zeros
        wanted = wanted_of(proto, x, z=zeros)
        for _ in range(2):
            found = loaded.run(None, {"x": x})[0]
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_what_was_kept_for_zeros_is_for_these_alone(tmp_path: Path) -> None:
    """Another process, which finds this recording, may have replaced the zero points."""
    proto = dequantizing(0, MANY)
    x = RNG.normal(size=(3, 48)).astype(np.float32)
    sardonyx.load(proto, backend="jax", cache=tmp_path, compile="now").run(None, {"x": x})
    for zero_point in (4, 0):
        loaded = sardonyx.load(proto, backend="jax", cache=tmp_path, compile="now")
        zeros = np.full(MANY, zero_point, np.int8)
        loaded.params["z"] = zeros
        found = loaded.run(None, {"x": x})[0]
        np.testing.assert_allclose(found, wanted_of(proto, x, z=zeros), rtol=1e-4, atol=1e-4)


def test_pure_functions_take_other_zero_points() -> None:
    proto = dequantizing(0, MANY)
    x = RNG.normal(size=(3, 48)).astype(np.float32)
    function, params = sardonyx.to_jax(proto)
    zeros = np.full(MANY, 9, np.int8)
    for z in (params["z"], zeros):
        wanted = wanted_of(proto, x, z=np.asarray(z))
        found = jax.jit(function)(params | {"z": z}, x)
        np.testing.assert_allclose(jax.tree.leaves(found)[0], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("array", "is_all_zero"),
    [
        (np.zeros((2, 3), np.int8), True),
        (np.zeros((), ml_dtypes.float8_e4m3fn), True),
        (np.zeros((0, 3), np.float32), True),
        (np.zeros(5, ml_dtypes.int4), True),
        (np.zeros((4, 6), np.int8).T[::2], True),
        (np.full(3, -0.0, np.float32), False),
        (np.eye(3, dtype=np.int8), False),
    ],
)
def test_zeros(array: np.ndarray, is_all_zero: bool) -> None:
    assert is_zero(array) == is_all_zero
