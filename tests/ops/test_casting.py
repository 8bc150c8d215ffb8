from __future__ import annotations

import math
from itertools import product
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sardonyx.backends.base import Backend
from sardonyx.backends.dtypes import isdtype
from sardonyx.backends.interpreter import Interpreter
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST
from sardonyx.ops import casting as ops
from tests.ops.oracle import onnxruntime_run, run
from tests.support.types_present import lacks, needs

PLAIN = [np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
PLAIN += [np.float32, np.float64, np.complex64, np.complex128]
FLOAT8 = [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz]
FLOAT8 += [ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz]
NARROW = [np.float16, ml_dtypes.bfloat16, *FLOAT8, ml_dtypes.float4_e2m1fn]
NARROW += [ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2]
E8M0 = ml_dtypes.float8_e8m0fnu
# Around the ends of the integer types, and far beyond.
WIDE = np.ldexp(np.array([1, 1.5, -1, -1.5, 0])[:, None], [0, 6, 7, 8, 15, 16, 31, 32, 63, 64, 100])
WIDE = np.concatenate([WIDE.ravel(), [np.nan, np.inf, -np.inf, 255.9, -128.9, -0.9, 65535.9]])
FLOAT6 = [ml_dtypes.float6_e2m3fn, ml_dtypes.float6_e3m2fn]


def name(dtype: Any) -> str:
    return np.dtype(dtype).name


def cast(xp: Backend, x: Any, to: Any, **attributes: Any) -> np.ndarray:
    result: np.ndarray = run(xp, ops.Cast, x, to=np.dtype(to), **attributes)
    assert result.dtype == np.dtype(to)
    assert result.shape == x.shape
    return result


# -- every type to every other --------------------------------------------------------------------


@pytest.mark.sampled(4)
@pytest.mark.parametrize("source", PLAIN, ids=name)
def test_small_numbers_go_from_any_type_to_any(xp: Backend, source: Any) -> None:
    x = np.array([0, 1, 1, 0]).astype(source)
    for to in [to for to in (*PLAIN, *NARROW) if not lacks(xp, to)]:
        assert cast(xp, x, to).astype(np.complex128).tolist() == [0, 1, 1, 0]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("source", NARROW, ids=name)
def test_small_numbers_go_from_narrow_types_to_any(xp: Backend, source: Any) -> None:
    needs(xp, source)
    x = np.array([0, 1, 1, 0]).astype(source)
    for to in [*PLAIN, *NARROW]:
        assert cast(xp, x, to).astype(np.complex128).tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("to", FLOAT6, ids=name)
def test_float6_on_numpy(to: Any) -> None:
    x = np.array([0.5, -1.25, 100, np.inf], np.float32)
    greatest = float(ml_dtypes.finfo(to).max)
    assert cast(HOST, x, to).astype(float).tolist() == [0.5, -1.25, greatest, greatest]
    assert cast(HOST, x.astype(to), np.float64).tolist() == [0.5, -1.25, greatest, greatest]


@pytest.mark.parametrize("saturate", [0, 1])
def test_every_narrow_type_goes_to_every_other_on_numpy(saturate: int) -> None:
    everything = [*NARROW, *FLOAT6, E8M0]
    for source in everything:
        for to in everything:
            found = cast(HOST, np.ones(2, np.float32).astype(source), to, saturate=saturate)
            assert found.astype(np.float32).tolist() == [1, 1]


def test_the_same_type_is_the_same_array(xp: Backend) -> None:
    x = xp.put(np.ones(3, np.float32))
    assert ops.Cast(xp, x, to=np.dtype(np.float32)) is x
    assert ops.CastLike(xp, x, xp.put(np.ones(1, np.float32))) is x


def test_cast_like_takes_only_the_type(xp: Backend) -> None:
    result = run(xp, ops.CastLike, np.array([1.7, -1.7]), np.zeros(0, np.int16))
    assert result.dtype == np.int16
    assert result.tolist() == [1, -1]


@pytest.mark.parametrize(("to", "dtype"), [("FLOAT", "f4"), ("DOUBLE", "f8"), ("INT16", "i2")])
def test_before_opset_6_the_type_is_named(xp: Backend, to: str, dtype: str) -> None:
    assert run(xp, ops.Cast, np.array([2]), opset=5, to=to).dtype == np.dtype(dtype)


INTEGERS = [*PLAIN[1:9], *NARROW[-4:]]


@pytest.mark.parametrize(("source", "to"), [*product(PLAIN[1:9:2], INTEGERS)], ids=name)
def test_integers_keep_their_low_bits(xp: Backend, source: Any, to: Any) -> None:
    needs(xp, to)
    x = np.array([-1, 200, 40000, 2**40 + 7, 2**63 + 5, -9], dtype=object)
    x = np.array([v % 2**64 for v in x], np.uint64).astype(source)
    bits = ml_dtypes.iinfo(to).bits
    low = [int(v) % 2**bits for v in x]
    signed = ml_dtypes.iinfo(to).min < 0
    expected = [v - 2**bits if signed and v >= 2 ** (bits - 1) else v for v in low]
    assert [int(v) for v in cast(xp, x, to)] == expected


def test_floats_to_bool_ask_whether_they_are_zero(xp: Backend) -> None:
    x = np.array([0.0, -0.0, 0.3, np.nan, np.inf, -1e-30])
    assert cast(xp, x, np.bool_).tolist() == [False, False, True, True, True, True]


def test_floats_beyond_an_integer_warn_nobody(xp: Backend) -> None:
    x = np.array([np.nan, np.inf, 1e30, 3.9, -3.9], np.float32)
    for to in PLAIN[1:9]:
        assert cast(xp, x, to)[3] == 3
    assert cast(xp, x, np.int32)[4] == -3


SMALL_FLOATS = [np.float16, ml_dtypes.bfloat16, *FLOAT8, ml_dtypes.float4_e2m1fn, E8M0]


@pytest.mark.parametrize("source", [np.float32, np.float64, *SMALL_FLOATS], ids=name)
def test_floats_beyond_an_integer_are_the_nearest_one(xp: Backend, source: Any) -> None:
    """NumPy leaves them to the processor, unless it runs in place of XLA."""
    if xp.name not in ("jax", "cupy"):
        xp = Interpreter(lambda: False)
    needs(xp, source)
    bits = 8 * np.dtype(source).itemsize
    x = np.arange(2 ** ml_dtypes.finfo(source).bits, dtype=np.uint8) if bits == 8 else WIDE
    with np.errstate(over="ignore"):
        x = x.view(source) if bits == 8 else x.astype(source)
    for to in map(np.iinfo, PLAIN[1:9]):
        found = cast(xp, x, to.dtype).tolist()
        for number, integer in zip(x.astype(np.float64).tolist(), found, strict=True):
            nearest = 0 if math.isnan(number) else int(max(to.min, min(number, to.max)))
            assert integer == max(to.min, min(nearest, to.max)), (number, to.dtype)


def test_floats_beyond_float32_are_infinite(xp: Backend) -> None:
    assert cast(xp, np.array([1e300, -1e300]), np.float32).tolist() == [np.inf, -np.inf]


def test_complex_numbers_lose_their_imaginary_part(xp: Backend) -> None:
    x = np.array([1 + 2j, 3j])
    assert cast(xp, x, np.float32).tolist() == [1, 0]
    assert cast(xp, x, np.bool_).tolist() == [True, True]
    assert cast(xp, x, np.complex64).tolist() == x.tolist()


# -- rounding -------------------------------------------------------------------------------------


def nearest(values: np.ndarray, to: Any) -> np.ndarray:
    """The nearest number of `to`'s precision, ties to even; exact, within the normal range."""
    digits = ml_dtypes.finfo(to).nmant + 1
    fraction, exponent = np.frexp(values)
    return np.ldexp(np.rint(np.ldexp(fraction, digits)), exponent - digits)


@pytest.mark.parametrize("to", [ml_dtypes.bfloat16, *FLOAT8, np.float16], ids=name)
def test_float64_is_rounded_once(xp: Backend, to: Any) -> None:
    needs(xp, to)
    places = 1 + np.arange(64) / 64 + 2.0**-9
    nudges = np.concatenate([[0], 2.0 ** -np.arange(20, 50)])
    digits = ml_dtypes.finfo(to).nmant
    ties = 1 + (np.arange(16) + 0.5) * 2.0**-digits
    x = np.concatenate([places, np.add.outer(ties, nudges).ravel()])
    x = np.concatenate([x, np.subtract.outer(ties, nudges).ravel()])
    x = np.concatenate([x, -x])
    np.testing.assert_array_equal(cast(xp, x, to).astype(np.float64), nearest(x, to))


@pytest.mark.parametrize("to", [np.float16, ml_dtypes.bfloat16, np.float32], ids=name)
def test_a_cast_that_rounds_once_has_a_derivative(to: Any) -> None:
    xp = JaxBackend()

    def there_and_back(x: Any) -> Any:
        return jax.numpy.sum(ops.Cast(xp, ops.Cast(xp, x, to=np.dtype(to)), to=np.dtype(float)))

    with xp.scope():
        assert jax.jit(jax.grad(there_and_back))(np.array([1.1, 3.0])).tolist() == [1, 1]


@pytest.mark.slow
@given(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=9))
@settings(deadline=None, max_examples=25)
def test_integers_are_rounded_once(values: list[int]) -> None:
    x = np.array([*values, 2**24 + 2**16 + 1, 2**30 + 2**22 + 1]) >> 10
    expected = nearest(x.astype(np.float64), ml_dtypes.bfloat16)
    for xp in (HOST, JaxBackend()):
        result = cast(xp, x, ml_dtypes.bfloat16).astype(np.float64)
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("source", [np.float32, np.float16, ml_dtypes.bfloat16], ids=name)
@pytest.mark.parametrize("to", NARROW[1:7], ids=name)
def test_narrower_floats_agree_with_ml_dtypes(source: Any, to: Any) -> None:
    x = np.random.default_rng(0).normal(0, 4, 2000).astype(source)
    for xp in (HOST, JaxBackend()):
        assert (cast(xp, x, to) == x.astype(to)).all()


