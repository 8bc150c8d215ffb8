"""Products with weights in floats of 8 or 4 bits."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.activation import Gelu, Relu
from sardonyx.ops.axes import require_broadcasts, require_shape, sliced
from sardonyx.ops.casting import Cast
from sardonyx.ops.definition import DType, op
from sardonyx.ops.dtypes import FLOAT32
from sardonyx.ops.linalg import Gemm
from sardonyx.ops.microsoft.few_bits import product_with_bias, require_bytes, unpacked
from sardonyx.ops.options import require_one_of

FLOAT8 = np.dtype(ml_dtypes.float8_e4m3fn)
HALVES = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
# By the 4 bits: a sign, two of exponent and one of fraction.
_SIZES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_FLOAT4 = np.asarray((*_SIZES, *(-size for size in _SIZES)), FLOAT32)


@op(domain="com.microsoft")
def GemmFloat8(
    xp: Backend,
    A: Array,
    B: Array,
    C: Array | None = None,
    scaleA: Array | None = None,
    scaleB: Array | None = None,
    scaleY: Array | None = None,
    *,
    activation: str | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    dtype: DType = FLOAT32,
    transA: int = 0,
    transB: int = 0,
) -> Array:
    """Return `activation(alpha A B + beta C)` with all its scales, computed in float32."""
    require_one_of("activation", activation, (None, "NONE", "RELU", "GELU"))
    a, b = _scaled(xp, A, scaleA), _scaled(xp, B, scaleB)
    c = None if C is None else xp.astype(C, xp.dtype(FLOAT32))
    y = Gemm(xp, a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    return _finished(xp, y, scaleY, activation, dtype)


def gemm_of_float8(
    xp: Backend,
    A: Array,
    columns: Array,
    C: Array | None = None,
    scaleA: Array | None = None,
    scaleB: Array | None = None,
    scaleY: Array | None = None,
    *,
    size: int,
    activation: str | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    dtype: DType = FLOAT32,
    transA: int = 0,
) -> Array:
    """Return what `GemmFloat8` does, by the backend's kernel, of which `size` columns are used."""
    require_one_of("activation", activation, (None, "NONE", "RELU", "GELU"))
    a = xp.matrix_transpose(A) if transA else A
    is_bare = C is None and scaleY is None and alpha == 1 and activation in (None, "NONE")
    to = dtype if is_bare and dtype in HALVES else FLOAT32
    y = product_of_float8(xp, a, columns, scaleA, scaleB, size=size, dtype=to)
    y = y if alpha == 1 else y * alpha
    if C is not None:
        require_broadcasts("C", C, y.shape)
        y = y + xp.astype(C, y.dtype) * beta if beta != 0 else y
    return _finished(xp, y, scaleY, activation, dtype)


def columns_of_float8(xp: Backend, b: Array, *, is_transposed: bool) -> Array:
    """Return a factor in the form that the backend's kernel reads."""
    return xp.columns_of_float8(xp.matrix_transpose(b) if is_transposed else b)


def product_of_float8(
    xp: Backend,
    a: Array,
    columns: Array,
    a_scale: Array | None = None,
    b_scale: Array | None = None,
    *,
    size: int,
    dtype: DType,
) -> Array:
    """Multiply by the backend's kernel, of whose results the first `size` columns are used."""
    scales = (
        None if scale is None else _number(xp, "a scale", scale) for scale in (a_scale, b_scale)
    )
    return xp.float8_matmul(a, columns, *scales, dtype=dtype)[..., :size]


def _finished(
    xp: Backend, y: Array, scale: Array | None, activation: str | None, dtype: DType
) -> Array:
    if activation == "RELU":
        y = Relu(xp, y)
    elif activation == "GELU":
        y = Gelu(xp, y, approximate="tanh")
    if scale is None:
        return Cast(xp, y, to=dtype)
    return Cast(xp, _scaled(xp, y, scale), to=dtype)


@op(domain="com.microsoft")
def MatMulBlockQuantizedFp8Weight(
    xp: Backend,
    A: Array,
    B: Array,
    b_scale: Array,
    a_scale: Array | None = None,
    bias: Array | None = None,
    *,
    block_size: int = 128,
) -> Array:
    """Multiply in float32; with `a_scale`, `A` is rounded to floats of 8 bits before."""
    a = xp.astype(A, xp.dtype(FLOAT32))
    if a_scale is not None:
        factor = _number(xp, "a_scale", a_scale)
        a = xp.astype(Cast(xp, xp.quotient(a, factor), to=FLOAT8), a.dtype) * factor
    weight = xp.astype(B, xp.dtype(FLOAT32)) * _spread(xp, "b_scale", b_scale, B, block_size)
    return _product(xp, a, weight, bias, A)


@op(domain="com.microsoft")
def MatMulBlockQuantizedFp4Weight(
    xp: Backend,
    A: Array,
    B: Array,
    weight_scale: Array,
    weight_scale_2: Array,
    input_scale: Array | None = None,
    bias: Array | None = None,
    *,
    block_size: int = 16,
) -> Array:
    """Round the weight to the type of `A`, and multiply in float32; `input_scale` is not used."""
    require_bytes(xp, "B", B)
    require_bytes(xp, "weight_scale", weight_scale)
    if B.ndim != 2:
        raise ValueError(f"B has shape {B.shape}, but must have two axes")
    numbers = unpacked(xp, B, 4)
    flat = xp.take(xp.asarray(_FLOAT4), xp.reshape(numbers, (-1,)), axis=0)
    scale = xp.astype(xp.bitcast(weight_scale, xp.dtype(FLOAT8)), xp.dtype(FLOAT32))
    scale = _spread(xp, "weight_scale", scale, numbers, block_size)
    weight = xp.reshape(flat, numbers.shape) * _number(xp, "weight_scale_2", weight_scale_2) * scale
    weight = xp.astype(xp.astype(weight, A.dtype), xp.dtype(FLOAT32))
    return _product(xp, xp.astype(A, weight.dtype), weight, bias, A)


def _product(xp: Backend, a: Array, weight: Array, bias: Array | None, A: Array) -> Array:
    """Multiply float32 by the transposed weight, add the bias, and round to the type of `A`."""
    bias = None if bias is None else xp.astype(bias, a.dtype)
    return xp.astype(product_with_bias(xp, a, xp.matrix_transpose(weight), bias), A.dtype)


def _scaled(xp: Backend, x: Array, scale: Array | None) -> Array:
    """Return `x` in float32, times the scale if there is one."""
    x = xp.astype(x, xp.dtype(FLOAT32))
    return x if scale is None else x * _number(xp, "a scale", scale)


def _number(xp: Backend, name: str, x: Array) -> Array:
    if x.size != 1:
        raise ValueError(f"{name} has shape {x.shape}, but must be a single number")
    return xp.reshape(x, ())


def _spread(xp: Backend, name: str, scale: Array, weight: Array, block_size: int) -> Array:
    """Return one scale for each element of the weight, in blocks along its last axis."""
    if weight.ndim != 2 or block_size < 1:
        raise ValueError(
            f"B has shape {weight.shape} and block_size is {block_size}, but B must be a matrix "
            "and block_size at least 1"
        )
    rows, columns = weight.shape
    require_shape(name, scale, (rows, -(-columns // block_size)))
    return sliced(xp.repeat(scale, min(block_size, max(columns, 1)), axis=1), 1, 0, columns)
