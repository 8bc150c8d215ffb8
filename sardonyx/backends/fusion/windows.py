"""Pooling and convolutions over windows that kernels read in place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.backends import column_bands
from sardonyx.backends.executable import Spec
from sardonyx.backends.fused_epilogue import Epilogue
from sardonyx.backends.fusion.index_rules import Windows
from sardonyx.backends.fusion.native import current_calls
from sardonyx.backends.fusion.nodes import DTYPES, Indexed, Reduction
from sardonyx.backends.fusion.products import Products
from sardonyx.backends.shape_arrays import shape_array
from sardonyx.backends.shape_backend import SHAPES
from sardonyx.backends.standard import Shape

FLOAT32 = np.dtype(np.float32)
# One thread goes over a window of up to so many elements, and over more of them with a filter:
# the columns of so large a filter would take as many times the memory of the input.
LARGEST_WINDOW = 64
LARGEST_FILTER = 1024
# A product of matrices is faster for more filters of each channel.
MOST_FILTERS = 4


class WindowFunctions(Products):
    """What reads windows over the last axes."""

    def window_max(self, x: Any, kernel: Any, strides: Any, dilations: Any) -> Any:
        if math.prod(kernel) > LARGEST_WINDOW or x.dtype not in DTYPES:
            return super().window_max(x, kernel, strides, dilations)
        return self._over_windows("max", x, kernel, strides, dilations)

    def window_sum(self, x: Any, kernel: Any, strides: Any, dilations: Any) -> Any:
        if math.prod(kernel) > LARGEST_WINDOW or x.dtype not in DTYPES or x.dtype.kind == "b":
            return super().window_sum(x, kernel, strides, dilations)
        return self._over_windows("sum", x, kernel, strides, dilations)

    def convolution(
        self, x: Any, weight: Any, *, strides: Any, pads: Any, dilations: Any, groups: int
    ) -> Any:
        """One kernel if each channel has filters of its own, else columns and a product.

        The library itself limits the memory of more columns.
        """
        options = {"strides": strides, "pads": pads, "dilations": dilations, "groups": groups}
        result = SHAPES.convolution(x.blank, weight.blank, **options)
        if not {x.dtype, weight.dtype} <= DTYPES or not result.size or not x.size:
            return self.opaque("convolution", x, weight, **options)
        kernel = weight.shape[2:]
        is_by_channel = groups == x.shape[1] and weight.shape[0] <= MOST_FILTERS * groups
        is_by_channel &= math.prod(kernel) <= LARGEST_FILTER and x.dtype.kind in "fV"
        padded = self.pad(x, [(0, 0), (0, 0), *pads], 0) if any(map(any, pads)) else x
        if is_by_channel:
            by_channel = self._by_channel(padded, weight, strides, dilations)
            return self.reshape(by_channel, result.shape)
        if _is_native(padded, weight, strides=strides, dilations=dilations, groups=groups):
            none = ((0, 0),) * len(kernel)
            return self.opaque("convolution", padded, weight, **{**options, "pads": none})
        if _needs_bands(x, kernel, strides, result.shape):
            return self.opaque("convolution", x, weight, **options)
        windows = self._windows(padded, kernel, strides, dilations, is_kernel_first=True)
        return self.product_of_columns(windows, weight, groups)

    def convolves_with(
        self, x: Any, weight: Any, others: Any, epilogue: Epilogue, **layout: Any
    ) -> bool:
        calls = current_calls()
        if calls is None or not x.size:
            return False
        x, weight, *rest = (Spec(array.shape, array.dtype) for array in (x, weight, *others))
        return calls.has_convolution_and_more(x, weight, rest, epilogue, **layout)

    def convolution_and_more(
        self, x: Any, weight: Any, *others: Any, epilogue: Epilogue, **layout: Any
    ) -> Any:
        """Padding of two widths is written by a kernel, which may compute the input too."""
        pads, none = layout["pads"], (0, 0)
        if any(before != after for before, after in pads):
            widths = [none, *pads, none] if layout.get("is_channels_last") else [none, none, *pads]
            x, pads = self.pad(x, widths, 0), (none,) * len(pads)
        options = {**layout, "pads": pads, "epilogue": epilogue}
        return self.opaque("convolution_and_more", x, weight, *others, **options)

    def _by_channel(self, x: Any, weight: Any, strides: Any, dilations: Any) -> Any:
        """Multiply in float32 or wider, and round once.

        The results of one channel's filters are neighbours: (N, C, filters, *sizes).
        """
        filters, _, *kernel = weight.shape
        batch, channels = x.shape[:2]
        ones = (1,) * len(kernel)
        wide = np.result_type(x.dtype, FLOAT32)
        view = self._windows(x, kernel, strides, dilations, is_kernel_first=False)
        view = self.reshape(view, (batch, channels, 1, *view.shape[2:]))
        weight = self.reshape(weight, (channels, filters // channels, *ones, *kernel))
        products = self.astype(view, wide) * self.astype(weight, wide)
        return self.astype(self._along_windows("sum", products, len(kernel)), x.dtype)

    def _over_windows(self, name: str, x: Any, kernel: Any, strides: Any, dilations: Any) -> Any:
        view = self._windows(x, kernel, strides, dilations, is_kernel_first=False)
        return self._along_windows(name, view, len(kernel))

    def _along_windows(self, name: str, view: Any, rank: int) -> Any:
        """Reduce the last axes, by one thread for each window."""
        length = math.prod(view.shape[-rank:])
        shape = view.shape[:-rank]
        if length == 1 or not view.size:
            return self.reshape(view, shape)
        fields = {"function": name, "computed_in": view.dtype, "length": length}
        result = shape_array(shape, view.dtype)
        return self._like(result, Reduction, view.node, is_by_row=False, **fields)

    def _windows(
        self,
        x: Any,
        kernel: Sequence[int],
        strides: Sequence[int],
        dilations: Sequence[int],
        *,
        is_kernel_first: bool,
    ) -> Any:
        lead = x.shape[: x.ndim - len(kernel)]
        sizes = SHAPES.window_max(x.blank, kernel, strides, dilations).shape[len(lead) :]
        axes = (*kernel, *sizes) if is_kernel_first else (*sizes, *kernel)
        if math.prod(kernel) == 1 and set(strides) == {1}:
            return self.reshape(x, (*lead, *axes))
        rule = Windows(tuple(strides), tuple(dilations), is_kernel_first)
        return self._like(shape_array((*lead, *axes), x.dtype), Indexed, x.node, rule=rule)


def _is_native(x: Any, weight: Any, *, strides: Any, dilations: Any, groups: int) -> bool:
    """Whether the library computes this convolution with kernels of its own."""
    calls = current_calls()
    layout: dict[str, Any] = {"strides": tuple(strides), "dilations": tuple(dilations)}
    specs = [Spec(array.shape, array.dtype) for array in (x, weight)]
    return calls is not None and calls.has_convolution(*specs, groups=groups, **layout)


def _needs_bands(x: Any, kernel: Any, strides: Any, result: Shape) -> bool:
    """Whether all columns of a convolution would take too much memory at once."""
    is_view = math.prod(kernel) == 1 and set(strides) == {1}
    columns = math.prod((result[0], *result[2:]))
    each = column_bands.column_bytes(x.shape[1], kernel, x.dtype)
    return not is_view and columns * each > column_bands.LARGEST_COLUMNS
