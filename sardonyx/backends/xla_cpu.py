"""Windowed work in the forms that XLA compiles well for CPUs.

XLA hands ordinary convolutions to Eigen and products to a fast kernel; grouped convolutions and
windows of several axes it compiles to plain loops, up to fifty times slower than what stands here.
On other platforms the general forms are the fast ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, TypeAlias

import jax.numpy as jnp
from jax import lax

from sardonyx.backends import fallback
from sardonyx.backends.base import Backend

Form: TypeAlias = Callable[[Any, Any], Any]

# Each tap is code of its own in the two forms that unroll the kernel.
TAPS_TO_SHIFT = 64
TAPS_TO_GATHER = 27


def convolution_form(
    xp: Backend,
    x: Any,
    weight: Any,
    *,
    strides: Sequence[int],
    pads: Sequence[tuple[int, int]],
    dilations: Sequence[int],
    groups: int,
) -> Form | None:
    """How to convolve arrays of these shapes, or None where the general form is best."""
    kernel, taps = weight.shape[2:], math.prod(weight.shape[2:])
    is_unpadded = not any(map(any, pads))
    if weight.shape[1] == 1 and taps <= TAPS_TO_SHIFT:
        return partial(_sum_of_shifted, strides=strides, pads=pads, dilations=dilations)
    if groups == 1 and is_unpadded and taps == 1:
        steps = (slice(None), slice(None), *(slice(None, None, stride) for stride in strides))
        return lambda x, weight: _product_of_tiles(x[steps], weight)
    if groups == 1 and is_unpadded and kernel == tuple(strides) and set(dilations) == {1}:
        return _product_of_tiles
    padded = [n + sum(ends) for n, ends in zip(x.shape[2:], pads, strict=True)]
    sizes = fallback.output_sizes(padded, kernel, strides, dilations)
    # The general form rearranges the weights at each call. Where they outweigh the windows,
    # rearranging the windows is less work.
    is_weight_bound = x.shape[0] * math.prod(sizes) < weight.shape[0]
    if taps <= TAPS_TO_GATHER and (groups > 1 or is_weight_bound):
        return lambda x, weight: fallback.convolution(
            xp, x, weight, strides=strides, pads=pads, dilations=dilations, groups=groups
        )
    return None


def _sum_of_shifted(
    x: Any,
    weight: Any,
    *,
    strides: Sequence[int],
    pads: Sequence[tuple[int, int]],
    dilations: Sequence[int],
) -> Any:
    """Each group has one channel: the kernel's taps, each times the input shifted by it."""
    wide = jnp.promote_types(x.dtype, jnp.float32)
    batch, channels = x.shape[:2]
    multiplier, taps = weight.shape[0] // channels, math.prod(weight.shape[2:])
    filters = weight.reshape(channels, multiplier, taps, *(1,) * len(pads)).astype(wide)
    x = jnp.pad(x, [(0, 0), (0, 0), *pads])
    shifted: list[Any] = fallback.windows(x, weight.shape[2:], strides, dilations)
    products = (
        view[:, :, None].astype(wide) * filters[:, :, tap] for tap, view in enumerate(shifted)
    )
    total: Any = reduce(jnp.add, products)
    return total.reshape(batch, weight.shape[0], *total.shape[3:]).astype(x.dtype)


def _product_of_tiles(x: Any, weight: Any) -> Any:
    """The windows tile the input: one product, and nothing to gather."""
    kernel = weight.shape[2:]
    sizes = [n // side for n, side in zip(x.shape[2:], kernel, strict=True)]
    whole = (slice(0, size * side) for size, side in zip(sizes, kernel, strict=True))
    sides = (n for pair in zip(sizes, kernel, strict=True) for n in pair)
    tiles = x[(slice(None), slice(None), *whole)].reshape(*x.shape[:2], *sides)
    inner = range(1, weight.ndim)
    axes = (tuple(inner), (1, *range(3, tiles.ndim, 2)))
    product = jnp.tensordot(weight, tiles, axes, precision=lax.Precision.HIGHEST)
    return jnp.moveaxis(product, 0, 1)


def window_reduce(combine: Form, x: Any, initial: Any, *window: Sequence[int]) -> Any:
    """One axis after the other; windows of two elements as slices."""
    for i, (side, stride, dilation) in enumerate(zip(*window, strict=True)):
        beyond = (1,) * (len(window[0]) - i - 1)
        one_axis = ((side, *beyond), (stride, *beyond), (dilation, *beyond))
        if side <= 2:
            x = reduce(combine, fallback.windows(x, *one_axis))
            continue
        # Padding before it XLA would draw into the reduction, which it then compiles wrongly: tiles
        # repeat an axis of one element, and windows over few elements lose one of theirs.
        x = lax.optimization_barrier(x)
        x = general_window_reduce(combine, x, initial, *one_axis)
    return x


def general_window_reduce(combine: Form, x: Any, initial: Any, *window: Sequence[int]) -> Any:
    lead = (1,) * (x.ndim - len(window[0]))
    kernel, strides, dilations = ((*lead, *sides) for sides in window)
    return lax.reduce_window(
        x, initial, combine, kernel, strides, "VALID", window_dilation=dilations
    )
