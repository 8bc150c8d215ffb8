from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from onnx import ValueInfoProto, helper

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST
from sardonyx.ops import OPS
from tests.ops.microsoft.quantized import (
    BYTES,
    DOMAIN,
    assert_as_onnxruntime,
    floats,
    integers,
    scales,
)
from tests.ops.oracle import run

ALL_PAIRS = [np.repeat(np.arange(256), 256), np.tile(np.arange(256), 256)]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])
@pytest.mark.parametrize(
    ("shape", "granularity", "attributes"),
    [((2, 3, 4), (), {}), ((2, 3, 4), (3,), {}), ((2, 3, 4), (4,), {"axis": -1}), ((0, 3), (), {})],
)
def test_arrays_are_quantized_and_back(
    xp: Backend, dtype: str, shape: Any, granularity: Any, attributes: Any
) -> None:
    x, scale = floats(*shape), scales(*granularity)
    zero = integers(dtype, *granularity)
    assert_as_onnxruntime(xp, "QuantizeLinear", x, scale, zero, **attributes)
    y = integers(dtype, *shape)
    assert_as_onnxruntime(xp, "DequantizeLinear", y, scale, zero, **attributes)
    assert_as_onnxruntime(xp, "DequantizeLinear", y, scale, None, **attributes)


def test_no_zero_point_stands_for_uint8(xp: Backend) -> None:
    assert_as_onnxruntime(xp, "QuantizeLinear", floats(50), scales())


@pytest.mark.parametrize("name", ["int4", "uint4"])
@pytest.mark.parametrize("backend", [HOST, JaxBackend()], ids=lambda backend: backend.name)
def test_integers_of_four_bits(backend: Backend, name: str) -> None:
    # array_api_strict has none, and NumPy's arrays do not enter onnxruntime.
    dtype = np.dtype(getattr(ml_dtypes, name))
    x, scale, zero = floats(3, 40) * 3, scales(3) + 1, np.array([1, 2, 3]).astype(dtype)
    info = ml_dtypes.iinfo(dtype)
    zeros = zero.astype(np.float32)[:, None]
    expected = np.clip(np.rint(x / scale[:, None]) + zeros, int(info.min), int(info.max))
    y = run(backend, OPS[DOMAIN, "QuantizeLinear"], x, scale, zero, axis=0)
    assert y.dtype == dtype
    np.testing.assert_array_equal(y.astype(np.float32), expected)
    back = run(backend, OPS[DOMAIN, "DequantizeLinear"], y, scale, zero, axis=0)
    np.testing.assert_array_equal(back, (expected - zeros).astype(np.float32) * scale[:, None])


@pytest.mark.parametrize("dtype", BYTES, ids=str)
@pytest.mark.parametrize("name", ["QLinearAdd", "QLinearMul"])
def test_all_pairs_of_bytes_are_combined_exactly(xp: Backend, name: str, dtype: Any) -> None:
    a, b = (x.astype(np.uint8).view(dtype) for x in ALL_PAIRS)
    for seed in range(6):
        one, other, third = (scales(seed=seed + 10 * i) for i in range(3))
        zeros = [integers(dtype, seed=seed + 10 * i) for i in range(3)]
        third = np.asarray(third * 10) if name == "QLinearMul" else third
        assert_as_onnxruntime(xp, name, a, one, zeros[0], b, other, zeros[1], third, zeros[2])


@pytest.mark.parametrize("is_swapped", [True, False])
def test_a_term_that_is_constant_in_rows(xp: Backend, is_swapped: bool) -> None:
    rows, columns = (x.astype(np.uint8) for x in (np.arange(256)[:, None, None], np.arange(256)))
    zero = np.array(3, np.uint8)
    for seed in range(6):
        terms = [(rows, scales(seed=seed), zero), (columns[:, None], scales(seed=seed + 9), zero)]
        one, other = reversed(terms) if is_swapped else terms
        assert_as_onnxruntime(xp, "QLinearAdd", *one, *other, scales(seed=seed + 20), zero)


