"""Convolutions whose padding meets weights that are not finite: zero times infinity is NaN.

XLA and oneDNN skip the padding. The weight and the shapes show where the two meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from sardonyx.backends.jax.convolution_layout import ConvolutionLayout


def with_padding(y: Any, shape: Sequence[Any], weight: Any, layout: ConvolutionLayout) -> Any:
    """A convolution of an array of this shape, with NaN where its padding met such a weight."""
    if layout.is_unpadded or _is_known_finite(weight):
        return y
    bad = jnp.any(~jnp.isfinite(weight), axis=1).astype(jnp.float32)
    total = jnp.sum(bad, axis=tuple(range(1, bad.ndim)), keepdims=True)
    within = bad
    strides, pads, dilations, _ = layout
    axes = zip(shape[2:], y.shape[2:], strides, pads, dilations, strict=True)
    for size, count, stride, (head, _), dilation in axes:
        taps = within.shape[1]
        inside = _inside(size, count, taps, stride=stride, head=head, dilation=dilation)
        # Each axis of taps, in turn the first one, becomes one of windows, the last one.
        within = jnp.tensordot(within, inside, axes=((1,), (1,)), precision=lax.Precision.HIGHEST)
    met = total - within > 0
    return jnp.where(met, jnp.nan, y)


def _is_known_finite(weight: Any) -> bool:
    if isinstance(weight, jax.core.Tracer):
        return False
    # A weight that is there may be met while something else is traced.
    with jax.ensure_compile_time_eval():
        return bool(jnp.isfinite(weight).all())


def _inside(size: Any, count: Any, taps: int, *, stride: int, head: int, dilation: int) -> Any:
    """For each window and tap 1 where that lies on the input, and 0 where it is in the padding."""
    starts = jnp.arange(count, dtype=jnp.int32) * stride - head
    places = starts[:, None] + dilation * jnp.arange(taps, dtype=jnp.int32)
    return ((places >= 0) & (places < size)).astype(jnp.float32)