# -- float8, as the standard's tables have it -----------------------------------------------------

EDGES = [np.inf, -np.inf, 1e6, -1e6, np.nan, 0.0]


@pytest.mark.parametrize(
    "source", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16], ids=name
)
@pytest.mark.parametrize("to", FLOAT8, ids=name)
def test_float8_saturates_unless_told_otherwise(xp: Backend, source: Any, to: Any) -> None:
    needs(xp, source, to)
    with np.errstate(over="ignore"):
        x = np.array(EDGES).astype(source)
    top = float(ml_dtypes.finfo(to).max)
    saturated = cast(xp, x, to).astype(np.float64)
    np.testing.assert_array_equal(saturated, [top, -top, top, -top, np.nan, 0])
    over = np.inf if to is ml_dtypes.float8_e5m2 else np.nan
    open_ended = cast(xp, x, to, saturate=0).astype(np.float64)
    np.testing.assert_array_equal(open_ended, [over, -over, over, -over, np.nan, 0])


@pytest.mark.parametrize("to", FLOAT8, ids=name)
def test_integers_saturate_too(xp: Backend, to: Any) -> None:
    needs(xp, to)
    top = float(ml_dtypes.finfo(to).max)
    result = cast(xp, np.array([10**6, -(10**6), 3]), to)
    assert result.astype(float).tolist() == [top, -top, 3]


