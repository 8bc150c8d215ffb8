"""Products with weights of few bits, in blocks with a scale and a zero point each."""

from __future__ import annotations

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import Within
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import Ints, op
from sardonyx.ops.microsoft.few_bits import (
    dequantized,
    product_with_bias,
    require_bits,
    require_block_size,
    require_bytes,
    unpacked,
)


@op(domain="com.microsoft")
def MatMulNBits(
    xp: Backend,
    A: Array,
    B: Array,
    scales: Array,
    zero_points: Array | None = None,
    g_idx: Array | None = None,
    bias: Array | None = None,
    *,
    K: int,
    N: int,
    bits: int = 4,
    block_size: int,
    accuracy_level: int = 0,
    weight_prepacked: int = 0,
) -> Array:
    """Multiply by a weight of few bits; `accuracy_level` allows less precision, never taken."""
    if weight_prepacked:
        raise ValueError(
            f"weight_prepacked is {weight_prepacked}: B is in the layout of one kind of GPU. "
            "Export the model without packing its weights"
        )
    weight = nbits_weight(
        xp, B, scales, zero_points, g_idx, K=K, N=N, bits=bits, block_size=block_size
    )
    return product_with_bias(xp, A, weight, bias)


def nbits_weight(
    xp: Backend,
    B: Array,
    scales: Array,
    zero_points: Array | None = None,
    g_idx: Array | None = None,
    *,
    K: int,
    N: int,
    bits: int,
    block_size: int,
) -> Array:
    """Return the weight as a matrix (K, N) of the type of the scales."""
    require_bits(bits, (2, 3, 4, 5, 6, 7, 8))
    require_block_size(block_size)
    require_bytes(xp, "B", B)
    blocks = -(-K // block_size)
    require_shape("B", B, (N, blocks, block_size * bits // 8))
    numbers = unpacked(xp, B, bits)
    scale = _by_block(xp, "scales", scales, (N, blocks))
    zero_point = _zero_points(xp, zero_points, (N, blocks), bits)
    if g_idx is None:
        of_numbers = (N, blocks, 1)
        zero_point = zero_point if isinstance(zero_point, int) else zero_point[..., None]
        weight = dequantized(xp, numbers, zero_point, xp.reshape(scale, of_numbers))
        return xp.matrix_transpose(xp.reshape(weight, (N, blocks * block_size))[:, :K])
    group = _groups(xp, g_idx, K, blocks, block_size)
    numbers = xp.reshape(numbers, (N, blocks * block_size))[:, :K]
    scale = xp.take(scale, group, axis=1)
    if not isinstance(zero_point, int):
        zero_point = xp.take(zero_point, group, axis=1)
    return xp.matrix_transpose(dequantized(xp, numbers, zero_point, scale))


def _zero_points(xp: Backend, zero_points: Array | None, shape: Ints, bits: int) -> Array | int:
    """Return one zero point for each block; bytes hold them packed, floats do not."""
    if zero_points is None:
        return 1 << (bits - 1)
    rows, blocks = shape
    if xp.isdtype(zero_points.dtype, "real floating"):
        return _by_block(xp, "zero_points", zero_points, shape)
    require_bytes(xp, "zero_points", zero_points)
    packed = _by_block(xp, "zero_points", zero_points, (rows, -(-blocks * bits // 8)))
    return unpacked(xp, packed, bits, blocks)


def _by_block(xp: Backend, name: str, x: Array, shape: Ints) -> Array:
    """Return `x` as one row for each output; old files flatten it, others add an axis of 1."""
    rows, columns = shape
    if x.shape not in ((rows * columns,), shape, (*shape, 1)):
        raise ValueError(
            f"{name} has shape {x.shape}, but must have shape {shape} or {(rows * columns,)}"
        )
    return xp.reshape(x, shape)


def _groups(xp: Backend, g_idx: Array, K: int, blocks: int, block_size: int) -> Array:
    """Return for each of the K inputs the block whose scale and zero point it has."""
    if g_idx.shape not in ((K,), (blocks * block_size,)):
        raise ValueError(f"g_idx has shape {g_idx.shape}, but must have shape {(K,)}")
    xp.require(g_idx, Within("g_idx", 0, blocks - 1))
    return g_idx[:K]