@pytest.mark.parametrize("name", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize(
    ("one", "other"), [((2, 3, 4), (3, 4)), ((3, 1), (1, 4)), ((), (5,)), ((0, 3), (3,))]
)
def test_operands_broadcast_and_zero_points_may_be_absent(
    xp: Backend, name: str, one: Any, other: Any
) -> None:
    a, b = integers(np.int8, *one), integers(np.int8, *other, seed=1)
    s, t, u = (np.array(v, np.float32) for v in (0.3, 0.2, 0.7))
    zero, five = np.array(0, np.int8), np.array(5, np.int8)
    assert_as_onnxruntime(xp, name, a, s, zero, b, t, five, u)
    # onnxruntime takes no node without the two zero points in between.
    op = OPS[DOMAIN, name]
    expected = run(xp, op, a, s, zero, b, t, zero, u, zero)
    np.testing.assert_array_equal(run(xp, op, a, s, None, b, t, None, u, None), expected)


def test_products_of_integers(xp: Backend) -> None:
    a, b = integers(np.int8, 3, 1), integers(np.int8, 4, seed=1)
    zero = np.array(-128, np.int8)
    y = run(xp, OPS[DOMAIN, "MulInteger"], a, zero, b, None)
    np.testing.assert_array_equal(y, (a.astype(np.int32) + 128) * b.astype(np.int32))
    assert y.dtype == np.int32


@pytest.mark.parametrize("dtype", BYTES, ids=str)
@pytest.mark.parametrize("has_zero", [True, False])
@pytest.mark.parametrize(
    ("name", "attributes", "units"),
    # onnxruntime's sigmoid is an approximation, after which a value may lie on the other side.
    [
        ("QLinearSigmoid", {}, 1),
        ("QLinearLeakyRelu", {}, 0),
        ("QLinearLeakyRelu", {"alpha": -0.5}, 0),
    ],
)
def test_activations_of_all_bytes(
    xp: Backend, name: str, attributes: Any, units: int, has_zero: bool, dtype: Any
) -> None:
    x = np.arange(256).astype(np.uint8).view(dtype).reshape(4, 64)
    zeros = [np.array(n, np.uint8).view(dtype) if has_zero else None for n in (100, 30)]
    inputs = (x, np.array(0.07, np.float32), zeros[0], np.array(0.004, np.float32), zeros[1])
    assert_as_onnxruntime(xp, name, *inputs, units=units, **attributes)


@pytest.mark.parametrize("dtype", BYTES, ids=str)
@pytest.mark.parametrize(
    ("shape", "opset", "axis"),
    [((9, 300), 13, -1), ((2, 3, 4), 13, 1), ((2, 3, 4), 12, 1), ((2, 3, 4), 12, 0), ((5,), 13, 0)],
)
def test_softmax(xp: Backend, dtype: Any, shape: Any, opset: int, axis: int) -> None:
    lowest = np.array(np.iinfo(dtype).min, dtype)
    for scale in (0.01, 0.1, 2.0):
        inputs = [integers(dtype, *shape), np.float32(scale), lowest, np.float32(1 / 256), lowest]
        model = softmax_model([np.asarray(x) for x in inputs], opset, axis)
        feeds = {f"x{i}": np.asarray(x) for i, x in enumerate(inputs)}
        session = onnxruntime.InferenceSession(model.SerializeToString())
        (expected,) = session.run(None, feeds)
        result = sardonyx.load(model, backend=xp)(**feeds)
        np.testing.assert_array_equal(np.asarray(result), expected)


def softmax_model(inputs: list[np.ndarray], opset: int, axis: int) -> Any:
    """A model with the attribute `opset`, which is also a parameter of the oracle's functions."""
    typed = [
        helper.make_tensor_value_info(f"x{i}", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for i, x in enumerate(inputs)
    ]
    names = [each.name for each in typed]
    node = helper.make_node("QLinearSoftmax", names, ["y"], domain=DOMAIN, opset=opset, axis=axis)
    graph = helper.make_graph([node], "softmax", typed, [ValueInfoProto(name="y")])
    opsets = [helper.make_opsetid(DOMAIN, 1), helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize("dtype", BYTES, ids=str)
def test_parts_of_other_scales_are_joined(xp: Backend, dtype: Any) -> None:
    parts: list[np.ndarray] = []
    for i, length in enumerate((3, 0, 5)):
        parts += [integers(dtype, 2, length, 4, seed=i), scales(seed=i), integers(dtype, seed=i)]
    inputs = (scales(seed=7), integers(dtype, seed=7), *parts)
    for axis in (1, -2):
        assert_as_onnxruntime(xp, "QLinearConcat", *inputs, axis=axis)


@pytest.mark.parametrize("dtype", BYTES, ids=str)
def test_elements_are_chosen(xp: Backend, dtype: Any) -> None:
    condition = np.array([[True], [False], [True]])
    one = (integers(dtype, 50), scales(seed=1), integers(dtype, seed=1))
    other = (integers(dtype, 3, 50), scales(seed=2), integers(dtype, seed=2))
    to = (scales(seed=3), integers(dtype, seed=3))
    assert_as_onnxruntime(xp, "QLinearWhere", condition, *one, *other, *to)


BYTE, ONE = np.zeros(3, np.uint8), np.ones((), np.float32)
ZERO = np.zeros((), np.uint8)


@pytest.mark.parametrize(
    ("name", "inputs", "attributes", "message"),
    [
        ("QLinearAdd", (BYTE, np.ones(3, np.float32), ZERO, BYTE, ONE, ZERO, ONE), {}, "single"),
        ("QLinearAdd", (BYTE, ONE, BYTE, BYTE, ONE, ZERO, ONE), {}, "single number"),
        ("QLinearAdd", (BYTE, ONE, ZERO, floats(3), ONE, ZERO, ONE), {}, "float32"),
        ("QLinearMul", (floats(3), ONE, ZERO, BYTE, ONE, ZERO, ONE), {}, "float32"),
        ("QLinearConcat", (ONE, ZERO, BYTE, ONE), {"axis": 0}, "in turn"),
        ("QLinearConcat", (ONE, ZERO, BYTE, ONE, ZERO), {"axis": 1}, "axis 1"),
        ("QuantizeLinear", (floats(3), np.ones(2, np.float32)), {"axis": 0}, "needs shape"),
    ],
)
def test_refusals(xp: Backend, name: str, inputs: Any, attributes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(xp, OPS[DOMAIN, name], *inputs, **attributes)


def test_a_node_may_leave_out_an_input_between_others(xp: Backend) -> None:
    inputs = [BYTE, ONE, None, BYTE + 2, ONE, None, ONE]
    result = sardonyx.run_op("QLinearAdd", *inputs, domain=DOMAIN, opset=1, backend=xp)
    np.testing.assert_array_equal(np.asarray(result), BYTE + 2)
