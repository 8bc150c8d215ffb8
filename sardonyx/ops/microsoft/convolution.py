"""Convolutions and pooling of com.microsoft: with an activation, channels last, with a mask."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops import convolution
from sardonyx.ops.axes import require_broadcasts, require_shape
from sardonyx.ops.definition import Floats, Ints, op
from sardonyx.ops.microsoft.channels import channels_first
from sardonyx.ops.microsoft.fused_activation import activated
from sardonyx.ops.windows import windows_over

# -- with an activation ---------------------------------------------------------------------------


@op(domain="com.microsoft")
def FusedConv(
    xp: Backend,
    X: Array,
    W: Array,
    B: Array | None = None,
    Z: Array | None = None,
    *,
    activation: str | None = None,
    activation_params: Floats | None = None,
    **layout: Annotated[Any, convolution.Conv],
) -> Array:
    """Convolve, add `Z`, apply the activation."""
    Y = convolution.Conv(xp, X, W, B, **layout)
    if Z is not None:
        require_shape("Z", Z, Y.shape)
        Y = Y + Z
    return activated(xp, Y, activation, activation_params)


# -- with the channels last -----------------------------------------------------------------------


@op(domain="com.microsoft")
def NhwcConv(
    xp: Backend,
    X: Array,
    W: Array,
    B: Array | None = None,
    **layout: Annotated[Any, convolution.Conv],
) -> Array:
    """Convolve arrays (N, *spatial, C) with filters in the standard's layout."""
    return NhwcFusedConv(xp, X, W, B, **layout)


@op(domain="com.microsoft")
def NhwcFusedConv(
    xp: Backend,
    X: Array,
    W: Array,
    B: Array | None = None,
    Z: Array | None = None,
    **layout: Annotated[Any, FusedConv],
) -> Array:
    """Convolve arrays (N, *spatial, C), add `Z` in the same layout, apply the activation."""
    X = channels_first(xp, X, 1)
    Z = None if Z is None else channels_first(xp, Z, 1)
    return xp.moveaxis(FusedConv(xp, X, W, B, Z, **layout), 1, -1)


# -- with pads among the inputs -------------------------------------------------------------------


@op(domain="com.microsoft")
def ConvTransposeWithDynamicPads(
    xp: Backend,
    X: Array,
    W: Array,
    Pads: Ints | None = None,
    B: Array | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    output_padding: Ints | None = None,
    strides: Ints | None = None,
) -> Array:
    return convolution.ConvTranspose(
        xp,
        X,
        W,
        B,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        output_padding=output_padding,
        pads=Pads,
        strides=strides,
    )


# -- with a mask ----------------------------------------------------------------------------------


@op(domain="com.microsoft")
def MaxpoolWithMask(
    xp: Backend,
    X: Array,
    M: Array,
    *,
    auto_pad: str = "NOTSET",
    kernel_shape: Ints | None = None,
    pads: Ints | None = None,
    storage_order: int = 0,
    strides: Ints | None = None,
) -> Array:
    """Return the maximum of each window, whose rows end where the mask is 0."""
    if kernel_shape is None:
        raise ValueError("kernel_shape is missing, but must be one number per spatial axis")
    windows = windows_over(X.shape[2:], kernel_shape, auto_pad=auto_pad, pads=pads, strides=strides)
    lowest = float(np.finfo(xp.numpy_dtype(X.dtype)).min)
    layout = (windows.kernel, windows.strides, windows.dilations)
    values = xp.windows(windows.padded(xp, X, lowest), *layout)
    masks = xp.windows(windows.padded(xp, _readable(xp, X, M), True), *layout)
    is_open = masks[0]
    largest = xp.where(is_open, values[0], lowest)
    for i, (value, mask) in enumerate(zip(values[1:], masks[1:], strict=True), 1):
        is_open = is_open & mask if i % windows.kernel[-1] else mask
        largest = xp.maximum(largest, xp.where(is_open, value, lowest))
    return largest


def _readable(xp: Backend, X: Array, M: Array) -> Array:
    """Return where the mask is not 0; of an image, onnxruntime always reads the first element."""
    if M.shape[2:] != X.shape[2:]:
        raise ValueError(f"M has shape {M.shape}, but its spatial axes must be {X.shape[2:]}")
    require_broadcasts("M", M, X.shape)
    mask = xp.broadcast_to(xp.not_equal(M, 0), X.shape)
    if X.ndim == 3:
        return mask
    first = np.arange(math.prod(X.shape[2:])).reshape(X.shape[2:]) == 0
    return mask | xp.asarray(first)
