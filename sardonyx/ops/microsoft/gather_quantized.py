"""Slices of a quantized table, such as an embedding."""

from __future__ import annotations

from sardonyx.backends.base import Backend
from sardonyx.backends.dtypes import isdtype
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import axis_within, require_shape, sliced
from sardonyx.ops.definition import Ints, op
from sardonyx.ops.dtypes import UINT8
from sardonyx.ops.microsoft.few_bits import (
    dequantized,
    require_bits,
    require_block_size,
    unpacked,
)


@op(domain="com.microsoft")
def GatherBlockQuantized(
    xp: Backend,
    data: Array,
    indices: Array,
    scales: Array,
    zero_points: Array | None = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> Array:
    """Gather and dequantize; where an index is out of range the result is zero."""
    gather, quantize = (axis_within(axis, data.ndim) for axis in (gather_axis, quantize_axis))
    dtype = xp.numpy_dtype(data.dtype)
    is_packed, is_float = dtype == UINT8, not isdtype(dtype, "integral")
    if is_packed:
        _require_layout_of_bytes(gather, quantize, data.ndim, bits)
    per_byte = 8 // bits if is_packed else 1
    shape = _with_size(data.shape, quantize, data.shape[quantize] * per_byte)
    block_size = _block_size(block_size, shape[quantize], is_float=is_float)
    blocks = _with_size(shape, quantize, -(-shape[quantize] // block_size))
    _require_scales(scales, blocks, quantize, may_broadcast=is_float)
    if zero_points is not None:
        _require_zero_points(data, zero_points, blocks, per_byte, is_float=is_float)

    is_inside, places = _places(xp, indices, shape[gather])
    if not shape[gather]:
        return xp.zeros(_with_slices(shape, gather, indices.shape), dtype=scales.dtype)
    numbers = xp.take(data, places, axis=gather)
    blocks_of_places = places // block_size if gather == quantize else places

    def spread(x: Array) -> Array:
        """Return a scale or zero point for each number."""
        x = x if x.shape[gather] == 1 else xp.take(x, blocks_of_places, axis=gather)
        x = unpacked(xp, x, bits, blocks[-1]) if is_packed and x.dtype == data.dtype else x
        if gather == quantize:
            return x
        return sliced(xp.repeat(x, block_size, axis=quantize), quantize, 0, shape[quantize])

    numbers = unpacked(xp, numbers, bits) if is_packed else numbers
    middle = 1 << (bits - 1) if is_packed else 0
    zero_point = middle if zero_points is None else spread(zero_points)
    result = dequantized(xp, numbers, zero_point, spread(scales))
    is_inside = xp.reshape(is_inside, (-1, *(1,) * (data.ndim - gather - 1)))
    result = xp.where(is_inside, result, xp.zeros_like(result))
    return xp.reshape(result, _with_slices(shape, gather, indices.shape))


# -- shapes ---------------------------------------------------------------------------------------


def _with_size(shape: Ints, axis: int, size: int) -> Ints:
    return (*shape[:axis], size, *shape[axis + 1 :])


def _with_slices(shape: Ints, axis: int, slices: Ints) -> Ints:
    return (*shape[:axis], *slices, *shape[axis + 1 :])


def _block_size(block_size: int, length: int, *, is_float: bool) -> int:
    """Return the size of a block within the axis; for floats, 0 is a block as long as that."""
    if is_float and not block_size:
        return max(length, 1)
    require_block_size(block_size)
    return min(block_size, max(length, 1))


def _require_layout_of_bytes(gather: int, quantize: int, rank: int, bits: int) -> None:
    require_bits(bits, (2, 4, 8))
    if gather != 0 or quantize != rank - 1 or rank < 2:
        raise ValueError(
            f"gather_axis is {gather} and quantize_axis is {quantize}, but uint8 data has 0 for "
            "the first and its last axis for the second"
        )


def _require_scales(scales: Array, blocks: Ints, quantize: int, *, may_broadcast: bool) -> None:
    if may_broadcast and scales.ndim == len(blocks):
        sizes = enumerate(zip(scales.shape, blocks, strict=True))
        blocks = tuple(1 if n == 1 and i != quantize else size for i, (n, size) in sizes)
    require_shape("scales", scales, blocks)


def _require_zero_points(
    data: Array, zero_points: Array, blocks: Ints, per_byte: int, *, is_float: bool
) -> None:
    if is_float:
        raise ValueError(f"data of type {data.dtype} has no zero_points: remove that input")
    if zero_points.dtype != data.dtype:
        raise ValueError(f"zero_points has type {zero_points.dtype}, but data {data.dtype}")
    require_shape("zero_points", zero_points, (*blocks[:-1], -(-blocks[-1] // per_byte)))


# -- slices ---------------------------------------------------------------------------------------


def _places(xp: Backend, indices: Array, size: int) -> tuple[Array, Array]:
    """Return whether each index is in range, and the slice to read for it."""
    flat = xp.reshape(indices, (-1,))
    is_inside = (flat >= -size) & (flat < size)
    return is_inside, xp.where(is_inside, xp.where(flat < 0, flat + size, flat), 0)
