"""Element-wise operators: arithmetic, rounding, trigonometry, bits and selection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import NonZero
from sardonyx.backends.dtypes import isdtype
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import DType, Ints, op
from sardonyx.ops.dtypes import FLOAT32, FLOAT64, INT64, UINT64
from sardonyx.ops.legacy_attributes import broadcasts_by_axis, consumes_inputs
from sardonyx.ops.options import require_one_of
from sardonyx.ops.precision import at_least_float32
from sardonyx.ops.short_forms import binary, unary, unary_of_floats

# -- rounding, signs and powers -------------------------------------------------------------------

Neg = consumes_inputs(unary("Neg", lambda xp, X: xp.negative(X)))
Ceil = consumes_inputs(unary("Ceil", lambda xp, X: xp.ceil(X)))
Floor = consumes_inputs(unary("Floor", lambda xp, X: xp.floor(X)))
Sign = unary("Sign", lambda xp, input: xp.sign(input))
Sqrt = consumes_inputs(unary("Sqrt", lambda xp, X: xp.sqrt(X)))
Reciprocal = consumes_inputs(unary("Reciprocal", lambda xp, X: xp.reciprocal(X)))
Exp = consumes_inputs(unary_of_floats("Exp", lambda xp, input: xp.exp(input)))
Log = consumes_inputs(unary_of_floats("Log", lambda xp, input: xp.log(input)))
Erf = unary_of_floats("Erf", lambda xp, input: xp.erf(input))


@consumes_inputs
@op
def Abs(xp: Backend, X: Array) -> Array:
    return X if xp.isdtype(X.dtype, "unsigned integer") else xp.abs(X)


@op
def Round(xp: Backend, X: Array) -> Array:
    """Round to the nearest integer, halves to even."""
    return xp.round(X)


@Erf.before(13)
def erf_of_integers_too(xp: Backend, input: Array) -> Array:
    if not xp.isdtype(input.dtype, "integral"):
        return Erf(xp, input)
    return xp.astype(xp.erf(_as(xp, input, FLOAT64)), input.dtype)


# -- tests of floats, and operations on bits ------------------------------------------------------

IsNaN = unary("IsNaN", lambda xp, X: xp.isnan(X))
Not = unary("Not", lambda xp, X: xp.logical_not(X))
BitwiseNot = unary("BitwiseNot", lambda xp, X: xp.bitwise_invert(X))
BitwiseAnd = binary("BitwiseAnd", lambda xp, A, B: xp.bitwise_and(A, B))
BitwiseOr = binary("BitwiseOr", lambda xp, A, B: xp.bitwise_or(A, B))
BitwiseXor = binary("BitwiseXor", lambda xp, A, B: xp.bitwise_xor(A, B))


@op
def IsInf(xp: Backend, X: Array, *, detect_negative: int = 1, detect_positive: int = 1) -> Array:
    is_infinite = xp.isinf(X)
    if not detect_negative:
        is_infinite = is_infinite & (X > 0)
    return is_infinite if detect_positive else is_infinite & (X < 0)


@op
def BitShift(xp: Backend, X: Array, Y: Array, *, direction: str) -> Array:
    """Shift bits; an amount that is negative or at least the width leaves only the sign."""
    require_one_of("direction", direction, ("LEFT", "RIGHT"))
    width = 8 * xp.numpy_dtype(X.dtype).itemsize
    beyond = (Y < 0) | (Y >= width)
    amount = xp.where(beyond, width - 1, Y)
    if direction == "LEFT":
        return xp.where(beyond, 0, xp.bitwise_left_shift(X, amount))
    shifted = xp.bitwise_right_shift(X, amount)
    signed = xp.isdtype(X.dtype, "signed integer")
    return shifted if signed else xp.where(beyond, 0, shifted)


# -- trigonometry ---------------------------------------------------------------------------------

Sin = unary_of_floats("Sin", lambda xp, input: xp.sin(input))
Cos = unary_of_floats("Cos", lambda xp, input: xp.cos(input))
Tan = unary_of_floats("Tan", lambda xp, input: xp.tan(input))
Asin = unary_of_floats("Asin", lambda xp, input: xp.asin(input))
Acos = unary_of_floats("Acos", lambda xp, input: xp.acos(input))
Atan = unary_of_floats("Atan", lambda xp, input: xp.atan(input))
Sinh = unary_of_floats("Sinh", lambda xp, input: xp.sinh(input))
Cosh = unary_of_floats("Cosh", lambda xp, input: xp.cosh(input))
Tanh = consumes_inputs(unary_of_floats("Tanh", lambda xp, input: xp.tanh(input)))
Asinh = unary_of_floats("Asinh", lambda xp, input: xp.asinh(input))
Acosh = unary_of_floats("Acosh", lambda xp, input: xp.acosh(input))
Atanh = unary_of_floats("Atanh", lambda xp, input: xp.atanh(input))


# -- arithmetic -----------------------------------------------------------------------------------

Add = broadcasts_by_axis(binary("Add", lambda xp, A, B: xp.add(A, B)))
Sub = broadcasts_by_axis(binary("Sub", lambda xp, A, B: xp.subtract(A, B)))
Mul = broadcasts_by_axis(binary("Mul", lambda xp, A, B: xp.multiply(A, B)))


@broadcasts_by_axis
@op
def Div(xp: Backend, A: Array, B: Array) -> Array:
    """Divide; integer quotients are truncated towards zero."""
    if not xp.isdtype(A.dtype, "integral"):
        return xp.divide(A, B)
    return _of_nonzero(xp, partial(_truncated_quotient, xp), A, B)


def _truncated_quotient(xp: Backend, A: Array, B: Array) -> Array:
    floor = xp.floor_divide(A, B)
    if xp.isdtype(A.dtype, "unsigned integer"):
        return floor
    inexact = xp.not_equal(floor * B, A)
    return floor + xp.astype(inexact & ((A < 0) ^ (B < 0)), A.dtype)


@op
def Mod(xp: Backend, A: Array, B: Array, *, fmod: int = 0) -> Array:
    """Return the remainder with the sign of B, or with `fmod` that of A."""
    require_one_of("fmod", fmod, (0, 1))
    if xp.isdtype(A.dtype, "integral"):
        return _of_nonzero(xp, xp.fmod if fmod else xp.remainder, A, B)
    return xp.fmod(A, B) if fmod else _floored_modulo(xp, A, B)


def _of_nonzero(xp: Backend, divide: Callable[..., Array], A: Array, B: Array) -> Array:
    """Divide integers; where data are not checked, a division by zero returns zero."""
    xp.require(B, NonZero("B"))
    is_zero = xp.equal(B, 0)
    return xp.where(is_zero, 0, divide(A, xp.where(is_zero, 1, B)))


@Mod.before(28)
def remainder_of_integers(xp: Backend, A: Array, B: Array, *, fmod: int = 0) -> Array:
    _infer_mod([xp.numpy_dtype(A.dtype)], 1, fmod=fmod)
    return Mod(xp, A, B, fmod=fmod)


@Mod.infers(before=28)
def _infer_mod(
    dtypes: Sequence[DType | None], outputs: int, *, fmod: int = 0
) -> list[DType | None]:
    dtype = dtypes[0]
    if not fmod and dtype is not None and not isdtype(dtype, "integral"):
        raise ValueError(f"fmod is {fmod}, but must be 1 for {dtype} before opset 28")
    return [dtype]


@at_least_float32
def _floored_modulo(xp: Backend, A: Array, B: Array) -> Array:
    """Return the floored remainder. In some libraries, `remainder` rounds or loses signed zeros."""
    rest = xp.fmod(A, B)
    across = xp.not_equal(rest, 0) & ((rest < 0) ^ (B < 0))
    return xp.where(across, rest + B, xp.copysign(rest, B))


@broadcasts_by_axis
@op
def Pow(xp: Backend, X: Array, Y: Array) -> Array:
    """Raise to a power in the wider of both dtypes; the result has the dtype of the base."""
    of_integers = xp.isdtype(X.dtype, "integral")
    if of_integers and xp.isdtype(Y.dtype, "integral"):
        return _integer_power(xp, X, Y)
    has_double = FLOAT64 in (xp.numpy_dtype(X.dtype), xp.numpy_dtype(Y.dtype))
    wide = FLOAT64 if of_integers or has_double else FLOAT32
    power = xp.pow(_as(xp, X, wide), _as(xp, Y, wide))
    return xp.astype(xp.whole_where_near(power) if of_integers else power, X.dtype)


def _integer_power(xp: Backend, X: Array, Y: Array) -> Array:
    """Raise integers exactly, modulo their range; a negative power is 0 unless X is 1 or -1."""
    to, of_power = xp.numpy_dtype(X.dtype), xp.numpy_dtype(Y.dtype)
    fits = of_power == to or of_power.itemsize < to.itemsize
    if of_power == UINT64 and to != UINT64:
        # Such powers of odd numbers repeat after 2^62, and those of even ones are all 0.
        exponent = xp.where(xp.not_equal(Y >> 62, 0), (Y & 2**62 - 1) | 2**62, Y)
    else:
        # Only the parity of a negative exponent matters; its absolute value may overflow.
        exponent = xp.where(Y < 0, Y & 1, Y)
    base, exponent = (x if fits else _as(xp, x, INT64) for x in (X, exponent))
    power = xp.pow(base, xp.astype(exponent, base.dtype))
    vanishes = (Y < 0) & xp.not_equal(xp.abs(X), 1)
    return xp.astype(xp.where(vanishes, 0, power), X.dtype)


def _as(xp: Backend, x: Array, dtype: DType) -> Array:
    return xp.astype(x, xp.dtype(dtype))


# -- any number of inputs -------------------------------------------------------------------------


@consumes_inputs
@op
def Max(xp: Backend, *data_0: Array) -> Array:
    return reduce(xp.maximum, data_0)


@consumes_inputs
@op
def Min(xp: Backend, *data_0: Array) -> Array:
    return reduce(xp.minimum, data_0)


@consumes_inputs
@op
@at_least_float32
def Sum(xp: Backend, *data_0: Array) -> Array:
    return reduce(xp.add, data_0)


@consumes_inputs
@op
@at_least_float32
def Mean(xp: Backend, *data_0: Array) -> Array:
    total = reduce(xp.add, data_0)
    return total / len(data_0) if len(data_0) > 1 else total


# -- selection ------------------------------------------------------------------------------------


@op
def Where(xp: Backend, condition: Array, X: Array, Y: Array) -> Array:
    return xp.where(condition, X, Y)


@op
def Clip(xp: Backend, input: Array, min: Array | None = None, max: Array | None = None) -> Array:
    """Clamp to [min, max]; where `min` exceeds `max`, every element becomes `max`."""
    for bound, choose in ((min, xp.maximum), (max, xp.minimum)):
        if bound is not None:
            input = choose(input, _scalar(xp, bound))
    return input


@Clip.before(11)
def clip_to_attributes(
    xp: Backend,
    input: Array,
    *,
    min: float = -3.4028234663852886e38,
    max: float = 3.4028234663852886e38,
) -> Array:
    return clip_to_optional_attributes(xp, input, min=min, max=max)


@Clip.before(6)
def clip_to_optional_attributes(
    xp: Backend,
    input: Array,
    *,
    min: float | None = None,
    max: float | None = None,
    consumed_inputs: Ints | None = None,
) -> Array:
    dtype = xp.numpy_dtype(input.dtype)
    with np.errstate(over="ignore"):
        # A bound beyond the dtype's range, such as the default for float16, becomes infinite.
        bounds = [None if b is None else np.asarray(b).astype(dtype) for b in (min, max)]
    arrays = (None if b is None else xp.asarray(b) for b in bounds)
    return Clip(xp, input, *arrays)


def _scalar(xp: Backend, bound: Array) -> Array:
    if bound.size != 1:
        raise ValueError(f"min and max must be scalars, but one has shape {bound.shape}")
    return xp.reshape(bound, ())
