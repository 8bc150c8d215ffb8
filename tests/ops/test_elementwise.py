from __future__ import annotations

from math import erf
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.ops import elementwise as ops
from tests.ops.oracle import assert_same, onnxruntime_run, run
from tests.support.types_present import lacks

FLOATS = [ml_dtypes.bfloat16, np.float16, np.float32, np.float64]
INTS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]


def floats_for(xp: Backend) -> list[Any]:
    return [dtype for dtype in FLOATS if not lacks(xp, dtype)]


REAL_LINE = np.concatenate([np.linspace(-8, 8, 65), [1e-3, -1e-3, 30.0, -30.0]])
UNIT = np.linspace(-0.98, 0.98, 50)
POSITIVE = np.linspace(0.01, 9, 60)


@pytest.mark.parametrize(
    ("op", "oracle", "points"),
    [
        (ops.Abs, np.abs, REAL_LINE),
        (ops.Neg, np.negative, REAL_LINE),
        (ops.Ceil, np.ceil, REAL_LINE),
        (ops.Floor, np.floor, REAL_LINE),
        (ops.Round, np.rint, np.concatenate([REAL_LINE, np.arange(-4, 5) + 0.5])),
        (ops.Sign, np.sign, np.array([-2, -0.5, 0, 0.5, 2, np.nan])),
        (ops.Sqrt, np.sqrt, POSITIVE),
        (ops.Reciprocal, np.reciprocal, POSITIVE),
        (ops.Exp, np.exp, UNIT),
        (ops.Log, np.log, POSITIVE),
        (ops.Erf, np.vectorize(erf), REAL_LINE),
        (ops.Sin, np.sin, REAL_LINE),
        (ops.Cos, np.cos, REAL_LINE),
        (ops.Tan, np.tan, UNIT),
        (ops.Asin, np.arcsin, UNIT),
        (ops.Acos, np.arccos, UNIT),
        (ops.Atan, np.arctan, REAL_LINE),
        (ops.Sinh, np.sinh, UNIT),
        (ops.Cosh, np.cosh, UNIT),
        (ops.Tanh, np.tanh, REAL_LINE),
        (ops.Asinh, np.arcsinh, REAL_LINE),
        (ops.Acosh, np.arccosh, POSITIVE + 1),
        (ops.Atanh, np.arctanh, UNIT),
    ],
    ids=lambda value: getattr(value, "name", None),
)
@pytest.mark.sampled(2)
def test_unary_functions_in_every_float(
    xp: Backend, op: Any, oracle: Any, points: np.ndarray
) -> None:
    for dtype in floats_for(xp):
        x = points.astype(dtype)
        assert_same(run(xp, op, x), oracle(x.astype(np.float64)).astype(dtype), ulps=8)


@pytest.mark.parametrize("dtype", INTS)
def test_signs_of_integers(xp: Backend, dtype: Any) -> None:
    x = np.array([0, 1, 100, np.iinfo(dtype).max, np.iinfo(dtype).min], dtype)
    for op, oracle in ((ops.Abs, np.abs), (ops.Sign, np.sign)):
        assert_same(run(xp, op, x), oracle(x))


def test_abs_of_unsigned_is_its_input() -> None:
    x = np.array([1, 2], np.uint8)
    assert ops.Abs(HOST, x) is x


def test_erf_of_integers_before_13(xp: Backend) -> None:
    x = np.array([-7, -6, -1, 0, 5, 6], np.int32)
    expected = np.array([erf(v) for v in x.tolist()]).astype(np.int32)
    assert_same(run(xp, ops.Erf, x, opset=9), expected)


@pytest.mark.parametrize(
    ("negative", "positive", "expected"),
    [(1, 1, [1, 1, 0, 0]), (0, 1, [0, 1, 0, 0]), (1, 0, [1, 0, 0, 0]), (0, 0, [0, 0, 0, 0])],
)
def test_infinities_and_nan(xp: Backend, negative: int, positive: int, expected: list[int]) -> None:
    eight = ml_dtypes.float8_e5m2
    for dtype in [*floats_for(xp), *([] if lacks(xp, eight) else [eight])]:
        x = np.array([-np.inf, np.inf, np.nan, 1], dtype)
        found = run(xp, ops.IsInf, x, detect_negative=negative, detect_positive=positive)
        assert_same(found, np.array(expected, bool))
        assert_same(run(xp, ops.IsNaN, x), np.array([False, False, True, False]))


