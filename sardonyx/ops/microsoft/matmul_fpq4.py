"""Products with weights of 4 bits in the blocks of onnxruntime's own kernels."""

from __future__ import annotations

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import Ints, op
from sardonyx.ops.dtypes import FLOAT32
from sardonyx.ops.microsoft.few_bits import dequantized, product_with_bias, require_bytes
from sardonyx.ops.options import require_one_of

UINT32 = np.dtype(np.uint32)
# Numbers that share 16 bytes: the first half is in the lower halves of the bytes.
UNIT = 32


@op(domain="com.microsoft")
def MatMulFpQ4(xp: Backend, A: Array, B: Array, B_shape: Ints, *, blk_quant_type: int = 1) -> Array:
    weight = fpq4_weight(xp, B, B_shape=B_shape, blk_quant_type=blk_quant_type)
    return product_with_bias(xp, A, weight)


def fpq4_weight(xp: Backend, B: Array, *, B_shape: Ints, blk_quant_type: int) -> Array:
    """Return the weight as a matrix of shape `B_shape`.

    Its columns follow one another in blocks: a float32 as scale, a byte as zero point if there is
    one, and the numbers.
    """
    require_one_of("blk_quant_type", blk_quant_type, (0, 1, 2))
    require_bytes(xp, "B", B)
    if len(B_shape) != 2:
        raise ValueError(f"B_shape is {B_shape}, but must hold two sizes")
    (K, N), has_zero_point = B_shape, blk_quant_type == 1
    block_size = 2 * UNIT if blk_quant_type == 2 else UNIT
    begin, blocks = (5 if has_zero_point else 4), -(-K // block_size)
    size = begin + block_size // 2
    require_shape("B", B, (N * blocks * size,))
    block = xp.reshape(B, (N, blocks, size))
    scale = _float32(xp, block[..., :4])
    zero_point = block[..., 4:5] if has_zero_point else 8
    units = xp.reshape(block[..., begin:], (N, blocks, block_size // UNIT, UNIT // 2))
    upper = xp.bitwise_right_shift(units, xp.asarray(4, dtype=B.dtype))
    numbers = xp.concat([units & 15, upper], axis=-1)
    numbers = xp.reshape(numbers, (N, blocks, block_size))
    weight = xp.reshape(dequantized(xp, numbers, zero_point, scale), (N, blocks * block_size))
    return xp.matrix_transpose(weight[:, :K])


def _float32(xp: Backend, four_bytes: Array) -> Array:
    """Return the floats whose bytes are on the last axis, the lowest first."""
    each = xp.astype(four_bytes, xp.dtype(UINT32))
    factors = xp.asarray(np.asarray([1, 2**8, 2**16, 2**24], UINT32))
    bits = xp.sum(each * factors, axis=-1, keepdims=True, dtype=xp.dtype(UINT32))
    return xp.bitcast(bits, xp.dtype(FLOAT32))
