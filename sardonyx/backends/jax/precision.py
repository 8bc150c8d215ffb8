"""How exact products of float32 are: as float32 itself, or as a type that some hardware prefers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import jax.numpy as jnp
from jax import lax

# Stands for TF32 on GPUs, and for three products of bfloat16 on TPUs.
IN_TF32 = "tensorfloat32"
# "default" is TF32 on GPUs, and one product of bfloat16 on TPUs; "bfloat16" rounds the factors
# itself, so that it means the same everywhere.
_PRECISIONS: Mapping[str | None, Any] = {
    None: None,  # JAX's own setting.
    "highest": lax.Precision.HIGHEST,
    "high": lax.Precision.HIGH,
    "tensorfloat32": IN_TF32,
    "default": lax.Precision.DEFAULT,
    "bfloat16": lax.Precision.DEFAULT,
}

# Two factors in the dtype in which they are multiplied, and the options of the product.
Factors: TypeAlias = tuple[Any, Any, dict[str, Any]]


def of_product(precision: str | None, a: Any, b: Any) -> Factors:
    """The operands in the dtype in which they are multiplied, and the options of `multiplied`."""
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


def multiplied(
    multiply: Callable[..., Any], a: Any, b: Any, *, precision: Any, **options: Any
) -> Any:
    """Multiply by a function of JAX that takes a `precision`."""
    if precision is not IN_TF32:
        return multiply(a, b, precision=precision, **options)
    if not a.dtype == b.dtype == jnp.float32:
        return multiply(a, b, precision=lax.Precision.HIGH, **options)
    # With HIGH the kernels that XLA writes for GPUs multiply float32; with DEFAULT, TF32.
    return lax.platform_dependent(
        a,
        b,
        cuda=partial(multiply, precision=lax.Precision.DEFAULT, **options),
        default=partial(multiply, precision=lax.Precision.HIGH, **options),
    )
