"""MurmurHash3 of numbers and of strings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import Host, op
from sardonyx.ops.dtypes import INT32
from sardonyx.ops.text import OBJECT

UINT32, UINT64 = np.dtype(np.uint32), np.dtype(np.uint64)
LOW_HALF = 2**32 - 1


@op(domain="com.microsoft")
def MurmurHash3(xp: Backend, X: Array, *, positive: int = 1, seed: int = 0) -> Array:
    """Hash each element to 32 bits, as `MurmurHash3_x86_32` of its bytes does."""
    seed %= 2**32
    if xp.numpy_dtype(X.dtype) == OBJECT:
        words = np.asarray(X)
        hashed = _hash_of_texts(xp, [word.encode() for word in words.ravel().tolist()], seed)
    else:
        # Arrays of one axis: to NumPy, unlike a scalar, they may overflow.
        hashed = _hash_of_numbers(xp, xp.reshape(X, (-1,)), seed)
    hashed = xp.reshape(hashed, X.shape)
    return hashed if positive else xp.bitcast(hashed, xp.dtype(INT32))


def _hash_of_numbers(xp: Backend, x: Array, seed: int) -> Array:
    size = xp.numpy_dtype(x.dtype).itemsize
    if size not in (4, 8):
        raise ValueError(f"X has elements of {size} bytes, but must have numbers of 4 or 8 bytes")
    if size == 4:
        blocks = [xp.bitcast(x, xp.dtype(UINT32))]
    else:
        bits = xp.bitcast(x, xp.dtype(UINT64))
        blocks = [xp.astype(half, xp.dtype(UINT32)) for half in (bits & LOW_HALF, bits >> 32)]
    hashed = xp.full(x.shape, seed, dtype=xp.dtype(UINT32))
    for block in blocks:
        hashed = _with_block(xp, hashed, block)
    return _finished(xp, hashed, xp.asarray(np.asarray(size, UINT32)))


def _hash_of_texts(xp: Backend, texts: Sequence[bytes], seed: int) -> Array:
    """Hash texts of any lengths: each step takes four bytes of all that are long enough."""
    lengths = np.asarray([len(text) for text in texts], np.int64)
    order = np.argsort(-lengths, kind="stable")
    padded = b"".join(texts[i] + bytes(-len(texts[i]) % 4) for i in order)
    blocks = np.frombuffer(padded + bytes(4), "<u4").astype(UINT32)
    lengths = lengths[order]
    starts = np.cumsum([0, *-(-lengths // 4)])[:-1]
    hashed = np.full(len(texts), seed, UINT32)
    for i in range(max(lengths, default=0) // 4):
        long = np.searchsorted(-lengths, -4 * (i + 1), side="right")
        hashed[:long] = xp.fetch(
            _with_block(xp, xp.asarray(hashed[:long]), xp.asarray(blocks[starts[:long] + i]))
        )
    return _unordered(xp, _with_rests(xp, hashed, blocks, starts, lengths), order)


def _with_rests(xp: Backend, hashed: Host, blocks: Host, starts: Host, lengths: Host) -> Array:
    """Hash the last bytes of each text, of which there are fewer than four."""
    rests = xp.asarray(np.where(lengths % 4, blocks[starts + lengths // 4], 0).astype(UINT32))
    # A rest of zeros changes nothing, and neither does a missing one.
    mixed = xp.asarray(hashed) ^ _mixed(xp, rests)
    return _finished(xp, mixed, xp.asarray(lengths.astype(UINT32)))


def _unordered(xp: Backend, x: Array, order: Host) -> Array:
    return xp.take(x, xp.asarray(np.argsort(order)), axis=0)


# -- the steps of the algorithm -------------------------------------------------------------------


def _with_block(xp: Backend, hashed: Array, block: Array) -> Array:
    turned = _turned(hashed ^ _mixed(xp, block), 13)
    return turned * 5 + _constant(xp, 0xE6546B64)


def _mixed(xp: Backend, block: Array) -> Array:
    return _turned(block * _constant(xp, 0xCC9E2D51), 15) * _constant(xp, 0x1B873593)


def _turned(x: Array, bits: int) -> Array:
    return (x << bits) | (x >> (32 - bits))


def _finished(xp: Backend, hashed: Array, length: Array) -> Array:
    hashed = hashed ^ length
    hashed = (hashed ^ (hashed >> 16)) * _constant(xp, 0x85EBCA6B)
    hashed = (hashed ^ (hashed >> 13)) * _constant(xp, 0xC2B2AE35)
    return hashed ^ (hashed >> 16)


def _constant(xp: Backend, number: int) -> Array:
    return xp.asarray(np.asarray(number, UINT32))
