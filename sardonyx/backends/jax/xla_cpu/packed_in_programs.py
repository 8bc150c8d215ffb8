"""Products with weights in the order of `packed.py`, in programs of XLA."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from sardonyx.backends.jax.convolution_layout import ConvolutionLayout
from sardonyx.backends.jax.xla_cpu import platforms
from sardonyx.backends.jax.xla_cpu.convolution import product_of_rows


def convolution(x: Any, packed: Any, layout: ConvolutionLayout) -> Any:
    """The convolution; XLA cancels the two transposes of the filters."""
    weight = jnp.moveaxis(packed, (-2, -1), (1, 0))
    return platforms.convolution(x, weight, layout, is_turned=True)


def product(rows: Any, packed: Any, *, is_blocked: bool) -> Any:
    """Rows times a matrix whose columns are contiguous, or in blocks."""
    return _by_blocks(rows, packed) if is_blocked else product_of_rows(rows, packed)


def _by_blocks(rows: Any, blocks: Any) -> Any:
    repeated = jnp.broadcast_to(rows, (len(blocks), *rows.shape))
    y = jnp.matmul(repeated, blocks, precision=lax.Precision.HIGHEST)
    return jnp.moveaxis(y, 0, 1).reshape(len(rows), -1)
