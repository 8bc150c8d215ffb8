"""Reductions over windows, one axis after the other: XLA's own kernel visits each tap by itself."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import jax.numpy as jnp
from jax import lax

from sardonyx.backends import windows
from sardonyx.backends.windows import Combine

# Windows with a longer side are not put together of slices.
LONGEST_OF_SLICES = 4


def window_reduce(combine: Combine, x: Any, initial: Any, *window: Sequence[int]) -> Any:
    """Over the last axes, with those before them last, in which order convolutions leave them."""
    channels = tuple(range(1, x.ndim - len(window[0])))
    last = tuple(range(-len(channels), 0))
    x = _along_each_axis(combine, jnp.moveaxis(x, channels, last), initial, window)
    return jnp.moveaxis(x, last, channels)


def _along_each_axis(
    combine: Combine, x: Any, initial: Any, window: Sequence[Sequence[int]]
) -> Any:
    """Short sides as slices, which XLA joins with what stands before and after them."""
    for i, along in enumerate(zip(*window, strict=True)):
        one_axis = [((1,) * i + (size,) + (1,) * (x.ndim - 2 - i)) for size in along]
        if along[0] <= LONGEST_OF_SLICES:
            x = reduce(combine, windows.views(x, *one_axis))
            continue
        # Padding before it XLA would draw into the reduction, which it then compiles wrongly: tiles
        # repeat an axis of one element, and windows over few elements lose one of theirs.
        x = lax.optimization_barrier(x)
        x = general_window_reduce(combine, x, initial, *one_axis)
    return x


def general_window_reduce(combine: Combine, x: Any, initial: Any, *window: Sequence[int]) -> Any:
    """All axes at once."""
    lead = (1,) * (x.ndim - len(window[0]))
    kernel, strides, dilations = ((*lead, *sides) for sides in window)
    return lax.reduce_window(
        x, initial, combine, kernel, strides, "VALID", window_dilation=dilations
    )


def pad_planes(x: Any, widths: Sequence[tuple[int, int]], value: Any) -> Any:
    """`x` padded behind its first two axes; in any other order XLA would move them to and fro."""
    before, behind = jnp.moveaxis(x, 1, -1), [widths[0], *widths[2:], widths[1]]
    return jnp.moveaxis(jnp.pad(before, behind, constant_values=value), -1, 1)