@pytest.mark.parametrize("dtype", [*INTS, np.float32, np.float64])
@pytest.mark.parametrize("op", [ops.Add, ops.Sub, ops.Mul, ops.Div], ids=lambda op: op.name)
def test_arithmetic_agrees_with_onnxruntime(xp: Backend, op: Any, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    low = 0 if np.dtype(dtype).kind == "u" else -9
    a = rng.integers(low, 9, (3, 1, 40)).astype(dtype)
    b = rng.integers(1, 5, (2, 40)).astype(dtype) * (-1 if low else 1)
    b = b.astype(dtype)
    assert_same(run(xp, op, a, b), onnxruntime_run(op.name, a, b, opset=14))


@settings(deadline=None, max_examples=25)
@given(a=st.integers(-128, 127), b=st.integers(-128, 127).filter(bool))
def test_integer_division_and_remainders_fit_together(a: int, b: int) -> None:
    x, y = np.array([a], np.int16), np.array([b], np.int16)
    quotient = run(HOST, ops.Div, x, y)
    assert int(quotient[0]) == int(a / b)
    assert int(quotient[0]) * b + int(run(HOST, ops.Mod, x, y, fmod=1)[0]) == a
    assert int(run(HOST, ops.Mod, x, y)[0]) == a % b


@pytest.mark.parametrize("fmod", [0, 1])
def test_mod_of_integers_agrees_with_onnxruntime(xp: Backend, fmod: int) -> None:
    a = np.arange(-9, 9, dtype=np.int8)[:, None]
    b = np.array([-4, -3, -1, 1, 3, 4], np.int8)
    for dtype in INTS[:4]:
        x, y = a.astype(dtype), b.astype(dtype)
        expected = onnxruntime_run("Mod", x, y, opset=13, fmod=fmod)
        assert_same(run(xp, ops.Mod, x, y, fmod=fmod), expected)


def test_mod_of_floats_is_exact(xp: Backend) -> None:
    a = np.array([-5.3, 5.3, 1e20, -1e20, 1e-20, -0.0, 0.0, 1, -1, np.inf, 3], np.float64)[:, None]
    b = np.array([2.1, -2.1, 3, 1e-3, np.inf, -np.inf, 0, np.nan], np.float64)
    for dtype in floats_for(xp)[-2:]:
        x, y = a.astype(dtype), b.astype(dtype)
        with np.errstate(all="ignore"):
            cases = {0: np.remainder(x, y), 1: np.fmod(x, y)}
        for fmod, expected in cases.items():
            actual = run(xp, ops.Mod, x, y, fmod=fmod)
            np.testing.assert_array_equal(actual, expected, strict=True)
            real = ~np.isnan(expected)
            signs = np.broadcast_to(x if fmod else y, actual.shape)[real]
            np.testing.assert_array_equal(np.signbit(actual[real]), np.signbit(signs))


def test_mod_of_floats_needs_fmod_before_opset_28(xp: Backend) -> None:
    for dtype in floats_for(xp):
        x = np.ones(2, dtype)
        with pytest.raises(ValueError, match=r"fmod is 0, but must be 1 for .*float"):
            run(xp, ops.Mod, x, x, opset=27)
        assert_same(run(xp, ops.Mod, x, x, opset=27, fmod=1), np.zeros(2, dtype))


@pytest.mark.parametrize("fmod", [0, 1])
def test_mod_in_low_precision(xp: Backend, fmod: int) -> None:
    for dtype in floats_for(xp)[:-2]:
        a, b = (np.array(v, dtype) for v in ([-5.5, 5.5, 300, 0.1], [3, -3, 7, 0.03]))
        oracle = np.fmod if fmod else np.remainder
        expected = oracle(a.astype(np.float64), b.astype(np.float64)).astype(dtype)
        np.testing.assert_array_equal(run(xp, ops.Mod, a, b, fmod=fmod), expected)


@pytest.mark.parametrize("exponent", [*INTS, np.float32, np.float64])
@pytest.mark.parametrize("base", [np.int32, np.int64, np.float32, np.float64])
def test_pow_has_the_type_of_its_base(xp: Backend, base: Any, exponent: Any) -> None:
    x = np.array([-3, -2, -1, 0, 1, 2, 3, 7], base)[:, None]
    y = np.array([0, 1, 2, 3, 5], exponent)
    expected = np.power(x.astype(np.float64), y.astype(np.float64)).astype(base)
    assert_same(run(xp, ops.Pow, x, y), expected)


def test_pow_of_integers_is_exact_and_truncates_fractions(xp: Backend) -> None:
    x, y = np.array([3, -3, 10, 2, -1, -1, 1, 0], np.int64), [39, 39, 18, -1, -3, -2, -5, 0]
    expected = np.array([3**39, -(3**39), 10**18, 0, -1, 1, 1, 1], np.int64)
    assert_same(run(xp, ops.Pow, x, np.array(y, np.int32)), expected)


@pytest.mark.parametrize(("base", "exponent"), [(np.int32, np.int32), (np.uint32, np.int8)])
def test_negative_powers_of_integers_to_the_least_exponent(
    xp: Backend, base: Any, exponent: Any
) -> None:
    least = np.iinfo(exponent).min
    x = np.array([[0], [1], [3]], base)
    y = np.array([least, least + 1, -1], exponent)
    assert_same(run(xp, ops.Pow, x, y), np.array([[0] * 3, [1] * 3, [0] * 3], base))


@pytest.mark.parametrize("exponent", INTS)
@pytest.mark.parametrize("base", INTS)
def test_powers_of_integers_have_the_lower_bits(xp: Backend, base: Any, exponent: Any) -> None:
    limits, largest = np.iinfo(base), np.iinfo(exponent).max
    x = [0, 1, 2, 3, 7, 10, limits.max, *([-1, -2, -5, limits.min] if limits.min else [])]
    y = [63, 64, 65, 127, 128, 255, 1000, 2**20 + 3, largest // 2 + 1, largest - 1, largest]
    y = [n for n in y if n <= largest]
    expected = [[pow(a, n, 2**limits.bits) for n in y] for a in x]
    result = run(xp, ops.Pow, np.array(x, base)[:, None], np.array(y, exponent))
    assert_same(result, np.array(expected, np.uint64).astype(base))


def test_pow_in_low_precision_keeps_exponents_whole(xp: Backend) -> None:
    for dtype in floats_for(xp)[:-2]:
        x = np.array([-1, -1, 1.5], dtype)
        expected = np.array([-1, 1, 1.5**3], dtype)
        assert_same(run(xp, ops.Pow, x, np.array([2049, 2050, 3], np.int64)), expected)


@pytest.mark.parametrize("op", [ops.Max, ops.Min, ops.Sum, ops.Mean], ids=lambda op: op.name)
def test_any_number_of_inputs(xp: Backend, op: Any) -> None:
    rng = np.random.default_rng(1)
    arrays = [rng.normal(size=s).astype(np.float32) for s in ((2, 3, 4), (3, 1), (4,))]
    arrays[0][0, 0, 0] = np.nan
    assert_same(run(xp, op, *arrays), onnxruntime_run(op.name, *arrays, opset=13))
    assert op(HOST, arrays[0]) is arrays[0]
    for dtype in floats_for(xp)[:-2]:
        low = [a.astype(dtype) for a in arrays]
        wide = [a.astype(np.float64) for a in low]
        assert_same(run(xp, op, *low), run(HOST, op, *wide).astype(dtype), ulps=1)
    with pytest.raises(sardonyx.InvalidModel, match="0 inputs, but the operator takes at least 1"):
        sardonyx.run_op(op.name, backend=xp)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint64, np.int64])
