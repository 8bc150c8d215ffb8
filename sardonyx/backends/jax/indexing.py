"""Indices for which JAX's own rules fail once its 64-bit mode is off.

A caller's jit or grad may see, without that mode, a program that was traced with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def _counting(size: int) -> type[np.integer[Any]]:
    return np.int32 if size < 2**31 else np.int64


def place(function: Callable[..., Any], x: Any, *, axis: int, keepdims: bool = False) -> Any:
    """The index of the largest or the least element along an axis."""
    index = function(x, axis, _counting(x.shape[axis])).astype(np.int64)
    return jnp.expand_dims(index, axis) if keepdims else index


def within(indices: Any, size: int) -> Any:
    """The indices counted from the front, and those out of range moved to the nearest element."""
    indices = jnp.where(indices < 0, indices + size, indices)
    return jnp.clip(indices, 0, max(size - 1, 0)).astype(_counting(size))


def taken(x: Any, indices: Any) -> Any:
    """The elements along axis 0; the indices are in range, so that nothing is computed of them."""
    rest = x.shape[1:]
    return lax.gather(
        x,
        jnp.expand_dims(indices, indices.ndim),
        lax.GatherDimensionNumbers(
            offset_dims=tuple(range(indices.ndim, indices.ndim + len(rest))),
            collapsed_slice_dims=(0,),
            start_index_map=(0,),
        ),
        slice_sizes=(1, *rest),
        mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS,
    )


def or_past_the_end(indices: Any, size: int) -> Any:
    """The indices counted from the front, and those out of range moved behind the last element."""
    indices = jnp.where(indices < 0, indices + size, indices)
    return jnp.where((indices < 0) | (indices > size), size, indices).astype(_counting(size))


def write_whole_rows(x: Any, rows: Any, updates: Any, *, axis: int) -> Any:
    """Write rows of an axis as a whole, so that XLA may divide all other axes over devices."""
    places = or_past_the_end(rows, x.shape[axis])[..., None]
    others = tuple(i for i in range(x.ndim) if i not in (0, axis))
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=others,
        inserted_window_dims=(axis,),
        scatter_dims_to_operand_dims=(axis,),
        operand_batching_dims=(0,),
        scatter_indices_batching_dims=(0,),
    )
    return lax.scatter(x, places, updates, numbers, mode=lax.GatherScatterMode.FILL_OR_DROP)


@jax.custom_jvp
def multiplied(x: Any, updates: Any, *places: Any) -> Any:
    """JAX itself has derivatives of this only where no place is named twice."""
    return x.at[places].multiply(updates, mode="drop")


@multiplied.defjvp
def _multiplied_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    """Of each update's companions at its place the product, where one of them may be zero."""
    x, updates, *places = primals
    dx, du, *_ = tangents
    at = tuple(places)
    is_zero = updates == 0
    others = jnp.where(is_zero, 1, updates)
    product = multiplied(jnp.ones_like(x), others, *at).at[at].get(mode="clip")
    zeros = jnp.zeros_like(x).at[at].add(is_zero.astype(x.dtype), mode="drop")
    beside = zeros.at[at].get(mode="clip") - is_zero
    companions = jnp.where(beside > 0, 0, product / others)
    slopes = x.at[at].get(mode="clip") * companions * du
    moved = dx * multiplied(jnp.ones_like(x), updates, *at)
    return multiplied(x, updates, *at), moved.at[at].add(slopes, mode="drop")
