"""Normalisation over axes of one input, over a batch, and over neighbouring channels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import axes_within, axis_within, require_broadcasts, require_shape
from sardonyx.ops.definition import DType, Ints, Outputs, op
from sardonyx.ops.dtypes import FLOAT32
from sardonyx.ops.legacy_attributes import consumes_inputs
from sardonyx.ops.options import require_one_of
from sardonyx.ops.precision import at_least_float32, wide
from sardonyx.ops.reduction import ReduceL1, ReduceL2

# -- over axes of one input -----------------------------------------------------------------------


@op
def LayerNormalization(
    xp: Backend,
    X: Array,
    Scale: Array,
    B: Array | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: DType = FLOAT32,
) -> tuple[Array, Array, Array]:
    """Normalise in float32 or wider, then scale and shift in the dtype of `X`."""
    axes = tuple(range(axis_within(axis, X.ndim), X.ndim))
    require_broadcasts("Scale", Scale, X.shape)
    if B is not None:
        require_broadcasts("B", B, X.shape)
    stash = xp.dtype(stash_type)
    parameters = (Scale,) if B is None else (Scale, B)
    if _are_of_rows(X, parameters, axes) and xp.has_kernels_of_rows(X, *parameters):
        Y, mean, inverse = xp.standardized_rows(X, Scale, B, epsilon=epsilon)
        return Y, xp.astype(mean, stash), xp.astype(inverse, stash)
    normalized, mean, inverse = _standardized(xp, wide(xp, X), axes, epsilon)
    if Scale.ndim == len(axes) and xp.normalizes_rows(X, Scale, B, is_centred=True):
        Y = xp.normalized_rows(X, Scale, B, epsilon=epsilon, is_centred=True)
    else:
        Y = xp.astype(normalized, X.dtype) * Scale
        Y = Y if B is None else Y + B
    return Y, xp.astype(mean, stash), xp.astype(inverse, stash)


def _are_of_rows(X: Array, parameters: Sequence[Array], axes: Ints) -> bool:
    """Whether each parameter has a number for each place of a row, of which there are some."""
    return bool(X.size) and all(each.shape == X.shape[axes[0] :] for each in parameters)


@op
def RMSNormalization(
    xp: Backend,
    X: Array,
    scale: Array,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: DType = FLOAT32,
) -> Array:
    """Normalise in float32 or wider, round to the dtype of `X`, scale in that of `scale`."""
    axes = tuple(range(axis_within(axis, X.ndim), X.ndim))
    require_broadcasts("scale", scale, X.shape)
    if _are_of_rows(X, [scale], axes) and xp.normalizes_rows(X, scale, None, is_centred=False):
        return xp.normalized_rows(X, scale, None, epsilon=epsilon, is_centred=False)
    x = wide(xp, X)
    normalized = xp.astype(x / root_mean_square(xp, x, axes, epsilon), X.dtype)
    return xp.astype(normalized, scale.dtype) * scale


def root_mean_square(xp: Backend, x: Array, axes: Ints, epsilon: float) -> Array:
    """Return the square root of the mean of squares plus `epsilon`, with `axes` of length 1."""
    return xp.sqrt(xp.mean(xp.square(x), axis=axes, keepdims=True) + epsilon)


@consumes_inputs
@op
@at_least_float32
def InstanceNormalization(
    xp: Backend, input: Array, scale: Array, B: Array, *, epsilon: float = 1e-5
) -> Array:
    axes = tuple(range(2, input.ndim))
    normalized, _, _ = _standardized(xp, input, axes, epsilon)
    return normalized * _per_channel(xp, scale, input) + _per_channel(xp, B, input)


@op
def GroupNormalization(
    xp: Backend,
    X: Array,
    scale: Array,
    bias: Array,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: DType = FLOAT32,
) -> Array:
    """Normalise in float32 or wider, then scale and shift each channel in the dtype of `X`."""
    grouped = xp.reshape(wide(xp, X), _by_group(X, num_groups))
    normalized, _, _ = _standardized(xp, grouped, (2,), epsilon)
    Y = xp.astype(xp.reshape(normalized, X.shape), X.dtype)
    return Y * _per_channel(xp, scale, X) + _per_channel(xp, bias, X)


@GroupNormalization.before(21)
def group_normalization_scaled_by_group(
    xp: Backend, X: Array, scale: Array, bias: Array, *, num_groups: int, epsilon: float = 1e-5
) -> Array:
    grouped = xp.reshape(X, _by_group(X, num_groups))
    return xp.reshape(InstanceNormalization(xp, grouped, scale, bias, epsilon=epsilon), X.shape)


def _by_group(X: Array, num_groups: int) -> Ints:
    if num_groups < 1 or X.ndim < 2 or X.shape[1] % num_groups:
        raise ValueError(
            f"X of shape {X.shape} cannot be divided into num_groups {num_groups} equal groups"
        )
    return X.shape[0], num_groups, math.prod(X.shape[1:]) // num_groups


@op
@at_least_float32
def MeanVarianceNormalization(xp: Backend, X: Array, *, axes: Ints = (0, 2, 3)) -> Array:
    inner = axes_within(axes, X.ndim)
    deviation = X - xp.mean(X, axis=inner, keepdims=True)
    variance = xp.mean(xp.square(deviation), axis=inner, keepdims=True)
    return deviation / (xp.sqrt(variance) + 1e-9)


@op
@at_least_float32
def LpNormalization(xp: Backend, input: Array, *, axis: int = -1, p: int = 2) -> Array:
    """Divide by the norm; where it is zero, so are the elements, and they stay zero."""
    require_one_of("p", p, (1, 2))
    norm = (ReduceL1 if p == 1 else ReduceL2)(xp, input, (axis,))
    return input / xp.where(xp.equal(norm, 0), xp.ones_like(norm), norm)


def _standardized(xp: Backend, x: Array, axes: Ints, epsilon: float) -> tuple[Array, Array, Array]:
    """Return `x` with mean 0 and variance 1 over `axes`, its mean and its inverse deviation."""
    mean = xp.mean(x, axis=axes, keepdims=True)
    centred = x - mean
    variance = xp.mean(xp.square(centred), axis=axes, keepdims=True)
    inverse = 1 / xp.sqrt(variance + epsilon)
    return centred * inverse, mean, inverse


def _per_channel(xp: Backend, parameter: Array, X: Array) -> Array:
    """Return a vector reshaped to broadcast along the channels of `X`."""
    channels = X.shape[1] if X.ndim > 1 else 1
    require_shape("a parameter (one number per channel)", parameter, (channels,))
    return xp.reshape(parameter, (channels, *(1,) * (X.ndim - 2)))


# -- over a batch ---------------------------------------------------------------------------------


@op
def BatchNormalization(
    xp: Backend,
    X: Array,
    scale: Array,
    B: Array,
    input_mean: Array,
    input_var: Array,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> Array | tuple[Array, ...]:
    """Normalise each channel; in training, return also the running mean and variance."""
    if not training_mode:
        return _normalized(xp, X, scale, B, input_mean, input_var, epsilon=epsilon)
    mean, variance = _statistics(xp, X)
    Y = _normalized(xp, X, scale, B, mean, variance, epsilon=epsilon)
    return (
        Y,
        _running(xp, input_mean, mean, momentum),
        _running(xp, input_var, variance, momentum),
    )


@BatchNormalization.before(7)
def batch_normalization_with_is_test(
    xp: Backend,
    X: Array,
    scale: Array,
    B: Array,
    mean: Array,
    var: Array,
    *,
    consumed_inputs: Ints | None = None,
    epsilon: float = 1e-5,
    is_test: int = 0,
    momentum: float = 0.9,
    spatial: int = 1,
) -> Array | tuple[Array, ...]:
    """Normalise; in training, return also the running and the batch's mean and variance.

    Where `spatial` is 0, every position of every channel has its own statistics.
    """
    shape, statistics = X.shape, mean.shape
    if not spatial:
        X = xp.reshape(X, (shape[0], math.prod(shape[1:])))
        scale, B, mean, var = (xp.reshape(v, (-1,)) for v in (scale, B, mean, var))
    if is_test:
        return xp.reshape(_normalized(xp, X, scale, B, mean, var, epsilon=epsilon), shape)
    now, spread = _statistics(xp, X)
    Y = _normalized(xp, X, scale, B, now, spread, epsilon=epsilon)
    running = (_running(xp, mean, now, momentum), _running(xp, var, spread, momentum))
    saved = (xp.astype(v, mean.dtype) for v in (now, spread))
    return (xp.reshape(Y, shape), *(xp.reshape(v, statistics) for v in (*running, *saved)))


@BatchNormalization.before(14)
def batch_normalization_training_if_it_has_outputs(
    xp: Backend,
    X: Array,
    scale: Array,
    B: Array,
    mean: Array,
    var: Array,
    *,
    outputs: Outputs,
    **others: Annotated[Any, batch_normalization_with_is_test],
) -> Array | tuple[Array, ...]:
    others["is_test"] = outputs == 1
    return batch_normalization_with_is_test(xp, X, scale, B, mean, var, **others)


def _normalized(
    xp: Backend, X: Array, scale: Array, B: Array, mean: Array, variance: Array, *, epsilon: float
) -> Array:
    """Normalise with one product and one sum per element; the rest is done once per channel."""
    x = wide(xp, X)
    scale, B, mean, variance = (
        _per_channel(xp, xp.astype(v, x.dtype), X) for v in (scale, B, mean, variance)
    )
    factor = scale / xp.sqrt(variance + epsilon)
    return xp.astype(x * factor + (B - mean * factor), X.dtype)


def _statistics(xp: Backend, X: Array) -> tuple[Array, Array]:
    """Return the mean and the variance of each channel."""
    x = wide(xp, X)
    axes = tuple(axis for axis in range(X.ndim) if axis != 1)
    mean = xp.mean(x, axis=axes, keepdims=True)
    variance = xp.mean(xp.square(x - mean), axis=axes)
    return xp.reshape(mean, (-1,)), xp.reshape(variance, (-1,))


def _running(xp: Backend, before: Array, now: Array, momentum: float) -> Array:
    past = xp.astype(before, now.dtype)
    return xp.astype(past * momentum + now * (1 - momentum), before.dtype)


# -- over neighbouring channels -------------------------------------------------------------------


@op
@at_least_float32
def LRN(
    xp: Backend,
    X: Array,
    *,
    size: int,
    alpha: float = 1e-4,
    beta: float = 0.75,
    bias: float = 1.0,
) -> Array:
    if size < 1 or X.ndim < 2:
        raise ValueError(
            f"size is {size} and X has {X.ndim} axes, but they must be at least 1 and 2"
        )
    single = (1,) * (X.ndim - 2)
    widths = [(0, 0), ((size - 1) // 2, size // 2), *((0, 0) for _ in single)]
    padded = xp.pad(xp.square(X), widths, 0)
    sums = xp.window_sum(padded, (size, *single), (1, *single), (1, *single))
    return X / (bias + alpha / size * sums) ** beta