def test_shifts_of_any_amount(xp: Backend, dtype: Any) -> None:
    info = np.iinfo(dtype)
    x = np.array([info.min, 1, 5, info.max], dtype)[:, None]
    amounts = [0, 1, 3, info.bits - 1, info.bits, 100] + [-1] * (info.min < 0)
    wrap = 2**info.bits

    def expected(value: int, amount: int, direction: str) -> int:
        amount = amount if 0 <= amount < info.bits else info.bits
        shifted = value << amount if direction == "LEFT" else value >> amount
        return (shifted - info.min) % wrap + info.min

    for direction in ("LEFT", "RIGHT"):
        right = [[expected(int(v), n, direction) for n in amounts] for v in x.ravel()]
        actual = run(xp, ops.BitShift, x, np.array(amounts, dtype), direction=direction)
        assert_same(actual, np.array(right, dtype))
    with pytest.raises(ValueError, match="must be LEFT or RIGHT"):
        run(xp, ops.BitShift, x, x, direction="UP")


@pytest.mark.parametrize("dtype", INTS)
def test_bitwise(xp: Backend, dtype: Any) -> None:
    a, b = np.array([12, 5, 0], dtype), np.array([[10], [3]], dtype)
    assert_same(run(xp, ops.BitwiseAnd, a, b), a & b)
    assert_same(run(xp, ops.BitwiseOr, a, b), a | b)
    assert_same(run(xp, ops.BitwiseXor, a, b), a ^ b)
    assert_same(run(xp, ops.BitwiseNot, a), ~a)


def test_where_of_every_kind(xp: Backend) -> None:
    keep = np.array([[True], [False]])
    kinds: list[Any] = [np.float32, np.int8, bool, np.complex64]
    kinds += [] if xp.name == "strict" else [ml_dtypes.bfloat16]
    kinds += [object] if xp is HOST else []
    for dtype in kinds:
        x, y = (np.array(v).astype(dtype) for v in ([1, 0, 3], [[0], [5]]))
        assert_same(run(xp, ops.Where, keep, x, y), np.where(keep, x, y))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, *INTS])
