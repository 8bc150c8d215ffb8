"""Convolution of 8-bit integers, for which XLA for TPUs has instructions, and no other XLA."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from sardonyx.backends.jax.convolution_layout import ConvolutionLayout


def by_instructions(x: Any, weight: Any, layout: ConvolutionLayout) -> Any:
    """Correlate (N, C, *spatial) with (M, C / groups, *kernel), as (N, groups, M / groups, places).

    Both must have one type: where only one has a sign, 128 is added to `x` or taken from it.
    """
    moved = x if x.dtype == weight.dtype else lax.bitcast_convert_type(_moved(x), weight.dtype)
    spatial = "".join(map(str, range(layout.rank)))
    y = lax.conv_general_dilated(
        moved,
        weight,
        window_strides=layout.strides,
        padding=layout.pads,
        rhs_dilation=layout.dilations,
        dimension_numbers=(f"NC{spatial}", f"OI{spatial}", f"NC{spatial}"),
        feature_group_count=layout.groups,
        preferred_element_type=np.int32,
    )
    filters = weight.shape[0]
    sizes = y.shape[2:]
    y = y.reshape(x.shape[0], layout.groups, filters // layout.groups, math.prod(sizes))
    if x.dtype == weight.dtype:
        return y
    sums = jnp.sum(weight, axis=tuple(range(1, weight.ndim)), dtype=np.int32)
    sign = 1 if weight.dtype == np.int8 else -1
    return y + sign * 128 * sums.reshape(1, layout.groups, -1, 1)


def _moved(x: Any) -> Any:
    """The bits of `x` less 128, or more by 128, in the other type of 8 bits."""
    return x ^ x.dtype.type(-128 if x.dtype == np.int8 else 128)