def test_negative_zero_has_no_place_in_fnuz() -> None:
    for xp, to in product((HOST, JaxBackend()), FLOAT8):
        kept = np.signbit(cast(xp, np.array([-0.0]), to).astype(float))
        assert kept == (not name(to).endswith("fnuz"))


# -- float8e8m0, the powers of two ----------------------------------------------------------------

LOWEST, GREATEST = 2.0**-127, 2.0**127
POWERS = [1.0, 1.25, 1.5, 1.75, 2.0, 3.0, LOWEST, LOWEST * 1.25, LOWEST * 1.5, GREATEST]


@pytest.mark.parametrize(
    ("round_mode", "expected"),
    [
        ("up", [1, 2, 2, 2, 2, 4, LOWEST, 2 * LOWEST, 2 * LOWEST, GREATEST]),
        ("down", [1, 1, 1, 1, 2, 2, LOWEST, LOWEST, LOWEST, GREATEST]),
        ("nearest", [1, 1, 2, 2, 2, 4, LOWEST, LOWEST, 2 * LOWEST, GREATEST]),
    ],
)
@pytest.mark.parametrize("saturate", [0, 1])
def test_powers_of_two(xp: Backend, round_mode: str, expected: list[float], saturate: int) -> None:
    needs(xp, E8M0)
    x = np.array(POWERS, np.float32)
    result = cast(xp, x, E8M0, round_mode=round_mode, saturate=saturate)
    assert result.astype(np.float64).tolist() == expected
    beyond = np.array([0, np.inf, GREATEST * 1.5, LOWEST / 2, np.nan], np.float32)
    result = cast(xp, beyond, E8M0, round_mode=round_mode, saturate=saturate)
    outer = [LOWEST, GREATEST, GREATEST, LOWEST] if saturate else [np.nan] * 4
    np.testing.assert_array_equal(result.astype(np.float64), [*outer, np.nan])


