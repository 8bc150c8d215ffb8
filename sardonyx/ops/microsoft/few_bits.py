"""Numbers of few bits packed into bytes, and the weights that they stand for."""

from __future__ import annotations

import math

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import Ints
from sardonyx.ops.dtypes import FLOAT32, UINT8
from sardonyx.ops.linalg import MatMul

UINT16 = np.dtype(np.uint16)


def unpacked(xp: Backend, packed: Array, bits: int, count: int | None = None) -> Array:
    """Return the first `count` numbers in the bytes of the last axis, the lowest bits first.

    A number may lie in two bytes. The pattern of bytes and numbers repeats after a group of bytes.
    """
    if bits == UINT8.itemsize * 8:
        return packed[..., :count]
    shared = math.gcd(bits, 8)
    size, numbers = bits // shared, 8 // shared
    *outer, length = packed.shape
    groups = -(-length // size)
    if groups * size > length:
        packed = xp.pad(packed, [*((0, 0) for _ in outer), (0, groups * size - length)], 0)
    byte, shift = np.divmod(np.arange(numbers) * bits, 8)
    window = xp.reshape(packed, (*outer, groups, size))
    if size > 1:
        window = xp.astype(window, xp.dtype(UINT16))
        above = np.minimum(byte + 1, size - 1)
        low, high = (xp.take(window, xp.asarray(each), axis=-1) for each in (byte, above))
        window = low + high * 256
    shifts = xp.asarray(shift, dtype=window.dtype)
    each = xp.bitwise_right_shift(window, shifts) & (2**bits - 1)
    each = xp.reshape(each, (*outer, groups * numbers))
    return xp.astype(each[..., :count], xp.dtype(UINT8))


def dequantized(xp: Backend, numbers: Array, zero_point: Array | int, scale: Array) -> Array:
    """Return `(numbers - zero_point) * scale`, computed in float32 and rounded once."""
    float32 = xp.dtype(FLOAT32)
    if not isinstance(zero_point, int):
        zero_point = xp.astype(zero_point, float32)
    difference = xp.astype(numbers, float32) - zero_point
    return xp.astype(difference * xp.astype(scale, float32), scale.dtype)


def product_with_bias(xp: Backend, A: Array, weight: Array, bias: Array | None = None) -> Array:
    """Multiply by an unpacked weight, and add the bias."""
    if weight.dtype != A.dtype:
        raise ValueError(f"A has type {A.dtype}, but its weight has scales of type {weight.dtype}")
    Y = MatMul(xp, A, weight)
    if bias is None:
        return Y
    require_shape("bias", bias, weight.shape[1:])
    return Y + bias


def require_bits(bits: int, options: Ints) -> None:
    """Raise a ValueError unless `bits` is one of the sizes that the operator defines."""
    if bits not in options:
        raise ValueError(f"bits is {bits}, but must be one of {options}")


def require_block_size(block_size: int) -> None:
    """Raise a ValueError unless `block_size` is a power of two from 16."""
    if block_size < 16 or block_size & (block_size - 1):
        raise ValueError(f"block_size is {block_size}, but must be a power of two from 16")


def require_bytes(xp: Backend, name: str, x: Array) -> None:
    """Raise a ValueError unless the input called `name` holds bytes."""
    if xp.numpy_dtype(x.dtype) != UINT8:
        raise ValueError(f"{name} has type {x.dtype}, but must be uint8")