@pytest.mark.parametrize("bounds", [(), (3,), (3, 5), (5, 3)], ids=str)
def test_clip_agrees_with_onnxruntime(xp: Backend, dtype: Any, bounds: tuple[int, ...]) -> None:
    x = np.arange(8).astype(dtype)
    limits = [np.array(b, dtype) for b in bounds]
    if dtype in (np.int16, np.uint16):
        expected = run(HOST, ops.Clip, x.astype(np.int32), *(b.astype(np.int32) for b in limits))
        expected = expected.astype(dtype)
    else:
        expected = onnxruntime_run("Clip", x, *limits, opset=13)
    assert_same(run(xp, ops.Clip, x, *limits), expected)


def test_clip_before_11_has_attributes(xp: Backend) -> None:
    x = np.array([-np.inf, -2, 0, 2, np.nan, np.inf], np.float32)
    expected = onnxruntime_run("Clip", x, opset=7, min=-1.5, max=1.0)
    assert_same(run(xp, ops.Clip, x, opset=7, min=-1.5, max=1.0), expected)
    largest = np.finfo(np.float32).max
    assert_same(run(xp, ops.Clip, x, opset=6), np.clip(x, -largest, largest))
    assert_same(run(xp, ops.Clip, x, opset=1, max=1.0), np.minimum(x, np.float32(1)))
    with xp.scope():
        kept = xp.put(x)
        assert ops.Clip.at(1).function(xp, kept) is kept
        assert ops.Clip(xp, kept) is kept


def test_clip_by_default_bounds_beyond_the_type_are_none(xp: Backend) -> None:
    if xp.name == "strict":
        pytest.xfail("array_api_strict has no low-precision types")
    x = np.array([-np.inf, -65504, 0, 65504, np.inf], np.float16)
    assert_same(run(xp, ops.Clip, x, opset=6), x)


def test_clip_wants_scalars(xp: Backend) -> None:
    x = np.zeros((2, 2), np.float32)
    assert run(xp, ops.Clip, x, np.ones((1,), np.float32)).shape == (2, 2)
    with pytest.raises(ValueError, match="must be scalars"):
        run(xp, ops.Clip, x, np.ones((2,), np.float32))


@pytest.mark.parametrize(
    ("shape", "axis", "aligned"),
    [
        ((), None, ()),
        ((1, 1), None, ()),
        ((5,), None, (5,)),
        ((4, 5), None, (4, 5)),
        ((3, 4), 1, (3, 4, 1)),
        ((2,), 0, (2, 1, 1, 1)),
        ((4,), -2, (4, 1)),
    ],
)
@pytest.mark.parametrize("op", [ops.Add, ops.Sub, ops.Mul, ops.Div, ops.Pow], ids=lambda o: o.name)
def test_broadcasting_before_7(
    xp: Backend, op: Any, shape: tuple[int, ...], axis: int | None, aligned: tuple[int, ...]
) -> None:
    a = np.linspace(1, 2, 120, dtype=np.float32).reshape(2, 3, 4, 5)
    b = np.linspace(1, 2, int(np.prod(shape)), dtype=np.float32).reshape(shape)
    expected = run(HOST, op, a, b.reshape(aligned))
    assert_same(run(xp, op, a, b, opset=6, axis=axis, broadcast=1), expected)
    assert_same(run(xp, op, a, a, opset=6), run(HOST, op, a, a))


def test_broadcasting_before_7_refuses_what_does_not_fit(xp: Backend) -> None:
    a, b = np.zeros((2, 3, 4), np.float32), np.zeros((3,), np.float32)
    with pytest.raises(ValueError, match="broadcast is 0"):
        run(xp, ops.Add, a, b, opset=6, axis=1)
    for axis in (None, 0, 3, -5):
        with pytest.raises(ValueError, match="does not match"):
            run(xp, ops.Add, a, b, opset=6, axis=axis, broadcast=1)


def test_opset_1_may_consume_its_inputs(xp: Backend) -> None:
    x = np.array([-1, 4], np.float32)
    assert set(ops.Abs.at(1).attributes) == {"consumed_inputs"}
    assert not ops.Abs.at(6).attributes
    assert_same(run(xp, ops.Abs, x, opset=1, consumed_inputs=(0,)), np.abs(x))
    assert_same(run(xp, ops.Sum, x, x, opset=1, consumed_inputs=(0, 0)), x + x)


def test_zero_dimensional_and_empty_arrays(xp: Backend) -> None:
    for shape in ((), (0, 3)):
        x = np.ones(shape, np.float32)
        for op in (ops.Add, ops.Div, ops.Pow, ops.Mod, ops.Max, ops.Mean):
            assert_same(run(xp, op, x, x), run(HOST, op, x, x))
        assert run(xp, ops.Exp, x).shape == shape
