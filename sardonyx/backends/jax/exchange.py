"""Arrays of other libraries on a CUDA device, as JAX's."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from sardonyx.backends.jax.first_tier import own_copy

# XLA's programs for GPUs refuse arguments at other addresses: kEntryParameterAlignBytes.
_UNIT = 16


def placed(array: jax.Array) -> jax.Array:
    """Return an array of a GPU, or a copy if programs could not read it where it lies."""
    return own_copy(array) if array.unsafe_buffer_pointer() % _UNIT else array


def described(value: Any, device: jax.Device | None) -> jax.Array:
    """Return a copy of an array that has `__cuda_array_interface__` and no DLPack."""
    # JAX does not keep the memory, and so it is read before this returns.
    copy: jax.Array = jax.device_put(jnp.array(value), device)
    return copy.block_until_ready()
