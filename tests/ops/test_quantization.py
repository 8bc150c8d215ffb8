from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.dtypes import isdtype
from sardonyx.backends.numpy import HOST
from sardonyx.graph.standard.types import number_of
from sardonyx.ops.quantization import (
    QUANTIZED_TYPES,
    ConvInteger,
    DequantizeLinear,
    DynamicQuantizeLinear,
    MatMulInteger,
    QLinearConv,
    QLinearMatMul,
    QuantizeLinear,
)
from tests.conftest import as_parameter, backends_present
from tests.ops.oracle import assert_same, onnxruntime_run, run
from tests.support.byte_products import byte_factors
from tests.support.types_present import lacks, with_narrow_types

FLOAT32 = np.dtype(np.float32)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT8E8M0 = np.dtype(ml_dtypes.float8_e8m0fnu)
BYTES = [np.dtype(np.uint8), np.dtype(np.int8)]
WITH_NARROW = pytest.mark.parametrize("backend", with_narrow_types())


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def integers(dtype: Any, *shape: int, seed: int = 0) -> np.ndarray:
    info = np.iinfo(dtype)
    rng = np.random.default_rng([seed, *shape])
    return np.asarray(rng.integers(info.min, info.max + 1, shape)).astype(dtype)


def scales(*shape: int, seed: int = 0) -> np.ndarray:
    drawn = np.random.default_rng([seed, *shape]).uniform(0.01, 0.1, shape)
    return np.asarray(drawn).astype(np.float32)


def reference(op: str, *inputs: np.ndarray, opset: int, **attributes: Any) -> np.ndarray:
    names = [f"x{i}" for i in range(len(inputs))]
    typed = [
        helper.make_tensor_value_info(n, number_of(v.dtype), v.shape)
        for n, v in zip(names, inputs, strict=True)
    ]
    made = helper.make_tensor_value_info("y", TensorProto.UNDEFINED, None)
    node = helper.make_node(op, names, ["y"], **attributes)
    model = helper.make_model(
        helper.make_graph([node], op, typed, [made]),
        opset_imports=[helper.make_opsetid("", opset)],
    )
    results: Any = ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=True)))
    made_by_reference: np.ndarray = results[0]
    return made_by_reference


# -- to few bits ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*BYTES, np.dtype(np.uint16), np.dtype(np.int16)], ids=str)
def test_quotients_are_rounded_once_and_their_halves_to_even(xp: Backend, dtype: Any) -> None:
    # A compiler that multiplies by 1 / scale misses some of these.
    for seed in range(5):
        scale = scales(seed=seed)
        x = np.concatenate([np.arange(-700, 700) * (scale / 2), [3e38, -3e38, np.inf, -np.inf]])
        x, zero = x.astype(np.float32), np.array(3, dtype)
        expected = onnxruntime_run("QuantizeLinear", x, scale, zero, opset=21)
        assert_same(run(xp, QuantizeLinear, x, scale, zero), expected)


@WITH_NARROW
@pytest.mark.parametrize("dtype", [np.dtype(np.float16), BFLOAT16], ids=str)
def test_the_scale_says_in_which_type_to_divide(backend: Backend, dtype: Any) -> None:
    x, scale = (drawn(5000) * 20), scales().astype(dtype)
    quotient = (x.astype(dtype) / scale).astype(np.float32)
    expected = np.clip(np.rint(quotient), 0, 255).astype(np.uint8)
    assert_same(run(backend, QuantizeLinear, x.astype(dtype), scale), expected)
    assert_same(run(backend, QuantizeLinear, x, scale), expected)
    wide = np.clip(np.rint(x / scale.astype(np.float32)), 0, 255).astype(np.uint8)
    assert_same(run(backend, QuantizeLinear, x, scale, precision=FLOAT32), wide)
    assert (wide != expected).any()


