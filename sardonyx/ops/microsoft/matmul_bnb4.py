"""Products with weights of 4 bits in the two formats of bitsandbytes, FP4 and NF4."""

from __future__ import annotations

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import op
from sardonyx.ops.dtypes import FLOAT32
from sardonyx.ops.microsoft.few_bits import (
    product_with_bias,
    require_block_size,
    require_bytes,
    unpacked,
)
from sardonyx.ops.options import require_one_of

# A float of a sign, two bits of exponent and one of fraction, as parts of the largest, which is 12.
_FP4_SIZES = [each / 12 for each in (0, 0.0625, 8, 12, 4, 6, 2, 3)]
# Quantiles of the normal distribution, with an exact zero (arXiv 2305.14314, appendix E).
_NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
    -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
    0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
# By quant_type.
_VALUES = ((*_FP4_SIZES, *(-size for size in _FP4_SIZES)), _NF4)


@op(domain="com.microsoft")
def MatMulBnb4(
    xp: Backend,
    A: Array,
    B: Array,
    absmax: Array,
    *,
    K: int,
    N: int,
    block_size: int,
    quant_type: int,
    training_mode: int = 0,
    transB: int = 1,
) -> Array:
    weight = bnb4_weight(
        xp, B, absmax, K=K, N=N, block_size=block_size, quant_type=quant_type, transB=transB
    )
    return product_with_bias(xp, A, weight)


def bnb4_weight(
    xp: Backend,
    B: Array,
    absmax: Array,
    *,
    K: int,
    N: int,
    block_size: int,
    quant_type: int,
    transB: int,
) -> Array:
    """Return the weight as a matrix (K, N), or (N, K) if it is not to be transposed."""
    require_one_of("quant_type", quant_type, (0, 1))
    require_block_size(block_size)
    require_bytes(xp, "B", B)
    count = N * K
    blocks = -(-count // block_size)
    for name, x, size in (("B", B, -(-count // 2)), ("absmax", absmax, blocks)):
        if x.size != size:
            raise ValueError(f"{name} has shape {x.shape}, but must have {size} elements")
    # The first of two numbers is in the upper half of a byte.
    pairs = xp.flip(xp.reshape(unpacked(xp, xp.reshape(B, (-1,)), 4), (-1, 2)), axis=1)
    numbers = xp.reshape(pairs, (-1,))[:count]
    float32 = xp.dtype(FLOAT32)
    values = xp.take(xp.asarray(np.asarray(_VALUES[quant_type], FLOAT32)), numbers, axis=0)
    scale = xp.repeat(xp.astype(xp.reshape(absmax, (-1,)), float32), block_size)[:count]
    weight = xp.reshape(xp.astype(values * scale, absmax.dtype), (N, K))
    return xp.matrix_transpose(weight) if transB else weight
