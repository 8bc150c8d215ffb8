"""Col2Im and MaxUnpool: they rebuild an image from its columns or from its pooled maxima."""

from __future__ import annotations

import math
from functools import reduce

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import Within
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import Host, Ints, op
from sardonyx.ops.precision import wide
from sardonyx.ops.windows import Windows, pad_pairs, positive, windows_over


@op
def Col2Im(
    xp: Backend,
    input: Array,
    image_shape: Ints,
    block_shape: Ints,
    *,
    dilations: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Array:
    """Sum overlapping blocks; booleans are combined by "or", strings are concatenated."""
    rank = len(image_shape)
    image_shape = positive("image_shape", image_shape, rank)
    block_shape = positive("block_shape", block_shape, rank)
    windows = windows_over(
        image_shape, block_shape, dilations=dilations, pads=pads, strides=strides
    )
    per_channel, blocks = math.prod(block_shape), math.prod(windows.sizes)
    if input.ndim != 3 or input.shape[2] != blocks:
        raise ValueError(
            f"image_shape {image_shape} with block_shape {block_shape} needs an input of shape "
            f"(batch, channels * {per_channel}, {blocks}), but it has {input.shape}"
        )
    if input.shape[1] % per_channel:
        raise ValueError(
            f"axis 1 has size {input.shape[1]}, but must be a multiple of {per_channel}, the size "
            f"of a block {block_shape}"
        )
    batch, channels = input.shape[0], input.shape[1] // per_channel
    shape = (batch, channels, *image_shape)
    xp.allow(shape, xp.numpy_dtype(input.dtype), copies=8)
    x = xp.reshape(wide(xp, input), (batch * channels, *block_shape, *windows.sizes))
    # Axis by axis, merge one side of the block and the number of blocks along it into one side of
    # the image, which becomes the last axis.
    for i in range(rank):
        x = xp.moveaxis(x, 1 + rank - i, 2)
        x = xp.reshape(x, (x.shape[0], x.shape[1] * x.shape[2], *x.shape[3:]))
        x = xp.moveaxis(_sum_of_sources(xp, x, _sources(windows, i)), 1, -1)
    return xp.astype(xp.reshape(x, shape), input.dtype)


def _sources(windows: Windows, axis: int) -> Host:
    """Return which elements of a (side, count) plane meet at each pixel; `side * count` is none."""
    size, side, count = windows.spatial[axis], windows.kernel[axis], windows.sizes[axis]
    taps = np.arange(side) * windows.dilations[axis] - windows.pads[axis][0]
    at = np.add.outer(taps, np.arange(count) * windows.strides[axis]).reshape(-1)
    source = np.flatnonzero((at >= 0) & (at < size))
    source = source[np.argsort(at[source], kind="stable")]
    at = at[source]
    nth = np.arange(at.size) - np.searchsorted(at, at)
    table = np.full((nth.max(initial=0) + 1, size), side * count)
    table[nth, at] = source
    return table


def _sum_of_sources(xp: Backend, x: Array, sources: Host) -> Array:
    """Return the sum of the elements of axis 1 that each column of `sources` names."""
    is_text, is_bool = xp.numpy_dtype(x.dtype).kind == "O", xp.isdtype(x.dtype, "bool")
    widths = [(0, 0), (0, 1), *((0, 0) for _ in x.shape[2:])]
    padded = xp.pad(x, widths, "" if is_text else 0)
    terms = xp.take(padded, xp.asarray(sources.reshape(-1)), axis=1)
    terms = xp.reshape(terms, (x.shape[0], *sources.shape, *x.shape[2:]))
    if sources.shape[0] == 1 or is_text:
        return reduce(xp.add, xp.unstack(terms, axis=1))
    return xp.any(terms, axis=1) if is_bool else xp.sum(terms, axis=1, dtype=x.dtype)


@op
def MaxUnpool(
    xp: Backend,
    X: Array,
    I: Array,  # noqa: E741  (ONNX's name)
    output_shape: Ints | None = None,
    *,
    kernel_shape: Ints,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Array:
    """Scatter `X` into the area that the windows span, then pad it to a larger `output_shape`.

    The indices count the elements of that area. With an `output_shape`, `pads` are ignored.
    """
    if X.shape != I.shape:
        raise ValueError(f"X has shape {X.shape} and I has shape {I.shape}; they must be equal")
    rank = X.ndim - 2
    kernel_shape = positive("kernel_shape", kernel_shape, rank)
    strides = positive("strides", strides, rank)
    padding = pad_pairs(pads, rank) if output_shape is None else [(0, 0)] * rank
    spanned = [
        (size - 1) * stride + side - sum(ends)
        for size, stride, side, ends in zip(
            X.shape[2:], strides, kernel_shape, padding, strict=True
        )
    ]
    if output_shape is None:
        output_shape = (*X.shape[:2], *spanned)
    if len(output_shape) != X.ndim or output_shape[:2] != X.shape[:2] or min(output_shape[2:]) < 1:
        raise ValueError(
            f"output_shape {output_shape} does not fit X of shape {X.shape}: it needs the same "
            "first two sizes, and positive sizes after them"
        )
    inner = [min(sizes) for sizes in zip(spanned, output_shape[2:], strict=True)]
    size = math.prod((*X.shape[:2], *inner))
    xp.require(I, Within("I", 0, size - 1))
    # A negative index is out of range; it does not count from the end.
    positions = xp.where(I < 0, size, I)
    flat = xp.zeros((size,), dtype=X.dtype)
    flat = xp.scatter(flat, (xp.reshape(positions, (-1,)),), xp.reshape(X, (-1,)))
    widths = [(0, size - n) for size, n in zip(output_shape[2:], inner, strict=True)]
    return xp.pad(xp.reshape(flat, (*X.shape[:2], *inner)), [(0, 0), (0, 0), *widths], 0)
