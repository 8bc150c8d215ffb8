"""Conv and ConvTranspose."""

from __future__ import annotations

import math

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import Ints, op
from sardonyx.ops.windows import (
    Layout,
    Windows,
    check_auto_pad,
    pad_pairs,
    positive,
    split_padding,
    windows_over,
)


@op
def Conv(
    xp: Backend,
    X: Array,
    W: Array,
    B: Array | None = None,
    *,
    group: int = 1,
    kernel_shape: Ints | None = None,
    **layout: Layout,
) -> Array:
    windows = windows_of_filters(X, W, group=group, kernel_shape=kernel_shape, **layout)
    Y = xp.convolution(
        X,
        W,
        strides=windows.strides,
        pads=windows.pads,
        dilations=windows.dilations,
        groups=group,
    )
    return with_bias(xp, Y, B)


def windows_of_filters(
    X: Array, W: Array, *, group: int, kernel_shape: Ints | None, **layout: Layout
) -> Windows:
    """Return the windows of the filters `W` over `X`; their channels must fit."""
    _check_filters(X, W, group, kernel_shape, is_transposed=False)
    return windows_over(X.shape[2:], W.shape[2:], **layout)


@op
def ConvTranspose(
    xp: Backend,
    X: Array,
    W: Array,
    B: Array | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    output_padding: Ints | None = None,
    output_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Array:
    """Convolve with the mirrored filters, for each place between elements with its share of them.

    Filters of which the places have unequal shares meet zeros between the elements instead.
    """
    _check_filters(X, W, group, kernel_shape, is_transposed=True)
    rank = X.ndim - 2
    strides, dilations = positive("strides", strides, rank), positive("dilations", dilations, rank)
    extents = [(k - 1) * d + 1 for k, d in zip(W.shape[2:], dilations, strict=True)]
    full = [(n - 1) * s + e for n, s, e in zip(X.shape[2:], strides, extents, strict=True)]
    if output_shape is None and auto_pad.startswith("SAME"):
        output_shape = tuple(n * s for n, s in zip(X.shape[2:], strides, strict=True))
    crops = _crops(full, auto_pad, output_padding, output_shape, pads)
    if max(strides) > max(dilations) == 1 and _divides(strides, W.shape[2:]):
        Y = _by_places(xp, X, W, strides, group)
        Y = _padded_or_cut(xp, Y, [(-head, -tail) for head, tail in crops])
        return with_bias(xp, Y, B)
    # Cut the ends off the full result by padding less than the filter's extent.
    widths = [(e - 1 - head, e - 1 - tail) for e, (head, tail) in zip(extents, crops, strict=True)]
    Y = xp.convolution(
        _padded_or_cut(xp, _spread(xp, X, strides), widths),
        _mirrored(xp, W, group),
        strides=(1,) * rank,
        pads=((0, 0),) * rank,
        dilations=dilations,
        groups=group,
    )
    return with_bias(xp, Y, B)


def _crops(
    full: list[int],
    auto_pad: str,
    output_padding: Ints | None,
    output_shape: Ints | None,
    pads: Ints | None,
) -> list[tuple[int, int]]:
    """Return how much to cut off the full result at both ends of each axis; negative adds."""
    rank = len(full)
    check_auto_pad(auto_pad)
    extra = (0,) * rank if output_padding is None else output_padding
    if len(extra) != rank or min(extra) < 0:
        raise ValueError(f"output_padding {extra} must be {rank} numbers, none of them negative")
    if output_shape is None:
        pairs = pad_pairs(None if auto_pad == "VALID" else pads, rank)
        crops = [(head, tail - e) for (head, tail), e in zip(pairs, extra, strict=True)]
    else:
        output_shape = positive("output_shape", output_shape, rank)
        crops = []
        for size, whole, e in zip(output_shape, full, extra, strict=True):
            head, _ = split_padding(max(whole + e - size, 0), auto_pad)
            crops.append((head, whole - size - head))
    if any(whole - head - tail < 1 for whole, (head, tail) in zip(full, crops, strict=True)):
        raise ValueError(f"pads {pads} cut off all of a result of shape {tuple(full)}")
    return crops


def _divides(strides: Ints, kernel: Ints) -> bool:
    return all(k and k % s == 0 for k, s in zip(kernel, strides, strict=True))


def _by_places(xp: Backend, X: Array, W: Array, strides: Ints, group: int) -> Array:
    """Return the full result, before its ends are cut off.

    Element i of the input and tap q * stride + r meet at (i + q) * stride + r: each remainder r is
    a convolution by the taps q, and all of them are one with as many times the filters.
    """
    channels, filters, *kernel = W.shape
    axes, rank = range(len(strides)), len(strides)
    taps = [k // s for k, s in zip(kernel, strides, strict=True)]
    split = [n for pair in zip(taps, strides, strict=True) for n in pair]
    W = xp.reshape(W, (channels, filters, *split))
    W = xp.permute_dims(W, (0, *(3 + 2 * i for i in axes), 1, *(2 + 2 * i for i in axes)))
    W = xp.reshape(W, (channels, filters * math.prod(strides), *taps))
    Y = xp.convolution(
        xp.pad(X, [(0, 0), (0, 0), *((n - 1, n - 1) for n in taps)], 0),
        _mirrored(xp, W, group),
        strides=(1,) * rank,
        pads=((0, 0),) * rank,
        dilations=(1,) * rank,
        groups=group,
    )
    batch, _, *sizes = Y.shape
    Y = xp.reshape(Y, (batch, group, *strides, filters, *sizes))
    woven = (axis for i in axes for axis in (3 + rank + i, 2 + i))
    Y = xp.permute_dims(Y, (0, 1, 2 + rank, *woven))
    whole = [n * s for n, s in zip(sizes, strides, strict=True)]
    return xp.reshape(Y, (batch, group * filters, *whole))


def _spread(xp: Backend, X: Array, strides: Ints) -> Array:
    """Return `X` with `stride - 1` zeros between neighbouring elements."""
    if set(strides) == {1}:
        return X
    lengths = X.shape[2:]
    pairs = [n for length in lengths for n in (length, 1)]
    widths = [pair for stride in strides for pair in ((0, 0), (0, stride - 1))]
    x = xp.pad(xp.reshape(X, (*X.shape[:2], *pairs)), [(0, 0), (0, 0), *widths], 0)
    spread = [n * s for n, s in zip(lengths, strides, strict=True)]
    x = xp.reshape(x, (*X.shape[:2], *spread))
    ends = (slice(0, n - s + 1) for n, s in zip(spread, strides, strict=True))
    return x[(slice(None), slice(None), *ends)]


def _mirrored(xp: Backend, W: Array, group: int) -> Array:
    """Turn filters of shape (C, M / group, ...) into those of a Conv from C to M channels."""
    kernel = W.shape[2:]
    W = xp.flip(W, axis=tuple(range(2, W.ndim)))
    W = xp.reshape(W, (group, W.shape[0] // group, *W.shape[1:]))
    W = xp.moveaxis(W, 2, 1)
    return xp.reshape(W, (group * W.shape[1], W.shape[2], *kernel))


def _padded_or_cut(xp: Backend, x: Array, widths: list[tuple[int, int]]) -> Array:
    ends = (
        slice(max(-head, 0), n - max(-tail, 0))
        for n, (head, tail) in zip(x.shape[2:], widths, strict=True)
    )
    x = x[(slice(None), slice(None), *ends)]
    outer = [(max(head, 0), max(tail, 0)) for head, tail in widths]
    return xp.pad(x, [(0, 0), (0, 0), *outer], 0)


def _check_filters(
    X: Array, W: Array, group: int, kernel_shape: Ints | None, *, is_transposed: bool
) -> None:
    if W.ndim != X.ndim or X.ndim < 3:
        raise ValueError(
            f"X has {X.ndim} axes and W has {W.ndim}; they must be equal and at least three"
        )
    if group < 1:
        raise ValueError(f"group is {group}, but must be positive")
    if kernel_shape is not None and kernel_shape != W.shape[2:]:
        raise ValueError(f"kernel_shape is {kernel_shape}, but W has {W.shape[2:]}")
    channels = W.shape[0] if is_transposed else W.shape[1] * group
    if X.shape[1] != channels or W.shape[0] % group:
        raise ValueError(
            f"W of shape {W.shape} with group {group} does not fit the {X.shape[1]} channels of X"
        )


def with_bias(xp: Backend, Y: Array, B: Array | None) -> Array:
    if B is None:
        return Y
    require_shape("B", B, (Y.shape[1],))
    return Y + xp.reshape(B, (-1, *(1,) * (Y.ndim - 2)))
