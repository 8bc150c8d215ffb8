"""Weights of 8-bit integers on CuPy, prepared ahead of all calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import TensorProto
from onnx.helper import np_dtype_to_tensor_dtype
from onnx.numpy_helper import from_array

import sardonyx
from tests.gpu.test_library_products import device_counts
from tests.support.onnx_builders import model, node, value

if TYPE_CHECKING:
    from sardonyx.backends.cupy.backend import CupyBackend

pytestmark = pytest.mark.gpu

pytest.importorskip("cupy", reason="no CuPy; pip install 'sardonyx[cuda]'")

BYTES = [np.dtype(np.int8), np.dtype(np.uint8)]
CENTRES = {BYTES[0]: 0, BYTES[1]: 128}


def integers(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int) -> np.ndarray[Any, Any]:
    limits = np.iinfo(dtype)
    x = np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape).astype(dtype)
    x.reshape(-1)[:1] = limits.min
    return x


def number(dtype: np.dtype[Any]) -> Any:
    return np_dtype_to_tensor_dtype(dtype)


def product(
    a: np.dtype[Any],
    weight: np.ndarray[Any, Any],
    a_zero: np.ndarray[Any, Any] | None,
    zero: np.ndarray[Any, Any] | None,
    rank: int = 2,
) -> Any:
    """A model of one MatMulInteger, whose weight and zero points are initializers."""
    given = {"w": weight, "az": a_zero, "wz": zero}
    tensors = [from_array(x, name) for name, x in given.items() if x is not None]
    names = ["x", "w", "az" if a_zero is not None else "", "wz" if zero is not None else ""]
    x = value("x", [*(f"n{i}" for i in range(rank - 1)), weight.shape[-2]], number(a))
    y = value("y", None, TensorProto.INT32)
    return model([node("MatMulInteger", names, ["y"])], [x], [y], tensors, opset=20)


def wide(x: Any, zero: Any) -> Any:
    return x.astype(np.int64) - (0 if zero is None else zero.astype(np.int64))


def called(loaded: Any, backend: CupyBackend, **feeds: Any) -> Any:
    """Return the result of a recorded call, after comparing it with replays and graphs."""
    placed = {name: backend.put(x) for name, x in feeds.items()}
    first, *others = (backend.fetch(loaded(**placed)) for _ in range(4))
    for other in others:
        np.testing.assert_array_equal(first, other)
    assert not loaded.stats().unfused
    return first


ZEROS: list[Any] = [None, "centre", 7, "each"]


@pytest.mark.parametrize("zero", ZEROS, ids=str)
@pytest.mark.parametrize("a_zero", [None, 5], ids=str)
@pytest.mark.parametrize("a", BYTES, ids=str)
@pytest.mark.parametrize("b", BYTES, ids=str)
def test_products(
    device: CupyBackend, a: np.dtype[Any], b: np.dtype[Any], a_zero: Any, zero: Any
) -> None:
    for left, right in (
        ((3, 40), (40, 33)),
        ((1, 2, 1500), (1500, 2)),
        ((16,), (16, 80)),
        ((2, 3, 17), (2, 17, 90)),
    ):
        x, weight = integers(left, a, 0), integers(right, b, 1)
        at = None if a_zero is None else np.asarray(a_zero, a)
        of_weight = {None: None, "centre": np.asarray(CENTRES[b], b), 7: np.asarray(7, b)}
        each = integers(right[:-2] + (1,) * (len(right) > 2) + right[-1:], b, 2)
        point = each if zero == "each" else of_weight[zero]
        loaded = sardonyx.load(product(a, weight, at, point, len(left)), backend=device)
        expected = wide(x, at) @ wide(weight, point)
        found = called(loaded, device, x=x)
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, expected.astype(np.int32))


def test_a_replaced_weight_is_prepared_again(device: CupyBackend) -> None:
    x, weight, other = (integers((64, 64), BYTES[0], seed) for seed in range(3))
    loaded = sardonyx.load(product(BYTES[1], weight, np.uint8(3), None), backend=device)
    left = x.view(np.uint8)
    for each in (weight, other, weight):
        loaded.params["w"] = each
        expected = wide(left, np.uint8(3)) @ wide(each, None)
        np.testing.assert_array_equal(called(loaded, device, x=left), expected)
        np.testing.assert_array_equal(device.fetch(loaded.params["w"]), each)


def test_a_weight_is_on_the_device_once(device: CupyBackend) -> None:
    weight = integers((64, 256), BYTES[0], 1)
    loaded = sardonyx.load(product(BYTES[1], weight, np.uint8(3), None), backend=device)
    sums = 4 * weight.shape[1]
    expected = None
    for rows in (3, 5):
        x = integers((rows, 64), BYTES[1], 0)
        expected = wide(x, np.uint8(3)) @ wide(weight, None)
        np.testing.assert_array_equal(called(loaded, device, x=x), expected)
        # Calls of other sizes read the same prepared weight.
        assert loaded.stats().bytes_held < weight.nbytes + sums + 64
    loaded.release()
    assert loaded.stats().bytes_held == 0
    np.testing.assert_array_equal(called(loaded, device, x=x), expected)


def test_a_weight_that_is_read_as_it_is_stays_on_the_device(device: CupyBackend) -> None:
    weight = integers((64, 64), BYTES[0], 1)
    nodes = [node("MatMulInteger", ["x", "w"], ["p"]), node("Cast", ["w"], ["c"], to=6)]
    nodes += [node("Sub", ["p", "c"], ["y"])]
    x, y = value("x", (64, 64), number(BYTES[0])), value("y", None, TensorProto.INT32)
    proto = model(nodes, [x], [y], [from_array(weight, "w")], opset=20)
    # The cast of the weight would grow it, so that it runs at each call.
    big = integers((64, 64), BYTES[0], 2)
    loaded = sardonyx.load(proto, backend=device)
    for _ in range(2):
        expected = wide(big, None) @ wide(weight, None) - weight
        np.testing.assert_array_equal(called(loaded, device, x=big), expected)


@pytest.mark.parametrize("b", BYTES, ids=str)
def test_other_operators(device: CupyBackend, b: np.dtype[Any]) -> None:
    draw = np.random.default_rng(0)
    weight, zero = integers((48, 72), b, 1), np.asarray(CENTRES[b] + 2, b)
    scale = draw.uniform(0.01, 0.02, 72).astype(np.float32)
    bias = draw.normal(size=72).astype(np.float32)
    one, zero_of_x = np.float32(0.02), np.uint8(100)
    known = {"w": weight, "wz": zero, "ws": scale, "b": bias, "s": one, "xz": zero_of_x}
    tensors = [from_array(np.asarray(x), name) for name, x in known.items()]
    microsoft = {"domain": "com.microsoft"}
    cases = [
        ("float32", node("DynamicQuantizeMatMul", ["x", "w", "ws", "wz", "b"], ["y"], **microsoft)),
        (
            "uint8",
            node(
                "MatMulIntegerToFloat", ["x", "w", "s", "ws", "xz", "wz", "b"], ["y"], **microsoft
            ),
        ),
    ]
    if b == np.uint8:
        inputs = ["x", "s", "xz", "w", "s", "wz", "s", "xz"]
        cases.append(("uint8", node("QLinearMatMul", inputs, ["y"])))
    for dtype, operator in cases:
        x = (draw.normal(size=(5, 48)) * 100 + 100).clip(0, 255).astype(dtype)
        to = TensorProto.UINT8 if operator.op_type == "QLinearMatMul" else TensorProto.FLOAT
        ends = [value("x", x.shape, number(x.dtype))], [value("y", None, to)]
        proto = model([operator], *ends, tensors, opset=20)
        expected = sardonyx.load(proto, backend="numpy")(x)
        found = called(sardonyx.load(proto, backend=device), device, x=x)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


def test_a_call_multiplies_and_no_more(device: CupyBackend) -> None:
    counts = device_counts()
    weight = integers((64, 32), BYTES[0], 1)
    loaded = sardonyx.load(product(BYTES[0], weight, None, np.int8(0)), backend=device)
    x = device.put(integers((16, 64), BYTES[0], 0))
    for _ in range(3):
        loaded(x=x)
    with counts.counted() as cost:
        loaded(x=x)
    assert (cost.kernels, cost.library_calls) == (0, 1)
