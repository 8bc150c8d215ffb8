"""How exact products of float32 are: as float32 itself, or as a type that some hardware prefers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import jax.numpy as jnp
from jax import lax

# "high" is TF32 on GPUs and three products of bfloat16 on TPUs.
_PRECISIONS: Mapping[str | None, Any] = {
    None: None,  # JAX's own setting.
    "highest": lax.Precision.HIGHEST,
    "high": lax.Precision.HIGH,
    "bfloat16": lax.Precision.DEFAULT,
}

# Two factors in the dtype in which they are multiplied, and the options of JAX's product.
Factors: TypeAlias = tuple[Any, Any, dict[str, Any]]


def of_product(precision: str | None, a: Any, b: Any) -> Factors:
    """The operands in the dtype in which they are multiplied, and the options of JAX's product."""
    options: dict[str, Any] = {"precision": _PRECISIONS[precision]}
    if precision == "bfloat16" and a.dtype == b.dtype == jnp.float32:
        a, b = a.astype(jnp.bfloat16), b.astype(jnp.bfloat16)
        options["preferred_element_type"] = jnp.float32
    return a, b, options


def of_convolution(precision: str | None, x: Any, weight: Any) -> Factors:
    """The same for a convolution, whose derivatives want one type for all: numbers are rounded."""
    if precision == "bfloat16" and x.dtype == weight.dtype == jnp.float32:
        x, weight = (lax.reduce_precision(a, 8, 7) for a in (x, weight))
    return x, weight, {"precision": _PRECISIONS[precision]}
