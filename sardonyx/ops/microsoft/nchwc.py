"""The operators of com.microsoft.nchwc: convolution and pooling in onnxruntime's blocked layout.

An array (N, C, H, W) in that layout has the memory of an array (N, C / block, H, W, block). The
filters are in blocks too. The block is the width of the processor's vectors, and onnxruntime reads
such a file only on processors like the one that wrote it. So does sardonyx: the file does not say
the width. Where all channels are multiples of 16, its shapes fit both; others are refused.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Annotated, Any

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops import pooling
from sardonyx.ops.definition import Ints, Shaped, op
from sardonyx.ops.microsoft.convolution import FusedConv
from sardonyx.ops.options import require_one_of
from sardonyx.ops.resampling import Resize

DOMAIN = "com.microsoft.nchwc"

# -- to and from blocks ---------------------------------------------------------------------------


@op(domain=DOMAIN)
def ReorderInput(xp: Backend, X: Array, *, channels_last: int = 0) -> Array:
    """Return (N, C, H, W), or (N, H, W, C), in blocks; zeros fill the last block."""
    X = xp.moveaxis(X, -1, 1) if channels_last else X
    missing = -X.shape[1] % block_size()
    X = xp.pad(X, [(0, 0), (0, missing), (0, 0), (0, 0)], 0) if missing else X
    return in_blocks(xp, X, block_size())


@op(domain=DOMAIN)
def ReorderOutput(xp: Backend, X: Array, *, channels: int = 0, channels_last: int = 0) -> Array:
    """Return the first `channels` of an array in blocks as (N, C, H, W), or as (N, H, W, C)."""
    if not 0 < channels <= X.shape[1]:
        raise ValueError(f"channels is {channels}, but must be 1 to {X.shape[1]}, those of X")
    if X.shape[1] != channels + -channels % block_size():
        raise ValueError(_of_another_processor(X.shape[1]))
    Y = without_blocks(xp, X, block_size())[:, :channels, ...]
    return xp.moveaxis(Y, 1, -1) if channels_last else Y


def in_blocks(xp: Backend, X: Array, block: int) -> Array:
    """Return (N, C, H, W) in blocks of channels, in the same shape."""
    _require_image(X)
    batch, channels, *sizes = X.shape
    _require_blocks(channels, block)
    X = xp.reshape(X, (batch, channels // block, block, *sizes))
    return xp.reshape(xp.moveaxis(X, 2, -1), (batch, channels, *sizes))


def without_blocks(xp: Backend, X: Array, block: int) -> Array:
    """Return an array in blocks as (N, C, H, W)."""
    _require_image(X)
    batch, channels, *sizes = X.shape
    _require_blocks(channels, block)
    X = xp.reshape(X, (batch, channels // block, *sizes, block))
    return xp.reshape(xp.moveaxis(X, -1, 2), (batch, channels, *sizes))


def _require_image(X: Array) -> None:
    if X.ndim != 4:
        raise ValueError(f"an array in blocks has shape {X.shape}, but must have four axes")


def _require_blocks(channels: int, block: int) -> None:
    if channels % block:
        raise ValueError(_of_another_processor(channels))


def _of_another_processor(channels: int) -> str:
    return (
        f"an array has {channels} channels, but this processor's blocks have {block_size()}: "
        "another processor wrote the file. Take the file from before onnxruntime's optimizer"
    )


@cache
def block_size() -> int:
    """Return the number of channels in a block where onnxruntime runs on this processor."""
    if platform.machine().lower() in ("arm64", "aarch64"):
        return 16
    features = getattr(import_module("numpy._core._multiarray_umath"), "__cpu_features__", {})
    return 16 if features.get("AVX512F") else 8


# -- convolution ----------------------------------------------------------------------------------


@op(domain=DOMAIN)
def Conv(
    xp: Backend,
    X: Array,
    W: Array,
    B: Array | None = None,
    Sum: Array | None = None,
    *,
    group: int = 1,
    **layout: Annotated[Any, FusedConv],
) -> Array:
    """Convolve, add `Sum`, apply the activation; an input of few channels is not in blocks."""
    block = block_size()
    X = X if reads_plain(W, group) else without_blocks(xp, X, block)
    W = filters_without_blocks(xp, W, block, of_inputs=reads_blocks_of_inputs(W, group))
    Sum = None if Sum is None else without_blocks(xp, Sum, block)
    return in_blocks(xp, FusedConv(xp, X, W, B, Sum, group=group, **layout), block)


def reads_plain(W: Shaped, group: int) -> bool:
    """Return whether the filters read an input that is not in blocks: one of few channels."""
    return group == 1 and W.shape[1] < block_size()


def reads_blocks_of_inputs(W: Shaped, group: int) -> bool:
    """Return whether the filters are in blocks of inputs too, as most are."""
    return not reads_plain(W, group) and (group == 1 or W.shape[1] > 1)


def filters_without_blocks(xp: Backend, W: Array, block: int, *, of_inputs: bool) -> Array:
    """Return filters in blocks of outputs, or of outputs and inputs, as (M, C / group, H, W)."""
    outputs, inputs, *kernel = W.shape
    _require_blocks(outputs, block)
    if not of_inputs:
        W = xp.reshape(W, (outputs // block, inputs, *kernel, block))
        return xp.reshape(xp.moveaxis(W, -1, 1), (outputs, inputs, *kernel))
    _require_blocks(inputs, block)
    W = xp.reshape(W, (outputs // block, inputs // block, *kernel, block, block))
    return xp.reshape(xp.permute_dims(W, (0, 5, 1, 4, 2, 3)), (outputs, inputs, *kernel))


# -- pooling and resampling -----------------------------------------------------------------------


@op(domain=DOMAIN)
def MaxPool(xp: Backend, X: Array, **layout: Annotated[Any, pooling.MaxPool]) -> Array:
    return _by_channel(xp, X, pooling.MaxPool, outputs=1, **layout)


@op(domain=DOMAIN)
def AveragePool(xp: Backend, X: Array, **layout: Annotated[Any, pooling.AveragePool]) -> Array:
    return _by_channel(xp, X, pooling.AveragePool, **layout)


@op(domain=DOMAIN)
def GlobalMaxPool(xp: Backend, X: Array) -> Array:
    return _by_channel(xp, X, pooling.GlobalMaxPool)


@op(domain=DOMAIN)
def GlobalAveragePool(xp: Backend, X: Array) -> Array:
    return _by_channel(xp, X, pooling.GlobalAveragePool)


@op(domain=DOMAIN)
def Upsample(
    xp: Backend,
    X: Array,
    *,
    coordinate_transformation_mode: str = "asymmetric",
    mode: str = "nearest",
    scales: Ints | None = None,
) -> Array:
    """Repeat rows and columns, or interpolate between them; `scales` has one number per axis."""
    require_one_of("mode", mode, ("nearest", "linear"))
    if scales is None:
        raise ValueError("scales are missing, but must be four whole numbers")
    is_nearest = mode == "nearest"
    return _by_channel(
        xp,
        X,
        Resize,
        scales=tuple(map(float, scales)),
        mode=mode,
        nearest_mode="floor",
        coordinate_transformation_mode=(
            "asymmetric" if is_nearest else coordinate_transformation_mode
        ),
    )


def _by_channel(xp: Backend, X: Array, function: Callable[..., Any], **attributes: Any) -> Array:
    """Apply a function of (N, C, H, W) that leaves channels apart to an array in blocks."""
    Y = function(xp, without_blocks(xp, X, block_size()), **attributes)
    return in_blocks(xp, Y, block_size())
