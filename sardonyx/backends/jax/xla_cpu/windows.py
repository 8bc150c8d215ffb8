"""Reductions over windows, one axis after the other; XLA's own kernel visits every tap."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import jax.numpy as jnp
from jax import lax

from sardonyx.backends import windows
from sardonyx.backends.windows import Combine

# Longer sides of windows are not reduced by slices.
LONGEST_OF_SLICES = 4


def window_reduce(combine: Combine, x: Any, initial: Any, *window: Sequence[int]) -> Any:
    """Reduce the last axes, with the channels moved behind them, where convolutions leave them."""
    channels = tuple(range(1, x.ndim - len(window[0])))
    last = tuple(range(-len(channels), 0))
    x = _along_each_axis(combine, jnp.moveaxis(x, channels, last), initial, window)
    return jnp.moveaxis(x, last, channels)


def _along_each_axis(
    combine: Combine, x: Any, initial: Any, window: Sequence[Sequence[int]]
) -> Any:
    """Reduce short sides by slices, which XLA fuses with the operations around them."""
    for i, along in enumerate(zip(*window, strict=True)):
        one_axis = [((1,) * i + (size,) + (1,) * (x.ndim - 2 - i)) for size in along]
        if along[0] <= LONGEST_OF_SLICES:
            x = reduce(combine, windows.views(x, *one_axis))
            continue
        # XLA would fuse padding before it into the reduction, and compile that wrongly: tiles
        # repeat an axis of one element, and windows over few elements lose one of them.
        x = lax.optimization_barrier(x)
        x = general_window_reduce(combine, x, initial, *one_axis)
    return x


def general_window_reduce(combine: Combine, x: Any, initial: Any, *window: Sequence[int]) -> Any:
    """Reduce all axes at once."""
    lead = (1,) * (x.ndim - len(window[0]))
    kernel, strides, dilations = ((*lead, *sides) for sides in window)
    return lax.reduce_window(
        x, initial, combine, kernel, strides, "VALID", window_dilation=dilations
    )


def pad_planes(x: Any, widths: Sequence[tuple[int, int]], value: Any) -> Any:
    """Pad the axes of `x` behind the first two, with the channels moved to the end meanwhile."""
    before, behind = jnp.moveaxis(x, 1, -1), [widths[0], *widths[2:], widths[1]]
    return jnp.moveaxis(jnp.pad(before, behind, constant_values=value), -1, 1)


def are_planes(x: Any, axis: Any) -> bool:
    """Whether these are all axes of `x` behind the first two, of which there are several."""
    return x.ndim > 3 and isinstance(axis, tuple) and set(axis) == set(range(2, x.ndim))


def reduced_planes(function: Any, x: Any, *, keepdims: bool = False, **options: Any) -> Any:
    """Reduce the axes behind the first two, with the channels moved to the end meanwhile."""
    axes = tuple(range(1, x.ndim - 1))
    y = function(jnp.moveaxis(x, 1, -1), axis=axes, keepdims=keepdims, **options)
    return jnp.moveaxis(y, -1, 1)
