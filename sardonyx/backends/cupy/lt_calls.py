"""Arrays and calls of cuBLASLt: a product is a call for each part of its plan."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import cupy
import numpy as np

from sardonyx.backends.cupy import cublaslt
from sardonyx.backends.cupy.product_plans import Call, Copied, Plan, Strides
from sardonyx.backends.cupy.products import laid_out, plan_of
from sardonyx.backends.standard import Shape

# A plan of one call, and where that begins in each array, in elements.
Part = tuple[Plan, tuple[int, int, int]]
# Kernels for elements of one byte read this many at once.
UNIT = 16


def multiply_by_parts(
    kind: cublaslt.Kind,
    a: Any,
    b: Any,
    result: Any,
    *,
    epilogue: int = cublaslt.NO_EPILOGUE,
    bias: Any = None,
    scales: tuple[int | None, int | None] = (None, None),
    precision: str = "highest",
) -> None:
    """Multiply into a row-major array; `scales` are the addresses of numbers."""
    a, b, parts = laid_out(a, b, _parts)
    for plan, starts in parts:
        addresses = tuple(
            array.data.ptr + start * array.itemsize
            for array, start in zip((a, b, result), starts, strict=True)
        )
        at_bias = None if bias is None else bias.data.ptr
        cublaslt.multiply(kind, plan, addresses, epilogue, at_bias, scales, precision=precision)


def row_major(x: Any) -> Any:
    """Return the array, or a copy, with rows that lie where kernels for bytes read them."""
    x = cupy.ascontiguousarray(x)
    return x if x.data.ptr % UNIT == 0 else x.copy()


@lru_cache(4096)
def _parts(
    dtype: np.dtype[Any], a: Shape, a_strides: Strides, b: Shape, b_strides: Strides
) -> tuple[Part, ...] | Copied:
    """A plan of each call, since cuBLASLt describes one at a time."""
    plan = plan_of(dtype, a, a_strides, b, b_strides)
    if isinstance(plan, Copied):
        return plan
    return tuple(
        [
            (replace(plan, calls=(Call((0, 0, 0), call.strides, call.matrices),)), call.starts)
            for call in plan.calls
        ]
    )
