"""Activation functions, of each element or along an axis."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import axis_within
from sardonyx.ops.definition import Ints, op
from sardonyx.ops.dtypes import FLOAT64
from sardonyx.ops.legacy_attributes import aligned, consumes_inputs
from sardonyx.ops.options import require_one_of
from sardonyx.ops.precision import at_least_float32, wide

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

# -- linear on either side ------------------------------------------------------------------------


@consumes_inputs
@op
def Relu(xp: Backend, X: Array) -> Array:
    return xp.maximum(X, 0)


@consumes_inputs
@op
@at_least_float32
def LeakyRelu(xp: Backend, X: Array, *, alpha: float = 0.01) -> Array:
    return xp.where(X < 0, alpha * X, X)


@op
def PRelu(xp: Backend, X: Array, slope: Array) -> Array:
    return xp.where(X < 0, slope * X, X)


@PRelu.before(7)
def prelu_by_channel(
    xp: Backend, X: Array, slope: Array, *, consumed_inputs: Ints | None = None
) -> Array:
    return PRelu(xp, X, aligned(xp, X, slope, 1, broadcast=1))


@op
@at_least_float32
def ThresholdedRelu(xp: Backend, X: Array, *, alpha: float = 1.0) -> Array:
    return xp.where(X > alpha, X, 0)


@op
def Shrink(xp: Backend, input: Array, *, bias: float = 0.0, lambd: float = 0.5) -> Array:
    if not xp.isdtype(input.dtype, "integral"):
        return _shrink(xp, input, bias=bias, lambd=lambd)
    float64 = xp.dtype(FLOAT64)
    return xp.astype(_shrink(xp, xp.astype(input, float64), bias=bias, lambd=lambd), input.dtype)


@at_least_float32
def _shrink(xp: Backend, x: Array, *, bias: float, lambd: float) -> Array:
    return xp.where(x < -lambd, x + bias, xp.where(x > lambd, x - bias, 0))


@consumes_inputs
@op
@at_least_float32
def HardSigmoid(xp: Backend, X: Array, *, alpha: float = 0.2, beta: float = 0.5) -> Array:
    return xp.maximum(xp.minimum(alpha * X + beta, 1), 0)


@op
@at_least_float32
def HardSwish(xp: Backend, X: Array) -> Array:
    return X * HardSigmoid(xp, X, alpha=1 / 6, beta=0.5)


# -- exponential on the negative side -------------------------------------------------------------


@consumes_inputs
@op
@at_least_float32
def Elu(xp: Backend, X: Array, *, alpha: float = 1.0) -> Array:
    return xp.where(X < 0, alpha * _expm1_below_zero(xp, X), X)


@op
@at_least_float32
def Celu(xp: Backend, X: Array, *, alpha: float = 1.0) -> Array:
    if alpha == 0:
        raise ValueError("alpha must not be 0")
    return xp.where(X < 0, alpha * xp.expm1(xp.minimum(X, 0) / alpha), X)


@op
@at_least_float32
def Selu(
    xp: Backend,
    X: Array,
    *,
    alpha: float = 1.6732631921768188,
    gamma: float = 1.0507010221481323,
) -> Array:
    return gamma * xp.where(X > 0, X, alpha * _expm1_below_zero(xp, X))


@Selu.before(6)
def selu_with_rounded_defaults(
    xp: Backend,
    X: Array,
    *,
    alpha: float = 1.6732,
    gamma: float = 1.0507,
    consumed_inputs: Ints | None = None,
) -> Array:
    return Selu(xp, X, alpha=alpha, gamma=gamma)


def _expm1_below_zero(xp: Backend, x: Array) -> Array:
    """Return expm1 without overflow where `x` is positive: gradients pass through both branches."""
    return xp.expm1(xp.minimum(x, 0))


# -- smooth ---------------------------------------------------------------------------------------


@consumes_inputs
@op
@at_least_float32
def Sigmoid(xp: Backend, X: Array) -> Array:
    small = xp.exp(-xp.abs(X))
    return xp.where(X < 0, small, 1) / (1 + small)


@op
@at_least_float32
def Softplus(xp: Backend, X: Array) -> Array:
    return xp.maximum(X, 0) + xp.log1p(xp.exp(-xp.abs(X)))


@op
@at_least_float32
def Softsign(xp: Backend, input: Array) -> Array:
    return input / (1 + xp.abs(input))


@op
@at_least_float32
def Gelu(xp: Backend, X: Array, *, approximate: str = "none") -> Array:
    require_one_of("approximate", approximate, ("none", "tanh"))
    if approximate == "tanh":
        return 0.5 * X * (1 + xp.tanh(math.sqrt(2 / math.pi) * (X + 0.044715 * X * X * X)))
    return 0.5 * X * (1 + xp.erf(X * math.sqrt(0.5)))


@op
@at_least_float32
def Mish(xp: Backend, X: Array) -> Array:
    return X * xp.tanh(Softplus(xp, X))


@op
@at_least_float32
def Swish(xp: Backend, X: Array, *, alpha: float = 1.0) -> Array:
    return X * Sigmoid(xp, X if alpha == 1 else alpha * X)


@op
@at_least_float32
def SwiGLU(xp: Backend, A: Array, B: Array, *, alpha: float = 1.0) -> Array:
    """Swish of the gate `A`, times `B`."""
    if A.shape != B.shape:
        raise ValueError(f"A has shape {A.shape} and B {B.shape}; they must be equal")
    return Swish(xp, A, alpha=alpha) * B


# -- along an axis --------------------------------------------------------------------------------


@op
def Softmax(xp: Backend, input: Array, *, axis: int = -1) -> Array:
    axis = axis_within(axis, input.ndim)
    if not input.size:
        return input
    if axis == input.ndim - 1 and xp.has_kernels_of_rows(input):
        return xp.softmax_of_rows(input)
    top = xp.max(input, axis=axis, keepdims=True)
    return softmax_below(xp, input, top, axis=axis, has_weights=True)


def softmax_or_zero(xp: Backend, input: Array) -> Array:
    """Return the softmax along the last axis, and zeros for a row where that is NaN."""
    if xp.has_kernels_of_rows(input):
        return xp.softmax_of_rows(input, or_zero=True)
    weights = Softmax(xp, input, axis=-1)
    return xp.where(xp.isnan(weights), xp.zeros_like(weights), weights)


@op
@at_least_float32
def LogSoftmax(xp: Backend, input: Array, *, axis: int = -1) -> Array:
    axis = axis_within(axis, input.ndim)
    if not input.size:
        return input
    x = xp.below_top(input, xp.max(input, axis=axis, keepdims=True))
    return x - xp.log(xp.sum(xp.exp(x), axis=axis, keepdims=True))


@op
@at_least_float32
def Hardmax(xp: Backend, input: Array, *, axis: int = -1) -> Array:
    """Return 1 for the first maximum, 0 for the others."""
    axis = axis_within(axis, input.ndim)
    if not input.size:
        return input
    greatest = xp.argmax(input, axis=axis, keepdims=True)
    places = xp.arange(input.shape[axis], dtype=greatest.dtype)
    places = xp.reshape(places, (-1, *(1,) * (input.ndim - axis - 1)))
    return xp.astype(xp.equal(places, greatest), input.dtype)


@Softmax.before(13)
def softmax_of_flattened(xp: Backend, input: Array, *, axis: int = 1) -> Array:
    """Normalise over all axes from `axis` on, not over one."""
    return _flattened(xp, input, axis, Softmax)


@LogSoftmax.before(13)
def log_softmax_of_flattened(xp: Backend, input: Array, *, axis: int = 1) -> Array:
    return _flattened(xp, input, axis, LogSoftmax)


@Hardmax.before(13)
def hardmax_of_flattened(xp: Backend, input: Array, *, axis: int = 1) -> Array:
    return _flattened(xp, input, axis, Hardmax)


def _flattened(xp: Backend, x: Array, axis: int, normalise: Callable[..., Array]) -> Array:
    """Apply today's operator to rows of all elements from `axis` on."""
    axis = axis_within(axis, x.ndim)
    if not x.size:
        return x
    rows = math.prod(x.shape[:axis])
    flat = xp.reshape(x, (rows, x.size // rows))
    return xp.reshape(normalise(xp, flat, axis=1), x.shape)


# float16 cannot count beyond this: the sum of a longer row would lose terms, or become infinite.
COUNTABLE = 2**11


def softmax_below(
    xp: Backend, x: Array, top: Array, *, axis: int, has_weights: bool = False
) -> Array:
    """Return the softmax after subtracting the maxima `top`; a row without any weight stays zero.

    With `has_weights` there is no such row: where `top` is the row's own maximum, its weight is 1.
    In float16 each step is rounded, as in the standard's function body. Long rows, whose sum would
    not be exact, and bfloat16, which has too few digits, are computed in float32.
    """
    dtype = x.dtype
    if xp.numpy_dtype(dtype) == BFLOAT16 or x.shape[axis] > COUNTABLE:
        x, top = wide(xp, x), wide(xp, top)
    e = xp.exp(xp.below_top(x, top))
    total = wide(xp, xp.sum(e, axis=axis, keepdims=True))
    weights = wide(xp, e) / (total if has_weights else xp.nonzero_total(total))
    return weights if weights.dtype == dtype else xp.astype(weights, dtype)
