"""Padding, convolutions and pooling: operations on each window of the last axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

from sardonyx.backends import windows
from sardonyx.backends.executable import Spec
from sardonyx.backends.fused_epilogue import Epilogue
from sardonyx.backends.operations.array_library import Library
from sardonyx.backends.operations.products import PackedProduct
from sardonyx.backends.standard import Array, Operand
from sardonyx.backends.windows import WindowLayout


class Convolution(Library):
    """Arrays (N, C, *spatial) in windows over the spatial axes."""

    skips_padding: ClassVar[bool] = False  # By `convolution(..., is_finite=True)`.
    # Whether results of convolutions have their channels last in memory. The compiler would compute
    # what follows in the order of the axes, which is not that of the memory.
    leaves_channels_last: bool = False

    def pad(self, x: Array, widths: Sequence[tuple[int, int]], value: Operand | str) -> Array:
        """`x` with `widths[i]` elements of `value` before and after it on axis i."""
        self.allow_padded(x, widths)
        filling = self.asarray(value, dtype=x.dtype)
        for axis, (before, after) in enumerate(widths):
            if before or after:
                sides = [
                    (*x.shape[:axis], width, *x.shape[axis + 1 :]) for width in (before, after)
                ]
                left, right = (self.broadcast_to(filling, side) for side in sides)
                x = self.concat([left, x, right], axis=axis)
        return x

    def windows(
        self, x: Array, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
    ) -> list[Array]:
        """One strided view of `x` per element of the kernel, all of the output's size."""
        return windows.views(x, kernel, strides, dilations)

    def convolution(
        self,
        x: Array,
        weight: Array,
        *,
        strides: Sequence[int],
        pads: Sequence[tuple[int, int]],
        dilations: Sequence[int],
        groups: int,
    ) -> Array:
        """Correlate (N, C, *spatial) with (M, C / groups, *kernel).

        Here the windows are gathered as columns, and multiplied.
        """
        x = self.pad(x, [(0, 0), (0, 0), *pads], 0)
        columns = self.stack(windows.views(x, weight.shape[2:], strides, dilations), axis=2)
        return self.product_of_columns(columns, weight, groups)

    def integer_convolution(
        self,
        x: Array,
        weight: Array,
        by_columns: Callable[[Array, Array], Array],
        *,
        strides: Sequence[int],
        dilations: Sequence[int],
        groups: int,
    ) -> Array:
        """Correlate padded 8-bit integers in int32, as (N, groups, M / groups, places).

        `by_columns` returns the same by a product of matrices, for which most libraries have
        kernels.
        """
        return by_columns(x, weight)

    def product_of_columns(self, columns: Array, weight: Array, groups: int) -> Array:
        """One matrix product per group; `columns` are (N, C, *kernel, *sizes)."""
        batch, channels = columns.shape[:2]
        sizes = columns.shape[columns.ndim - (weight.ndim - 2) :]
        rows = channels // groups * math.prod(weight.shape[2:])
        columns = self.reshape(columns, (batch, groups, rows, math.prod(sizes)))
        filters = self.reshape(weight, (groups, weight.shape[0] // groups, rows))
        return self.reshape(self.matmul(filters, columns), (batch, weight.shape[0], *sizes))

    def packed_convolution(
        self, x: Spec, weight: Spec, *, epilogue: Epilogue, **options: Any
    ) -> PackedProduct | None:
        """A kernel for `convolution` of arrays like these and the epilogue, if there is one."""
        return None

    def convolves_with(
        self, x: Array, weight: Array, others: Sequence[Array], epilogue: Epilogue, **layout: Any
    ) -> bool:
        """Whether `convolution_and_more` has a kernel for these and this epilogue."""
        return False

    def convolves_channels_last(
        self, x: Spec, weight: Spec, others: Sequence[Spec], epilogue: Epilogue, **layout: Any
    ) -> bool:
        """Whether it has a good one for arrays (N, *spatial, C) and (M, *kernel, C / groups)."""
        return False

    def reads_filters_with_channels_last(self, x: Spec, weight: Spec) -> bool:
        """Whether `convolution` rearranges such filters as (M, *kernel, C / groups) at each call.

        Then they are passed in that order, and seen through a view that has the channels second.
        """
        return False

    def convolution_and_more(
        self, x: Array, weight: Array, *others: Array, epilogue: Epilogue, **layout: Any
    ) -> Array:
        """`convolution` with a finite weight, and its epilogue with `others`: bias and addend.

        With `is_channels_last` in the layout, the channels are the last axis of all arrays.
        """
        raise NotImplementedError

    def window_max(
        self, x: Array, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
    ) -> Array:
        """Maximum over each window of the last `len(kernel)` axes; the caller has padded."""
        return windows.reduced(self.maximum, x, kernel, strides, dilations)

    def window_sum(
        self, x: Array, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
    ) -> Array:
        """Sum over each window of the last `len(kernel)` axes; the caller has padded."""
        return windows.reduced(self.add, x, kernel, strides, dilations)

    def has_kernels_of_windows(self, x: Array) -> bool:
        """Whether there is a kernel for `reduced_windows` of arrays like this one."""
        return False

    def reduced_windows(
        self, x: Array, layout: WindowLayout, *, by: Literal["max", "sum"]
    ) -> Array:
        """Maximum or sum over each window of the axes behind the first two, without the padding."""
        raise NotImplementedError
