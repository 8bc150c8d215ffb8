"""Convolutions as products with columns, of which a limited number exists at the same time."""

from __future__ import annotations

import math
from typing import Any

import cupy

from sardonyx.backends.column_bands import bands, column_bytes
from sardonyx.backends.numpy import NumpyLike


class Convolutions(NumpyLike):
    """Without bands the columns need the memory of the input, times the size of the kernel."""

    def convolution(
        self, x: Any, weight: Any, *, strides: Any, pads: Any, dilations: Any, groups: int
    ) -> Any:
        batch, channels = x.shape[:2]
        kernel = weight.shape[2:]
        windows = self.windows_of(x, kernel, strides=strides, pads=pads, dilations=dilations)
        sizes = windows.shape[-len(kernel) :]
        each = column_bytes(channels, kernel, x.dtype)
        is_copied = math.prod(kernel) > 1 or max(strides) > 1
        parts = bands(batch, sizes, each) if is_copied else ()
        if len(parts) < 2:
            return self.product_of_columns(windows, weight, groups)
        result = cupy.empty((batch, weight.shape[0], *sizes), x.dtype)
        # The rows are the first axis after those of the kernel.
        before = (slice(None),) * (1 + len(kernel))
        for images, rows in parts:
            part = windows[(images, *before, rows)]
            result[images, :, rows] = self.product_of_columns(part, weight, groups)
        return result
