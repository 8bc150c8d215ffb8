"""Powers of integers: JAX's own read no more than six bits of the exponent."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

# What `jax.numpy.power` reads of an exponent.
BITS = 6


def integer_power(x: Any, y: Any) -> Any:
    """Return `x ** y`, modulo the range of their common type, for exponents of 0 or more."""
    x, y = jnp.broadcast_arrays(x, y)
    power = jnp.power(x, y)
    # Few exponents are so large, and XLA drops the branch where it knows them.
    return lax.cond(jnp.any(y >> BITS != 0), _completed, lambda power, x, y: power, power, x, y)


def _completed(power: Any, x: Any, y: Any) -> Any:
    """Multiply by the powers of the bits that are left."""
    for _ in range(BITS):
        x = x * x

    def step(carry: tuple[Any, Any, Any], _: None) -> tuple[tuple[Any, Any, Any], None]:
        power, x, y = carry
        power = jnp.where(y & 1 != 0, power * x, power)
        return (power, x * x, y >> 1), None

    width = 8 * np.dtype(y.dtype).itemsize
    (power, _, _), _ = lax.scan(step, (power, x, y >> BITS), None, width - BITS)
    return power
