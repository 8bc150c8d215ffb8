"""Products of two arrays of 16 bits, summed in float32, whose derivatives are of 16 bits too.

By itself JAX would multiply the float32 of a gradient by factors of 16 bits, in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero


def multiplied_narrowly(multiply: Callable[..., Any], a: Any, b: Any, dtype: Any) -> Any:
    """Multiply in a type of 16 bits, by a function of JAX that takes a `preferred_element_type`.

    The result has the type of the operands; the factors of wider operands are rounded.
    """
    result = jnp.promote_types(a.dtype, b.dtype)

    @jax.custom_jvp
    def product(a: Any, b: Any) -> Any:
        return multiply(a, b, preferred_element_type=jnp.float32).astype(result)

    def derivative(primals: Any, tangents: Any) -> Any:
        (a, b), (da, db) = primals, tangents
        y = product(a, b)
        parts = [
            *([] if isinstance(da, SymbolicZero) else [multiply(da, b)]),
            *([] if isinstance(db, SymbolicZero) else [multiply(a, db)]),
        ]
        return y, sum(parts[1:], parts[0]).astype(result) if parts else jnp.zeros_like(y)

    product.defjvp(derivative, symbolic_zeros=True)
    return product(a.astype(dtype), b.astype(dtype))
