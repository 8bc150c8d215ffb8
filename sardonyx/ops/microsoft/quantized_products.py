"""Products of quantized matrices and convolutions of quantized images."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops import quantization
from sardonyx.ops.axes import require_broadcasts
from sardonyx.ops.definition import op
from sardonyx.ops.dtypes import FLOAT32, FLOAT64, INT32, INT64
from sardonyx.ops.linalg import require_factors
from sardonyx.ops.microsoft.channels import channels_first, channels_last_again
from sardonyx.ops.microsoft.quantized_values import dtype_of, float_zero, require_integers
from sardonyx.ops.quantization import (
    as_matrices,
    as_product,
    centred_product,
    per_column,
    per_row,
    quantized,
    single_number,
)

DOMAIN = "com.microsoft"
UINT32 = np.dtype(np.uint32)

# -- to floats ------------------------------------------------------------------------------------


@op(domain=DOMAIN)
def MatMulIntegerToFloat(
    xp: Backend,
    A: Array,
    B: Array,
    a_scale: Array,
    b_scale: Array,
    a_zero_point: Array | None = None,
    b_zero_point: Array | None = None,
    bias: Array | None = None,
) -> Array:
    require_integers(xp, A, B)
    a, b = as_matrices(xp, A, B)
    zeros = per_row(xp, a_zero_point, a), per_column(xp, b_zero_point, b)
    product = centred_product(xp, a, zeros[0], b, zeros[1])
    float32 = xp.dtype(FLOAT32)
    one = xp.astype(per_row(xp, a_scale, a), float32)
    other = xp.astype(per_column(xp, b_scale, b), float32)
    y = xp.astype(product, float32) * (one * other)
    if bias is not None:
        # The optimizer writes a bias of the shape (1, N) too.
        require_broadcasts("bias", bias, (1, *y.shape[-1:]))
        y = y + xp.astype(bias, float32)
    return as_product(xp, xp.astype(y, a_scale.dtype), A, B)


@op(domain=DOMAIN)
def DynamicQuantizeMatMul(
    xp: Backend,
    A: Array,
    B: Array,
    b_scale: Array,
    b_zero_point: Array | None = None,
    bias: Array | None = None,
) -> Array:
    """Quantize all of `A` to uint8 with one scale, then multiply integers."""
    a, a_scale, a_zero_point = quantization.DynamicQuantizeLinear(xp, A)
    return MatMulIntegerToFloat(xp, a, B, a_scale, b_scale, a_zero_point, b_zero_point, bias)


# -- to integers ----------------------------------------------------------------------------------


@op(domain=DOMAIN)
def MatMulInteger16(xp: Backend, A: Array, B: Array) -> Array:
    """Return the product modulo 2**32, with a sign if one of the factors has one.

    Through float64, which libraries multiply fast, and which is exact for 2**21 terms.
    """
    require_integers(xp, A, B)
    require_factors(A, B)
    float64, int64 = xp.dtype(FLOAT64), xp.dtype(INT64)
    product = xp.matmul(xp.astype(A, float64), xp.astype(B, float64))
    is_signed = any(xp.isdtype(x.dtype, "signed integer") for x in (A, B))
    return xp.astype(xp.astype(product, int64), xp.dtype(INT32 if is_signed else UINT32))


@op(domain=DOMAIN)
def QGemm(
    xp: Backend,
    A: Array,
    a_scale: Array,
    a_zero_point: Array,
    B: Array,
    b_scale: Array,
    b_zero_point: Array,
    C: Array | None = None,
    y_scale: Array | None = None,
    y_zero_point: Array | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Array:
    """Return integers if the node has a zero point of the result, else float32.

    `C` counts in units of both scales.
    """
    require_integers(xp, A, B)
    if A.ndim != 2 or B.ndim != 2:
        raise ValueError(
            f"A has shape {A.shape} and B has shape {B.shape}, but both must be matrices"
        )
    a = xp.matrix_transpose(A) if transA else A
    b = xp.matrix_transpose(B) if transB else B
    require_factors(a, b)
    zeros = per_row(xp, a_zero_point, a), per_column(xp, b_zero_point, b)
    total = centred_product(xp, a, zeros[0], b, zeros[1])
    if C is not None:
        require_broadcasts("C", C, total.shape)
        total = total + C
    scale = single_number(xp, a_scale) * alpha * per_column(xp, b_scale, b)
    if y_scale is not None:
        scale = xp.quotient(scale, single_number(xp, y_scale))
    y: Array = xp.astype(total, xp.dtype(FLOAT32)) * scale
    if y_zero_point is None:
        return y
    return quantized(xp, y, float_zero(xp, y_zero_point), dtype_of(xp, y_zero_point))


@op(domain=DOMAIN)
def QLinearConv(
    xp: Backend,
    x: Array,
    x_scale: Array,
    x_zero_point: Array,
    w: Array,
    w_scale: Array,
    w_zero_point: Array,
    y_scale: Array,
    y_zero_point: Array,
    B: Array | None = None,
    *,
    channels_last: int = 0,
    **attributes: Annotated[Any, quantization.ConvInteger],
) -> Array:
    """Convolve; the filters have their channels first in either layout."""
    x = channels_first(xp, x, channels_last)
    filters = (w, w_scale, w_zero_point)
    y = quantization.QLinearConv(
        xp, x, x_scale, x_zero_point, *filters, y_scale, y_zero_point, B, **attributes
    )
    return channels_last_again(xp, y, channels_last)