def test_powers_of_two_read_back() -> None:
    powers = np.arange(255, dtype=np.uint8).view(E8M0)
    for xp, to in product((HOST, JaxBackend()), (np.float64, ml_dtypes.bfloat16)):
        back = cast(xp, powers[30:], to)
        np.testing.assert_array_equal(back.astype(np.float64), 2.0 ** np.arange(-97, 128))
        assert (cast(xp, back, E8M0) == powers[30:]).all()


def test_an_unknown_round_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="round_mode"):
        ops.Cast(HOST, np.ones(1), to=np.dtype(E8M0), round_mode="sideways")


# -- strings --------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", [*PLAIN[1:], *NARROW, *FLOAT6], ids=name)
def test_strings_are_read(to: Any) -> None:
    texts = np.array([["1", " 1.0 "], ["1e0", "0"]], dtype=object)
    if to in (np.complex64, np.complex128):
        texts[0, 0] = "1+0j"
    assert cast(HOST, texts, to).astype(np.complex128).tolist() == [[1, 1], [1, 0]]


def test_strings_name_what_is_no_number() -> None:
    texts = np.array(["+INF", "inf", "-Inf", "NaN", "nan", "1E8", "-1e-5"], dtype=object)
    result = cast(HOST, texts, np.float32)
    expected = [np.inf, np.inf, -np.inf, np.nan, np.nan, 1e8, -1e-5]
    np.testing.assert_array_equal(result, np.array(expected, np.float32))
    np.testing.assert_array_equal(result, onnxruntime_run("Cast", texts, opset=19, to=1))
    with pytest.raises(ValueError, match="Hello"):
        cast(HOST, np.array(["Hello World!"], dtype=object), np.float32)


def test_strings_of_integers_keep_every_digit() -> None:
    texts = np.array([str(2**63 - 1), "-300", "100.5", "18446744073709551615"], dtype=object)
    assert cast(HOST, texts, np.int64).tolist() == [2**63 - 1, -300, 100, -1]
    assert cast(HOST, texts, np.uint8).tolist() == [255, 212, 100, 255]