def test_integers_are_divided_exactly(xp: Backend) -> None:
    scale = np.array(2**23 + 1, np.int32)
    x = np.array([0, 1, -1, 2]) + np.array([[5], [15], [251]]) * ((2**23 + 1) // 2)
    x = x.astype(np.int32)
    halves = np.rint(x.astype(np.float64) / scale.astype(np.float64))
    y = run(xp, QuantizeLinear, x, scale, opset=19)
    assert_same(y, np.clip(halves, 0, 255).astype(np.uint8))


GRANULARITIES: dict[str, tuple[Any, ...]] = {
    "one of a vector": ((7,), (1,), {}),
    "axis": ((2, 3, 4), (3,), {}),
    "first axis": ((2, 3, 4), (2,), {"axis": -3}),
    "axis of a vector": ((5,), (5,), {"axis": 0}),
    "blocks": ((2, 6, 4), (2, 3, 4), {"block_size": 2}),
    "blocks with a rest": ((2, 3, 7), (2, 3, 3), {"block_size": 3, "axis": -1}),
    "blocks of all": ((3, 4), (1, 4), {"block_size": 3, "axis": 0}),
}


@pytest.mark.parametrize("case", GRANULARITIES.values(), ids=GRANULARITIES.keys())
def test_scales_are_spread_as_in_onnxruntime(xp: Backend, case: tuple[Any, ...]) -> None:
    shape, granularity, attributes = case
    x, scale, zero = drawn(*shape) * 3, scales(*granularity), integers(np.int8, *granularity)
    expected = onnxruntime_run("QuantizeLinear", x, scale, zero, opset=21, **attributes)
    assert_same(run(xp, QuantizeLinear, x, scale, zero, **attributes), expected)
    back = onnxruntime_run("DequantizeLinear", expected, scale, zero, opset=21, **attributes)
    assert_same(run(xp, DequantizeLinear, expected, scale, zero, **attributes), back, ulps=0)


@pytest.mark.parametrize(
    ("dtype", "backend"),
    [
        as_parameter(backend, dtype, name=str(dtype))
        for backend in backends_present()
        for dtype in sorted(QUANTIZED_TYPES, key=str)
        # XLA computes in no floats of six bits.
        if not lacks(backend, dtype)
        and not (backend.name == "jax" and dtype.name.startswith("float6"))
    ],
)
def test_every_type_is_quantized_to_and_back(dtype: Any, backend: Backend) -> None:
    x = np.concatenate([drawn(200) * 4, [0, 1e-9, 500, -500, 6e4, -6e4, np.inf, -np.inf]])
    x, scale = x.astype(np.float32), scales() * 8
    zero = np.array(1 if isdtype(dtype, "integral") else 0, dtype)
    opset = 28 if dtype.name.startswith("float6") else 25
    y = sardonyx.run_op("QuantizeLinear", x, scale, zero, opset=opset, backend=backend)
    expected = quantized(x, scale, zero)
    np.testing.assert_array_equal(y.astype(np.float32), expected.astype(np.float32))
    back = sardonyx.run_op("DequantizeLinear", expected, scale, zero, opset=opset, backend=backend)
    difference = expected.astype(np.float32) - zero.astype(np.float32)
    assert_same(back, difference * scale, ulps=0)


def quantized(x: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """By the standard's formula, in NumPy's words."""
    quotient, limits = x / scale, limits_of(zero.dtype)
    if isdtype(zero.dtype, "integral"):
        moved = np.rint(quotient) + zero.astype(np.float32)
        quotient = np.clip(moved, *limits).astype(np.int32)
    result: np.ndarray = np.clip(quotient, *limits).astype(zero.dtype)
    return result


def limits_of(dtype: Any) -> tuple[float, float]:
    info: Any = ml_dtypes.iinfo if isdtype(dtype, "integral") else ml_dtypes.finfo
    return float(info(dtype).min), float(info(dtype).max)


@WITH_NARROW
@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2"])
def test_short_floats_saturate_if_told_to(backend: Backend, saturate: int, name: str) -> None:
    zero = np.zeros((), np.dtype(name))
    x = np.array([1e6, -1e6, np.nan, np.inf, 3, -0.4], np.float32)
    one = np.ones((), np.float32)
    expected = reference("QuantizeLinear", x, one, zero, opset=21, saturate=saturate)
    y = run(backend, QuantizeLinear, x, one, zero, saturate=saturate)
    np.testing.assert_array_equal(y.astype(np.float32), expected.astype(np.float32))


@WITH_NARROW
def test_scales_may_be_powers_of_two_and_results_of_other_types(backend: Backend) -> None:
    x, scale = drawn(3, 8) * 9, np.array([[0.5, 2], [0.25, 4], [1, 1]]).astype(FLOAT8E8M0)
    blocks = {"axis": 1, "block_size": 4}
    y = run(backend, QuantizeLinear, x, scale, output_dtype=np.dtype(np.int16), **blocks)
    spread = np.repeat(scale.astype(np.float32), 4, axis=1)
    assert_same(y, np.rint(x / spread).astype(np.int16))
    back = run(backend, DequantizeLinear, y, scale, output_dtype=BFLOAT16, **blocks)
    assert_same(back, (y.astype(np.float32) * spread).astype(BFLOAT16), ulps=0)


@WITH_NARROW
def test_products_are_rounded_once(backend: Backend) -> None:
    # Neither differences nor scales of 16 bits fit float16.
    x, zero, scale = integers(np.int16, 1000), integers(np.int16), scales() / 100
    exact = (x.astype(np.float32) - zero) * scale
    half = np.dtype(np.float16)
    y = run(backend, DequantizeLinear, x, scale, zero, output_dtype=half)
    assert_same(y, exact.astype(half), ulps=0)


def test_no_type_is_said_by_number_0() -> None:
    x, scale = np.array([1.0, 2.4], np.float32), np.float32(0.5)
    y = sardonyx.run_op("QuantizeLinear", x, scale, opset=23, output_dtype=0, precision=0)
    assert_same(y, np.array([2, 5], np.uint8))


DYNAMIC: dict[str, np.ndarray] = {
    "both signs": drawn(3, 50),
    "positive": np.abs(drawn(50)) + np.float32(1),
    "negative": -np.abs(drawn(50)) - np.float32(1),
    "zeros": np.zeros((2, 2), np.float32),
    "nothing": np.zeros((0, 2), np.float32),
}


@pytest.mark.parametrize("x", DYNAMIC.values(), ids=DYNAMIC.keys())
def test_DynamicQuantizeLinear_is_that_of_onnxruntime(xp: Backend, x: np.ndarray) -> None:
    expected = onnxruntime_run("DynamicQuantizeLinear", x, opset=11, outputs=3)
    for y, z in zip(run(xp, DynamicQuantizeLinear, x), expected, strict=True):
        assert_same(y, z, ulps=0)


# -- products -------------------------------------------------------------------------------------


@pytest.mark.parametrize("one", BYTES, ids=str)
@pytest.mark.parametrize("other", BYTES, ids=str)
@pytest.mark.parametrize(
    ("a", "b", "a_zero", "b_zero"),
    [
        ((5, 300), (300, 7), (), ()),
        ((5, 30), (30, 7), (5,), (7,)),
        ((2, 3, 5, 8), (3, 8, 7), (2, 3, 5, 1), (3, 1, 7)),
        ((30,), (30, 7), (1,), (7,)),
        ((2, 5, 30), (30,), (2, 5, 1), ()),
        ((30,), (30,), None, ()),
        ((4, 0), (0, 3), (), (3,)),
    ],
)
def test_products_of_bytes_are_exact(
    xp: Backend, *, one: Any, other: Any, a: Any, b: Any, a_zero: Any, b_zero: Any
) -> None:
    inputs = [integers(one, *a), integers(other, *b, seed=1)]
    zeros = [
        None if shape is None else integers(dtype, *shape, seed=2)
        for dtype, shape in ((one, a_zero), (other, b_zero))
    ]
    left, right = (x.astype(np.int64) for x in inputs)
    if zeros[0] is not None:
        zero = zeros[0].astype(np.int64)
        left = left - (zero[:, None] if zero.ndim == 1 and len(a) > 1 else zero)
    if zeros[1] is not None:
        right = right - zeros[1].astype(np.int64)
    y = run(xp, MatMulInteger, *inputs, *zeros)
    assert_same(y, (left @ right).astype(np.int32))


@pytest.mark.parametrize("dtype", BYTES, ids=str)
def test_sums_overflow_in_32_bits_alone(xp: Backend, dtype: Any) -> None:
    info = np.iinfo(dtype)
    for value in (info.min, info.max):
        a, zero = np.full((1, 40_000), value, dtype), np.array(info.max - value + info.min, dtype)
        square = (int(value) - int(zero)) ** 2 * a.size
        y = run(xp, MatMulInteger, a, a.T, zero, zero)
        assert_same(y, np.array([[square]]).astype(np.int32))


@pytest.mark.parametrize("dtypes", [(0, 0), (0, 1), (1, 1)])
def test_QLinearMatMul_is_that_of_onnxruntime(xp: Backend, dtypes: tuple[int, int]) -> None:
    one, other = (BYTES[i] for i in dtypes)
    for per_column in ((), (7,)):
        inputs = (
            *(integers(one, 2, 5, 30), scales(), integers(one, seed=3)),
            *(
                byte_factors(integers(other, 30, 7)),
                scales(*per_column),
                integers(other, *per_column),
            ),
            *(np.array(2.5, np.float32), integers(one, seed=4)),
        )
        expected = onnxruntime_run("QLinearMatMul", *inputs, opset=10)
        assert_same(run(xp, QLinearMatMul, *inputs), expected)


def test_QLinearMatMul_has_scales_for_rows_too(xp: Backend) -> None:
    a, b = integers(np.int8, 4, 6), integers(np.int8, 6, 3)
    one, other, third = scales(4), scales(1, 3), scales(4, 1, seed=1)
    zeros = [integers(np.int8, *shape) // 2 for shape in ((4,), (1, 3), (4, 1))]
    product = (a - zeros[0][:, None].astype(np.float64)) @ (b - zeros[1].astype(np.float64))
    factor = one[:, None] * other / third
    expected = np.rint(product.astype(np.float32) * factor) + zeros[2]
    y = run(xp, QLinearMatMul, a, one, zeros[0], b, other, zeros[1], third, zeros[2])
    assert_same(y, np.clip(expected, -128, 127).astype(np.int8))


@WITH_NARROW
def test_QLinearMatMul_multiplies_short_floats(backend: Backend) -> None:
    short = np.dtype(ml_dtypes.float8_e4m3fn)
    a, b = drawn(4, 6).astype(short), drawn(6, 3).astype(short)
    half, nothing = np.array(0.5, np.float16), np.zeros((), short)
    inputs = (a, half, nothing, b, half, nothing, half * half * half, nothing)
    y = sardonyx.run_op("QLinearMatMul", *inputs, opset=21, backend=backend)
    assert_same(y, (a.astype(np.float32) @ b.astype(np.float32) * 2).astype(short), ulps=0)


@WITH_NARROW
@pytest.mark.parametrize("is_left_short", [False, True])
def test_QLinearMatMul_multiplies_short_floats_by_integers(
    backend: Backend, is_left_short: bool
) -> None:
    short = np.dtype(ml_dtypes.float8_e4m3fn)
    a: np.ndarray = integers(np.uint8, 4, 6)
    b: np.ndarray = integers(np.int8, 6, 3)
    if is_left_short:
        a = drawn(4, 6).astype(short)
    else:
        b = drawn(6, 3).astype(short)
    zeros = [np.array(0.5, short) if x.dtype == short else np.array(7, x.dtype) for x in (a, b)]
    one, eighth = np.array(1, np.float32), np.array(8, np.float32)
    inputs = a, one, zeros[0], b, one, zeros[1], eighth, np.array(3, np.int8)
    product = (a.astype(float) - float(zeros[0])) @ (b.astype(float) - float(zeros[1]))
    expected = np.clip(np.rint(product / 8) + 3, -128, 127).astype(np.int8)
    y = sardonyx.run_op("QLinearMatMul", *inputs, opset=21, backend=backend)
    assert_same(y, expected)


CONVOLUTIONS: dict[str, tuple[Any, ...]] = {
    "plain": ((2, 6, 7, 6), (4, 6, 3, 2), {}),
    "padded": ((2, 3, 7, 6), (4, 3, 3, 2), {"pads": [0, 1, 2, 3], "strides": [2, 1]}),
    "dilated": ((1, 2, 9, 9), (3, 2, 3, 3), {"dilations": [2, 3], "pads": [1] * 4}),
    "same": ((1, 2, 8, 7), (3, 2, 3, 4), {"auto_pad": "SAME_LOWER", "strides": [2, 3]}),
    "groups": ((2, 6, 7, 7), (4, 3, 3, 3), {"group": 2, "pads": [1] * 4}),
    "depthwise": ((2, 5, 7, 7), (10, 1, 3, 3), {"group": 5, "strides": [2, 2], "pads": [1] * 4}),
    "depthwise, large": ((1, 2, 17, 17), (2, 1, 17, 17), {"group": 2, "pads": [8] * 4}),
    "1-D": ((2, 3, 11), (4, 3, 3), {"strides": [2], "pads": [1, 2]}),
    "3-D": ((1, 2, 5, 6, 4), (3, 2, 2, 3, 2), {"pads": [1, 0, 1, 0, 1, 1]}),
}


@pytest.mark.parametrize("case", CONVOLUTIONS.values(), ids=CONVOLUTIONS.keys())
@pytest.mark.sampled(3)
def test_convolutions_of_bytes_are_those_of_onnxruntime(xp: Backend, case: tuple[Any, ...]) -> None:
    x, w = integers(np.uint8, *case[0]), byte_factors(integers(np.int8, *case[1]))
    filters = len(w)
    given: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in case[2].items()}
    zeros = integers(np.uint8), integers(np.int8)
    expected = onnxruntime_run("ConvInteger", x, w, *zeros, opset=10, **case[2])
    assert_same(run(xp, ConvInteger, x, w, *zeros, **given), expected)
    assert_same(
        run(xp, ConvInteger, x, w, **given),
        onnxruntime_run("ConvInteger", x, w, opset=10, **case[2]),
    )
    bias = np.arange(filters, dtype=np.int32) * 1000
    inputs = (
        *(x, scales(), zeros[0], w, scales(filters), np.zeros(filters, np.int8)),
        *(np.array(2.5, np.float32), np.array(128, np.uint8), bias),
    )
    expected = onnxruntime_run("QLinearConv", *inputs, opset=10, **case[2])
    assert_same(run(xp, QLinearConv, *inputs, **given), expected)


def test_each_filter_may_have_a_zero_point(xp: Backend) -> None:
    for groups in (1, 2, 4):
        x, w = integers(np.int8, 2, 4, 6, 6), integers(np.uint8, 8, 4 // groups, 3, 3)
        x_zero, w_zero = integers(np.int8), integers(np.uint8, 8)
        centred = w.astype(np.int32) - w_zero.reshape(8, 1, 1, 1)
        lifted = x.astype(np.int32) - x_zero
        layout: Any = {"strides": (1, 1), "pads": ((1, 1),) * 2, "dilations": (1, 1)}
        expected = HOST.convolution(lifted, centred, groups=groups, **layout)
        y = run(xp, ConvInteger, x, w, x_zero, w_zero, group=groups, pads=(1,) * 4)
        assert_same(y, expected)


def test_convolutions_of_bytes_take_an_empty_batch(xp: Backend) -> None:
    x, w = integers(np.uint8, 0, 4, 6, 6), integers(np.int8, 8, 2, 3, 3)
    y = run(xp, ConvInteger, x, w, integers(np.uint8), integers(np.int8), group=2)
    assert_same(y, np.zeros((0, 8, 4, 4), np.int32))


# -- refusals -------------------------------------------------------------------------------------

X = drawn(2, 3, 4)


@pytest.mark.parametrize(
    ("inputs", "attributes", "message"),
    [
        ((X, scales(3)), {"axis": 3}, "axis 3 is out of range"),
        ((X, scales(3)), {"axis": 2}, "needs shape"),
        ((X, scales(2, 3)), {}, "needs shape"),
        ((X, scales(2, 2, 4)), {"block_size": 3}, "in blocks of 3"),
        ((X, scales(2, 1, 4)), {"block_size": -1}, "block_size"),
        ((X, scales(3), np.zeros(2, np.int8)), {}, "but the zero point has"),
        ((X, scales(), np.zeros((), np.int8)), {"output_dtype": np.dtype(np.uint8)}, "int8"),
        ((X, scales()), {"output_dtype": np.dtype(np.int32)}, "int32"),
        ((X, scales()), {"output_dtype": FLOAT32}, "float32"),
        ((X, scales()), {"precision": np.dtype(np.int8)}, "precision"),
    ],
)
def test_QuantizeLinear_refuses(xp: Backend, inputs: Any, attributes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(xp, QuantizeLinear, *inputs, **attributes)


BYTE, ONE = np.zeros((), np.int8), np.ones((), np.float32)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "message"),
    [
        (DequantizeLinear, (integers(np.int8, 3), ONE), {"output_dtype": BYTE.dtype}, "int8"),
        (
            MatMulInteger,
            (integers(np.int8, 2, 3), integers(np.int8, 2, 3)),
            {},
            "cannot be multiplied",
        ),
        (MatMulInteger, (BYTE, integers(np.int8, 2)), {}, "a scalar is not a matrix"),
        (
            MatMulInteger,
            (integers(np.int8, 2, 3), integers(np.int8, 3, 4), np.zeros(3, np.int8)),
            {},
            "does not broadcast",
        ),
        (
            ConvInteger,
            (integers(np.int8, 1, 2, 5), integers(np.int8, 2, 2, 3), np.zeros(2, np.int8)),
            {},
            "single number",
        ),
        (
            ConvInteger,
            (integers(np.int8, 1, 2, 5), integers(np.int8, 2, 2, 3), BYTE, np.zeros(3, np.int8)),
            {},
            "2 filters",
        ),
        (ConvInteger, (integers(np.int8, 1, 2, 5), integers(np.int8, 2, 1, 3)), {}, "channels"),
        (
            ConvInteger,
            (integers(np.int8, 1, 2, 5), integers(np.int8, 2, 2, 3)),
            {"strides": (0,)},
            "strides",
        ),
    ],
)
def test_others_refuse(xp: Backend, *, op: Any, inputs: Any, attributes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(xp, op, *inputs, **attributes)


def test_products_of_an_empty_batch(xp: Backend) -> None:
    x = np.ones((0, 2, 5, 5), np.uint8)
    w, zero = np.ones((4, 2, 3, 3), np.uint8), np.uint8(1)
    y = sardonyx.run_op("ConvInteger", x, w, zero, np.ones(4, np.uint8), backend=xp)
    assert (y.shape, str(y.dtype).rpartition(".")[2]) == ((0, 4, 3, 3), "int32")
