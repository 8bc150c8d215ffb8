"""Which form of a convolution XLA's kernels for CPUs compute fastest, by shapes alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sardonyx.backends.jax.convolution_layout import ConvolutionLayout

# The forms that visit taps or groups one by one generate code for each of them.
MOST_TAPS = 64
MOST_GROUPS = 64
# With more channels in a group, a product per group is faster.
FEWEST_FOR_PRODUCTS = 5
# Rearranging an element of a weight costs as much as rearranging two elements of the windows.
COST_OF_WEIGHTS = 2


def turns_weights(x: Sequence[int], weight: Sequence[int], layout: ConvolutionLayout) -> bool:
    """Whether the convolution of (N, *spatial, C) reads weights in another order than theirs."""
    groups = layout.groups
    if groups > 1 and (is_shifted(weight) or groups > MOST_GROUPS):
        return False
    part = (weight[0] // groups, *weight[1:])
    if are_tiles(part[2:], layout):
        return False
    return not are_columns_less(x, part, layout) or (groups == 1 and math.prod(part[2:]) > 1)


def is_shifted(weight: Sequence[int]) -> bool:
    return weight[1] < FEWEST_FOR_PRODUCTS and math.prod(weight[1:]) <= MOST_TAPS


def are_tiles(kernel: Sequence[int], layout: ConvolutionLayout) -> bool:
    """Whether the windows lie side by side."""
    is_dense = layout.is_unpadded and set(layout.dilations) == {1}
    return is_dense and tuple(kernel) == layout.strides


def are_columns_less(x: Sequence[int], weight: Sequence[int], layout: ConvolutionLayout) -> bool:
    """Whether rearranging the windows is less work than rearranging the weights."""
    kernel = weight[2:]
    taps = math.prod(kernel)
    if taps == 1 and layout.is_unpadded:
        return True
    windows = x[0] * math.prod(layout.sizes(x[1:-1], kernel))
    return taps <= MOST_TAPS and windows * COST_OF_WEIGHTS <= weight[0]
