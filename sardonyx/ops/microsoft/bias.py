"""Element-wise chains of com.microsoft: a bias, a residual or a gate, and what follows it."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops import activation, random
from sardonyx.ops.axes import axis_within, require_broadcasts, require_shape
from sardonyx.ops.definition import Key, op
from sardonyx.ops.precision import at_least_float32, wide

# -- a bias ---------------------------------------------------------------------------------------


@op(domain="com.microsoft")
@at_least_float32
def BiasAdd(xp: Backend, X: Array, bias: Array, skip: Array) -> Array:
    require_shape("bias", bias, X.shape[-1:])
    require_shape("skip", skip, X.shape)
    return X + bias + skip


@op(domain="com.microsoft")
@at_least_float32
def BiasSplitGelu(xp: Backend, X: Array, bias: Array) -> Array:
    """Multiply the first half of the last axis by the Gelu of the other half."""
    if X.ndim == 0 or X.shape[-1] % 2:
        raise ValueError(f"X has shape {X.shape}, but its last axis must have two halves")
    require_shape("bias", bias, X.shape[-1:])
    half = X.shape[-1] // 2
    x = X + bias
    return x[..., :half] * activation.Gelu(xp, x[..., half:])


@op(domain="com.microsoft")
def BiasSoftmax(
    xp: Backend, data: Array, bias: Array, *, axis: int = 1, is_inner_broadcast: int
) -> Array:
    """Return the softmax, over the axes from `axis` on, of the sum of the data and the bias.

    Each row of an inner bias is for as many neighbouring rows of the data; an outer bias repeats.
    """
    axis = axis_within(axis, data.ndim)
    rows, size = _rows_and_size(data.shape, axis)
    bias_rows = bias.size // size if size else rows
    if bias.size != bias_rows * size or (rows % bias_rows if bias_rows else rows):
        raise ValueError(
            f"bias has shape {bias.shape}, but must have rows of {size} numbers, of which as many "
            f"as divide the {rows} rows of data"
        )
    repeats = rows // max(bias_rows, 1)
    of_data = (bias_rows, repeats, size) if is_inner_broadcast else (repeats, bias_rows, size)
    of_bias = (bias_rows, 1, size) if is_inner_broadcast else (1, bias_rows, size)
    scores = xp.reshape(wide(xp, data), of_data) + xp.reshape(wide(xp, bias), of_bias)
    return xp.astype(xp.reshape(activation.Softmax(xp, scores), data.shape), data.dtype)


def _rows_and_size(shape: tuple[int, ...], axis: int) -> tuple[int, int]:
    """Return the number of elements before `axis`, and from it on."""
    return int(np.prod(shape[:axis], dtype=int)), int(np.prod(shape[axis:], dtype=int))


# -- a gate ---------------------------------------------------------------------------------------


@op(domain="com.microsoft")
def GatedAdd(xp: Backend, X: Array, Y: Array, gate: Array) -> Array:
    require_shape("Y", Y, X.shape)
    require_shape("gate", gate, (*X.shape[:-1], 1))
    return X + Y * gate


@op(domain="com.microsoft")
def ScaledSiLU(xp: Backend, X: Array, scale: Array | None = None, *, alpha: float = 1.0) -> Array:
    """Return Z * sigmoid(Z) for the scaled X, with each step rounded to the dtype of `X`."""
    if scale is not None:
        require_shape("scale", scale, ())
    Z = xp.astype(wide(xp, X) * (alpha if scale is None else wide(xp, scale)), X.dtype)
    return Z * activation.Sigmoid(xp, Z)


# -- dropout --------------------------------------------------------------------------------------


@op(domain="com.microsoft")
def BiasDropout(
    xp: Backend,
    data: Array,
    bias: Array,
    residual: Array | None = None,
    ratio: float = 0.5,
    training_mode: bool = False,
    *,
    seed: int | None = None,
    key: Key,
) -> tuple[Array, Array]:
    """Drop elements of the sum of the data and the bias, then add the residual."""
    require_broadcasts("bias", bias, data.shape)
    total = data + bias
    output, mask = _dropped(xp, total, ratio, training_mode, seed, key)
    if residual is not None:
        require_shape("residual", residual, data.shape)
        output = output + residual
    return output, mask


@op(domain="com.microsoft")
def BitmaskDropout(
    xp: Backend,
    data: Array,
    ratio: float = 0.5,
    training_mode: bool = False,
    *,
    seed: int | None = None,
    key: Key,
) -> tuple[Array, Array]:
    """Drop elements; the mask has a bit per element, 32 in a word."""
    output, mask = _dropped(xp, data, ratio, training_mode, seed, key)
    return output, _bits(xp, mask)


@op(domain="com.microsoft")
def BitmaskBiasDropout(
    xp: Backend,
    data: Array,
    bias: Array,
    residual: Array | None = None,
    ratio: float = 0.5,
    training_mode: bool = False,
    *,
    seed: int | None = None,
    key: Key,
) -> tuple[Array, Array]:
    """Drop elements of data and bias, then add the residual; the mask has a bit per element."""
    output, mask = BiasDropout(xp, data, bias, residual, ratio, training_mode, seed=seed, key=key)
    return output, _bits(xp, mask)


def _dropped(
    xp: Backend, data: Array, ratio: float, training_mode: bool, seed: int | None, key: Key
) -> tuple[Array, Array]:
    results: Any = random.Dropout(xp, data, ratio, training_mode, seed=seed, outputs=2, key=key)
    output, mask = results
    return output, mask


def _bits(xp: Backend, mask: Array) -> Array:
    """Return the elements of a mask in words of 32 bits, the first in the lowest bit."""
    uint32 = xp.dtype(np.dtype(np.uint32))
    flat = xp.reshape(mask, (-1,))
    flat = xp.pad(flat, [(0, -flat.shape[0] % 32)], False)
    words = xp.reshape(xp.astype(flat, uint32), (-1, 32))
    values = xp.asarray(np.uint32(1) << np.arange(32, dtype=np.uint32))
    return xp.sum(words * values, axis=1, dtype=uint32)
