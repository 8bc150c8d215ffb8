"""Determinants of float64 by elimination, with arithmetic that TPUs have for pairs of float32."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


@jax.jit
def det(x: Any) -> Any:
    """The determinants of square matrices, each step by the largest element of a column."""
    one = jnp.ones(x.shape[:-2], x.dtype)
    if not x.size:
        return one
    result, _ = lax.fori_loop(0, x.shape[-1], _eliminate, (one, x))
    return result


def _eliminate(step: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
    """Multiply by the pivot of a column, and clear the column in all rows not used so far.

    A row that is used is swapped with the one of the column's number, which changes the sign.
    """
    result, x = state
    places = jnp.arange(x.shape[-1], dtype=jnp.int32)
    column = lax.dynamic_index_in_dim(x, step, axis=-1, keepdims=False)
    size = jnp.where(places >= step, jnp.abs(column), -1)
    at = jnp.argmax(size, axis=-1).astype(jnp.int32)
    is_pivot = places == at[..., None]
    pivot_row = jnp.sum(jnp.where(is_pivot[..., None], x, 0), axis=-2)
    first_row = lax.dynamic_index_in_dim(x, step, axis=-2, keepdims=False)
    # The row of the step moves to the place of the pivot's row.
    x = jnp.where(is_pivot[..., None], first_row[..., None, :], x)
    pivot = lax.dynamic_index_in_dim(pivot_row, step, axis=-1, keepdims=False)
    column = lax.dynamic_index_in_dim(x, step, axis=-1, keepdims=False)
    factors = jnp.where(places > step, column / jnp.where(pivot == 0, 1, pivot)[..., None], 0)
    x = x - factors[..., :, None] * pivot_row[..., None, :]
    sign = jnp.where(at == step, 1, -1).astype(x.dtype)
    return result * pivot * sign, x