def test_strings_of_truth() -> None:
    texts = np.array(["True", "false", "1", "0", "0.5"], dtype=object)
    assert cast(HOST, texts, np.bool_).tolist() == [True, False, True, False, True]


def test_numbers_are_written() -> None:
    for x, expected in [
        (np.array([0.1, -1.5, 1e20], np.float32), ["0.1", "-1.5", "1e+20"]),
        (np.array([1 / 3]), ["0.3333333333333333"]),
        (np.array([np.nan, np.inf, -np.inf]), ["NaN", "INF", "-INF"]),
        (np.array([[-7, 2**62]]), [["-7", str(2**62)]]),
        (np.array(7, np.uint8), "7"),
        (np.array([True, False]), ["True", "False"]),
        (np.array([-3, 2]).astype(ml_dtypes.int4), ["-3", "2"]),
        (np.array([0.5]).astype(ml_dtypes.bfloat16), ["0.5"]),
    ]:
        assert cast(HOST, x, object).tolist() == expected


@pytest.mark.parametrize("dtype", [*PLAIN, *NARROW], ids=name)
def test_what_is_written_reads_back(dtype: Any) -> None:
    random = np.random.default_rng(0).uniform(-3, 3, 50)
    if not isdtype(dtype, ("real floating", "complex floating")):
        random = np.abs(np.rint(random))
    x = random.astype(dtype)
    assert (cast(HOST, cast(HOST, x, object), dtype) == x).all()


# -- bits under another type ----------------------------------------------------------------------

BY_BITS: dict[int, list[Any]] = {
    64: [np.uint64, np.int64, np.float64, np.complex64],
    32: [np.uint32, np.int32, np.float32],
    16: [np.uint16, np.int16, np.float16, ml_dtypes.bfloat16],
    8: [np.uint8, np.int8, *FLOAT8, E8M0],
    4: [ml_dtypes.uint4, ml_dtypes.int4, ml_dtypes.float4_e2m1fn],
    2: [ml_dtypes.uint2, ml_dtypes.int2],
}
OF_ONE_SIZE = [(bits, *pair) for bits, types in BY_BITS.items() for pair in product(types, types)]


@pytest.mark.parametrize(("bits", "source", "to"), OF_ONE_SIZE, ids=str)
def test_bits_stay_what_they_are(xp: Backend, bits: int, source: Any, to: Any) -> None:
    """Those of NaN with a message and of subnormal numbers too."""
    needs(xp, source, to)
    words = np.random.default_rng(0).integers(0, 2**64, 99, np.uint64)
    words = np.concatenate([words, np.arange(16, dtype=np.uint64), ~words[:9] >> 54])
    words = (words & np.uint64(2**bits - 1)).astype(f"u{max(bits // 8, 1)}").reshape(2, -1)
    result = run(xp, ops.BitCast, words.view(source), to=np.dtype(to))
    assert result.dtype == np.dtype(to)
    np.testing.assert_array_equal(result.view(words.dtype), words)


def test_bits_of_truth(xp: Backend) -> None:
    words = np.array([0, 1, 2, 255], np.uint8)
    truth = run(xp, ops.BitCast, words, to=np.dtype(bool))
    assert truth.dtype == bool
    assert truth.view(np.uint8).tolist() == [0, 1, 1, 1]
    assert run(xp, ops.BitCast, truth, to=np.dtype(np.int8)).tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize(
    ("source", "to"),
    [
        (np.float32, np.float16),
        (np.float64, np.complex128),
        (np.uint8, ml_dtypes.uint4),
        (ml_dtypes.int4, ml_dtypes.int2),
        (np.uint64, object),
        (object, np.uint64),
    ],
)
def test_bits_of_another_size_are_refused(source: Any, to: Any) -> None:
    with pytest.raises(ValueError, match="same number of bits"):
        run(HOST, ops.BitCast, np.zeros(2).astype(source), to=np.dtype(to))
