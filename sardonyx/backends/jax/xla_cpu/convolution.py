"""Convolutions with their channels last, as XLA's kernels for CPUs want them.

The axes are moved before and after each convolution; XLA cancels the moves between two of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from sardonyx.backends import windows
from sardonyx.backends.jax.convolution_layout import ConvolutionLayout
from sardonyx.backends.jax.precision import multiplied
from sardonyx.backends.jax.xla_cpu.convolution_forms import (
    MOST_GROUPS,
    are_columns_less,
    are_tiles,
    is_shifted,
)

HIGHEST = lax.Precision.HIGHEST


def correlate(x: Any, weight: Any, layout: ConvolutionLayout, *, is_turned: bool = False) -> Any:
    """Correlate (N, C, *spatial) with (M, C / groups, *kernel).

    With `is_turned` the weight has its channels and filters last in memory.
    """
    x = jnp.moveaxis(x, 1, -1)
    one_group = layout.groups == 1
    y = _dense(x, weight, layout, is_turned) if one_group else _grouped(x, weight, layout)
    return jnp.moveaxis(y, -1, 1)


def general_convolution(
    x: Any,
    weight: Any,
    layout: ConvolutionLayout,
    precision: Any = HIGHEST,
    axes: str = "NC*",
    **options: Any,
) -> Any:
    """The same as one operation of XLA; `axes` are those of `x` and of the result."""
    spatial = "".join(map(str, range(layout.rank)))
    axes = axes.replace("*", spatial)
    return multiplied(
        lax.conv_general_dilated,
        x,
        weight,
        precision=precision,
        window_strides=layout.strides,
        padding=layout.pads,
        rhs_dilation=layout.dilations,
        dimension_numbers=(axes, f"OI{spatial}", axes),
        feature_group_count=layout.groups,
        **options,
    )


def _grouped(x: Any, weight: Any, layout: ConvolutionLayout) -> Any:
    groups = layout.groups
    if is_shifted(weight.shape):
        return _sum_of_shifted(x, weight, layout)
    if groups > MOST_GROUPS:
        return general_convolution(x, weight, layout, axes="N*C")
    parts = zip(jnp.split(x, groups, -1), jnp.split(weight, groups), strict=True)
    one_group = layout._replace(groups=1)
    return jnp.concat([_dense(*part, one_group) for part in parts], axis=-1)


def _sum_of_shifted(x: Any, weight: Any, layout: ConvolutionLayout) -> Any:
    """The sum of each tap times the shifted input, one channel of a group at a time."""
    count, inner, *kernel = weight.shape
    wide = jnp.promote_types(x.dtype, jnp.float32)
    # XLA would compute what `x` comes from anew for each tap, such as conversions from integers.
    views = _windows(lax.optimization_barrier(_padded(x, layout)), kernel, layout)
    taps = weight.astype(wide).reshape(layout.groups, count // layout.groups, inner, len(views))
    taps = _laid_out(jnp.moveaxis(taps, (-1, -2), (0, 1)))
    sizes = views[0].shape[:-1]
    total: Any = None
    for view, tap in zip(views, taps, strict=True):
        channels = view.astype(wide).reshape(*sizes, layout.groups, inner)
        for i in range(inner):
            product = channels[..., i, None] * tap[i]
            total = product if total is None else total + product
    return total.reshape(*sizes, count).astype(x.dtype)


def _laid_out(x: Any) -> Any:
    """`x`, stored in row-major order, where XLA would rather gather its elements at each use."""
    flat = x.reshape(x.size)
    half = x.size // 2
    # XLA does not look through two writes into one array.
    room = lax.dynamic_update_slice(jnp.zeros_like(flat), flat[:half], (0,))
    return lax.dynamic_update_slice(room, flat[half:], (half,)).reshape(x.shape)


# -- one group ------------------------------------------------------------------------------------


def _dense(x: Any, weight: Any, layout: ConvolutionLayout, is_turned: bool = False) -> Any:
    kernel = weight.shape[2:]
    if are_tiles(kernel, layout):
        return _product(_tiles(x, kernel), weight)
    if are_columns_less(x.shape, weight.shape, layout):
        if is_turned and math.prod(kernel) > 1:
            return _product_of_turned(x, weight, layout)
        return _product(_columns(x, kernel, layout), weight)
    return _in_planes(x, weight, layout) if layout.rank > 2 else _in_plane(x, weight, layout)


def _product(columns: Any, weight: Any) -> Any:
    """Multiply the columns by the weights in their own order."""
    *sizes, length = columns.shape
    rows = columns.reshape(math.prod(sizes), length)
    y = product_of_rows(rows, weight.reshape(weight.shape[0], length))
    return y.reshape(*sizes, weight.shape[0])


def product_of_rows(a: Any, b: Any) -> Any:
    """Each row of a matrix times each row of another."""
    along = (((1,), (1,)), ((), ()))
    return lax.dot_general(a, b, along, precision=HIGHEST)


def _tiles(x: Any, kernel: Sequence[int]) -> Any:
    """The columns of windows that lie side by side."""
    batch, *spatial, channels = x.shape
    sizes = [n // side for n, side in zip(spatial, kernel, strict=True)]
    whole = (slice(0, size * side) for size, side in zip(sizes, kernel, strict=True))
    sides = (n for pair in zip(sizes, kernel, strict=True) for n in pair)
    tiles = x[(slice(None), *whole)].reshape(batch, *sides, channels)
    inner = (tiles.ndim - 1, *range(2, tiles.ndim - 1, 2))
    tiles = jnp.moveaxis(tiles, inner, range(-len(inner), 0))
    return tiles.reshape(batch, *sizes, channels * math.prod(kernel))


def _columns(x: Any, kernel: Sequence[int], layout: ConvolutionLayout) -> Any:
    views = _windows(_padded(x, layout), kernel, layout)
    *sizes, channels = views[0].shape
    return jnp.stack(views, -1).reshape(*sizes, channels * len(views))


def _product_of_turned(x: Any, weight: Any, layout: ConvolutionLayout) -> Any:
    """Multiply columns in which the channels are last by weights that are stored in that order."""
    count, channels, *kernel = weight.shape
    views = _windows(_padded(x, layout), kernel, layout)
    *sizes, _ = views[0].shape
    length = channels * len(views)
    rows = jnp.concat(views, axis=-1).reshape(math.prod(sizes), length)
    matrix = jnp.moveaxis(weight, (1, 0), (-2, -1)).reshape(length, count)
    return jnp.matmul(rows, matrix, precision=HIGHEST).reshape(*sizes, count)


def _in_planes(x: Any, weight: Any, layout: ConvolutionLayout) -> Any:
    """Turn the taps on the first axis into channels, and convolve along one axis less."""
    first, rest = layout.divided()
    count, channels, taps, *kernel = weight.shape
    deep = _windows(_padded(x, first), (taps,), first)
    batch, depth, *plane, _ = deep[0].shape
    planes = jnp.concat(deep, axis=-1).reshape(batch * depth, *plane, taps * channels)
    weight = jnp.moveaxis(weight, 2, 1).reshape(count, taps * channels, *kernel)
    y = _dense(planes, weight, rest)
    return y.reshape(batch, depth, *y.shape[1:])


def _in_plane(x: Any, weight: Any, layout: ConvolutionLayout) -> Any:
    """Add zeros as channels or filters if there are too few of them for XLA's fast kernel."""
    count, channels, *kernel = weight.shape
    more_channels = -channels % 4 if channels > 2 and count <= 32 else 0
    more_filters = max(32 - count, 0) if channels <= 8 <= count else 0
    around = [(0, 0)] * len(kernel)
    if more_channels or more_filters:
        x = jnp.pad(x, [(0, 0), *around, (0, more_channels)])
        weight = jnp.pad(weight, [(0, more_filters), (0, more_channels), *around])
    return general_convolution(x, weight, layout, axes="N*C")[..., :count]


# -- windows of arrays whose channels come last ---------------------------------------------------


def _padded(x: Any, layout: ConvolutionLayout) -> Any:
    rest = [(0, 0)] * (x.ndim - 1 - layout.rank)
    return x if layout.is_unpadded else jnp.pad(x, [(0, 0), *layout.pads, *rest])


def _windows(x: Any, kernel: Sequence[int], layout: ConvolutionLayout) -> list[Any]:
    """One strided view of `x` per element of the kernel, whose axes begin at 1."""
    ones = (1,) * (x.ndim - 1 - layout.rank)
    return windows.views(x, (*kernel, *ones), (*layout.strides, *ones), (*layout.dilations, *ones))
