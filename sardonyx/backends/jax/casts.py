"""Casts in JAX that round once on every processor, and that have derivatives."""

from __future__ import annotations

from typing import Any

import jax
import ml_dtypes
import numpy as np
from jax import lax

from sardonyx.backends.dtypes import isdtype
from sardonyx.backends.rounding import prepared, to_odd_float32

FLOAT4 = np.dtype(ml_dtypes.float4_e2m1fn)


def cast(x: Any, dtype: Any) -> Any:
    """`x` with another dtype, rounded once.

    >>> six = jax.numpy.asarray(6.0).astype(FLOAT4)
    >>> int(cast(six, np.int32))
    6
    """
    to = np.dtype(dtype)
    if x.dtype.name.endswith("int2") and x.dtype != to:
        # In one kernel from 2 to 4 bits XLA for CUDA mistakes whose bits are whose (jaxlib 0.11.2).
        x = lax.optimization_barrier(x.astype(np.int8))
    if x.dtype == FLOAT4 and isdtype(to, "integral"):
        # XLA takes the greatest number of float4 for infinity.
        x = x.astype(np.float32)
    if x.dtype == np.float64 and to == np.float16:
        # Without instructions for float16 (AVX512-FP16), processors go by way of float32.
        x = _to_odd(x)
    return prepared(x, to, _to_odd).astype(dtype)


@jax.custom_jvp
def _to_odd(x: Any) -> Any:
    """JAX itself has no derivatives of bits."""
    return to_odd_float32(x)


@_to_odd.defjvp
def _to_odd_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    (x,), (change,) = primals, tangents
    return _to_odd(x), change.astype(np.float32)
