"""Functions of weights alone, which run once so that each call has less to do."""

from __future__ import annotations

import math

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import DType
from sardonyx.ops.precision import wide


def batch_factor(
    xp: Backend, scale: Array, variance: Array, *, epsilon: float, dtype: DType
) -> Array:
    """Return the factor by which a batch normalisation multiplies each channel."""
    scale, variance = (xp.astype(v, xp.dtype(dtype)) for v in (scale, variance))
    return scale / xp.sqrt(variance + epsilon)


def batch_shift(xp: Backend, bias: Array, mean: Array, factor: Array) -> Array:
    """Return the shift that a batch normalisation then adds to each channel."""
    return xp.astype(bias, factor.dtype) - xp.astype(mean, factor.dtype) * factor


def scaled_and_shifted(xp: Backend, X: Array, factor: Array, shift: Array) -> Array:
    """Return `X * factor + shift` for each channel, computed in float32 or wider."""
    by_channel = (-1, *(1,) * (X.ndim - 2))
    x = wide(xp, X)
    return xp.astype(x * xp.reshape(factor, by_channel) + xp.reshape(shift, by_channel), X.dtype)


def scaled_outputs(
    xp: Backend, weight: Array, factor: Array, *, axis: int, groups: int = 1
) -> Array:
    """Multiply a weight by a factor for each of its outputs, which lie along `axis`.

    If the first axis is divided into groups, each group has its own outputs.
    """
    shape = weight.shape
    grouped = (groups, shape[0] // groups, *shape[1:])
    outputs = np.ones(len(grouped), np.int64).tolist()
    outputs[0], outputs[axis + 1] = groups, -1
    if axis == 0:
        outputs = [1, -1, *outputs[2:]]
    product = xp.reshape(weight, grouped) * xp.reshape(factor, tuple(outputs))
    return xp.reshape(product, shape)


def by_output(xp: Backend, x: Array, *, outputs: int) -> Array:
    """Flatten a scalar, or an array that varies along one axis, to one element per output."""
    return xp.broadcast_to(xp.reshape(x, (math.prod(x.shape),)), (outputs,))
