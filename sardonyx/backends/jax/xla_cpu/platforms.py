"""Operations that XLA computes fast in one form on CPUs and in another elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from sardonyx.backends.jax.convolution_layout import ConvolutionLayout
from sardonyx.backends.jax.xla_cpu import windows
from sardonyx.backends.jax.xla_cpu.convolution import correlate, general_convolution
from sardonyx.backends.windows import Combine, reduced


def convolution(
    x: Any,
    weight: Any,
    layout: ConvolutionLayout,
    precision: Any = lax.Precision.HIGHEST,
    is_turned: bool = False,
) -> Any:
    """Correlate (N, C, *spatial) with (M, C / groups, *kernel); see `correlate` for `is_turned`."""
    is_traced = isinstance(x, jax.core.Tracer) or isinstance(weight, jax.core.Tracer)
    return (_convolution if is_traced else _compiled)(x, weight, layout, precision, is_turned)


def _convolution(
    x: Any, weight: Any, layout: ConvolutionLayout, precision: Any, is_turned: bool
) -> Any:
    on_cpu = partial(correlate, layout=layout, is_turned=is_turned)
    general = partial(general_convolution, layout=layout, precision=precision)
    return lax.platform_dependent(x, weight, cpu=on_cpu, default=general)


# Without jit JAX compiles each primitive by itself, and a depthwise convolution has dozens.
_compiled = jax.jit(
    _convolution,
    static_argnums=(2, 3, 4),
    compiler_options={"xla_allow_excess_precision": False},
)


def window_reduce(combine: Combine, x: Any, initial: float, *window: Sequence[int]) -> Any:
    """Reduce each window of the last axes."""
    neutral = x.dtype.type(initial)
    if any(dilation > 1 for dilation in window[2]):
        # JAX has no derivatives of a window with gaps.
        return reduced(combine, x, *window)
    return lax.platform_dependent(
        x,
        cpu=lambda x: windows.window_reduce(combine, x, neutral, *window),
        default=lambda x: windows.general_window_reduce(combine, x, neutral, *window),
    )


def pad(x: Any, widths: Sequence[tuple[int, int]], value: Any) -> Any:
    """`x` with `widths[i]` elements of `value` before and after it on axis i."""
    general = partial(jnp.pad, pad_width=widths, constant_values=value)
    if any(map(any, widths[:2])) or sum(map(any, widths[2:])) < 2:
        return general(x)
    on_cpu = partial(windows.pad_planes, widths=widths, value=value)
    return lax.platform_dependent(x, cpu=on_cpu, default=general)
