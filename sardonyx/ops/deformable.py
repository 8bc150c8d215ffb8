"""DeformConv: a convolution in which an input shifts each tap of the filters."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import reduce
from itertools import product

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import require_shape
from sardonyx.ops.convolution import windows_of_filters, with_bias
from sardonyx.ops.definition import Ints, op
from sardonyx.ops.indexing import along
from sardonyx.ops.precision import at_least_float32
from sardonyx.ops.windows import Windows

INT64 = np.dtype(np.int64)

# A position has 2**axes neighbours.
MOST_AXES = 8


@op
@at_least_float32
def DeformConv(
    xp: Backend,
    X: Array,
    W: Array,
    offset: Array,
    B: Array | None = None,
    mask: Array | None = None,
    *,
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    offset_group: int = 1,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Array:
    """Interpolate taps between elements linearly; the input is surrounded by zeros."""
    if X.ndim - 2 > MOST_AXES or not X.size:
        raise ValueError(
            f"X has shape {X.shape}; it must not be empty, and must have 1 to {MOST_AXES} spatial "
            "axes"
        )
    layout = {"dilations": dilations, "pads": pads, "strides": strides}
    windows = windows_of_filters(X, W, group=group, kernel_shape=kernel_shape, **layout)
    batch, channels, *spatial = X.shape
    rank, taps, places = len(spatial), math.prod(windows.kernel), math.prod(windows.sizes)
    if offset_group < 1 or channels % offset_group:
        raise ValueError(
            f"{channels} channels cannot be divided into offset_group {offset_group} equal groups"
        )
    require_shape("offset", offset, (batch, offset_group * taps * rank, *windows.sizes))
    shifts = xp.reshape(offset, (batch, offset_group, taps, rank, places))
    # The channels of a group are contiguous, so that one gather reads them together.
    X = xp.reshape(X, (batch, offset_group, channels // offset_group, *spatial))
    rows = xp.moveaxis(X, 2, -1)
    at = [shifts[:, :, :, i, :] + base for i, base in enumerate(_unshifted(xp, windows, X.dtype))]
    sampled = _interpolated(xp, rows, at)
    if mask is not None:
        require_shape("mask", mask, (batch, offset_group * taps, *windows.sizes))
        sampled = sampled * xp.reshape(mask, (batch, offset_group, taps, places, 1))
    columns = xp.reshape(
        xp.moveaxis(sampled, -1, 2), (batch, channels, *windows.kernel, *windows.sizes)
    )
    return with_bias(xp, xp.product_of_columns(columns, W, group), B)


def _unshifted(xp: Backend, windows: Windows, dtype: object) -> Iterator[Array]:
    """Yield the positions of all taps before the shift: one array (taps, windows) per axis."""
    taps, places = np.indices(windows.kernel), np.indices(windows.sizes)
    for tap, place, dilation, stride, (head, _) in zip(
        taps, places, windows.dilations, windows.strides, windows.pads, strict=True
    ):
        within, start = tap.reshape(-1, 1) * dilation, place.reshape(1, -1) * stride - head
        yield xp.astype(xp.asarray(within), dtype) + xp.astype(xp.asarray(start), dtype)


def _interpolated(xp: Backend, rows: Array, at: list[Array]) -> Array:
    """Sample `rows` (batch, group, *spatial, channels) at `at` (batch, group, taps, windows)."""
    outer = [along(xp, size, i, rank=4) for i, size in enumerate(rows.shape[:2])]
    neighbours = [
        _neighbours(xp, x, length) for x, length in zip(at, rows.shape[2:-1], strict=True)
    ]
    parts = []
    for corner in product(*neighbours):
        places, shares, inside = zip(*corner, strict=True)
        row = xp.gather(rows, (*outer, *places))
        # Selected instead of multiplied by zero, since the element may be infinite.
        row = xp.where(xp.expand_dims(reduce(xp.logical_and, inside), axis=-1), row, 0.0)
        parts.append(row * xp.expand_dims(math.prod(shares[1:], start=shares[0]), axis=-1))
    return reduce(xp.add, parts)


def _neighbours(xp: Backend, at: Array, length: int) -> list[tuple[Array, Array, Array]]:
    """Return both neighbours of each position: index, weight, and whether the weight counts."""
    at = xp.minimum(xp.maximum(at, -2.0), length + 1.0)
    below = xp.floor(at)
    neighbours = []
    for side, share in ((below, 1 - (at - below)), (below + 1, at - below)):
        is_inside = (side >= 0) & (side < length) & xp.not_equal(share, 0)
        place = xp.astype(xp.where(is_inside, side, 0.0), xp.dtype(INT64))
        neighbours.append((place, share, is_inside))
    return neighbours
