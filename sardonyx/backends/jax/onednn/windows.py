"""The largest numbers of windows over arrays of the host, or their sums.

NumPy copies an array to pad it, and then takes a pass for each element of a window. Arrays whose
channels are not last in memory are left to it, windows over more than three axes or of so many
elements that it takes fewer operations, and what `rows.py` leaves to it because of the processor or
the process.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from sardonyx.backends.jax.onednn import loaded
from sardonyx.backends.jax.onednn.copies import dense
from sardonyx.backends.jax.onednn.threads import threads_of_calls
from sardonyx.backends.numpy import HOST
from sardonyx.backends.windows import WindowLayout

MOST_TAPS = 2**7
# The axes of the kernel's windows; of fewer, the first ones have one element.
AXES = 3


def reduced(
    x: Any, layout: WindowLayout, *, by: Literal["max", "sum"], threads: int | None = None
) -> Any:
    """What each window of an array (N, C, *spatial) in float32 comes to.

    >>> x = np.arange(6, dtype=np.float32).reshape(1, 1, 6)
    >>> reduced(x, WindowLayout((3,), (2,), (1,), ((1, 0),)), by="max").tolist()
    [[[1.0, 3.0, 5.0]]]
    """
    last = x.transpose(0, *range(2, x.ndim), 1)
    is_small = x.ndim <= AXES + 2 and math.prod(layout.kernel) <= MOST_TAPS
    is_readable = last.flags.c_contiguous or loaded.will_be_joined()
    if not is_small or not is_readable or not loaded.has_lanes():
        return _by_numpy(x, layout, by)
    batch, channels, *spatial = x.shape
    y = np.empty((batch, *layout.sizes(spatial), channels), np.float32)
    head = (threads or threads_of_calls(), by == "sum", batch, channels)
    last = dense(last, head[0])
    loaded.compute(loaded.Kind.WINDOWS, (*head, *_axes(spatial, layout)), last, y)
    return y.transpose(0, x.ndim - 1, *range(1, x.ndim - 1))


def _axes(spatial: Sequence[int], layout: WindowLayout) -> list[int]:
    numbers = [1, 1, 1, 0, 0, 1] * (AXES - len(spatial))
    for size, side, stride, dilation, ends in zip(spatial, *layout, strict=True):
        numbers += size, side, stride, *ends, dilation
    return numbers


def _by_numpy(x: Any, layout: WindowLayout, by: Literal["max", "sum"]) -> Any:
    if any(map(any, layout.pads)):
        x = HOST.pad(x, [(0, 0), (0, 0), *layout.pads], -math.inf if by == "max" else 0)
    function = HOST.window_max if by == "max" else HOST.window_sum
    return function(x, layout.kernel, layout.strides, layout.dilations)
