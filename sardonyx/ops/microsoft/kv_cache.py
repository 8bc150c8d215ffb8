"""Buffers of past keys and values, as (batch, heads, length, size)."""

from __future__ import annotations

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import Within
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import require_shape


def written(xp: Backend, buffer: Array, new: Array, start: Array, *, clears: bool = False) -> Array:
    """Return the buffer with the rows of `new` from the place `start` on, one start per sample.

    The rows after them stay, or become zeros.
    """
    length, rows = buffer.shape[2], new.shape[2]
    if not rows:
        return buffer
    place = xp.arange(length, dtype=start.dtype) - xp.reshape(start, (-1, 1))
    place = xp.broadcast_to(place, (new.shape[0], length))
    if rows > 1:
        sample = xp.reshape(xp.arange(new.shape[0], dtype=start.dtype), (-1, 1))
        sample = xp.broadcast_to(sample, place.shape)
        row = xp.minimum(xp.maximum(place, 0), rows - 1)
        by_row = xp.gather(xp.permute_dims(new, (0, 2, 1, 3)), [sample, row])
        new = xp.permute_dims(by_row, (0, 2, 1, 3))
    place = place[:, None, :, None]
    if clears:
        new = xp.where(place < rows, new, xp.zeros_like(new))
        return xp.where(place >= 0, new, buffer)
    return xp.where((place >= 0) & (place < rows), new, buffer)


def lengthened(xp: Backend, buffer: Array, length: int) -> Array:
    """Return the buffer with zeros after its rows, if it is shorter than `length`."""
    missing = length - buffer.shape[2]
    return xp.pad(buffer, [(0, 0), (0, 0), (0, missing), (0, 0)], 0) if missing > 0 else buffer


def by_beam(xp: Backend, buffer: Array, indirection: Array, past: Array) -> Array:
    """Return for each beam the rows of the beams that its past tokens came from.

    `indirection` is (batch, beams, length), and the buffer has one sample for each beam. Rows from
    the place `past` on are those of the beam itself.
    """
    samples, length = buffer.shape[0], buffer.shape[2]
    if indirection.ndim != 3 or indirection.shape[0] * indirection.shape[1] != samples:
        raise ValueError(
            f"cache_indirection has shape {indirection.shape}, but must have (batch, beams, "
            f"length) with {samples} beams in all"
        )
    beams = indirection.shape[1]
    require_shape("cache_indirection", indirection, (samples // max(beams, 1), beams, length))
    dtype = indirection.dtype
    own = xp.reshape(xp.arange(samples, dtype=dtype), (samples, 1))
    place = xp.reshape(xp.arange(length, dtype=dtype), (1, length))
    origin = own - own % max(beams, 1) + xp.reshape(indirection, (samples, length))
    is_past = xp.broadcast_to(place < xp.reshape(past, (1, 1)), origin.shape)
    origin = xp.where(is_past, origin, own)
    by_row = xp.permute_dims(buffer, (0, 2, 1, 3))
    chosen = xp.gather(by_row, [origin, xp.broadcast_to(place, origin.shape)])
    return xp.permute_dims(chosen, (0, 2, 1, 3))


def require_room(xp: Backend, name: str, past: Array, buffer: Array, new: int) -> None:
    """Raise a ValueError unless one number says where in the buffer to write `new` rows."""
    if past.size != 1:
        raise ValueError(f"{name} has shape {past.shape}, but must be one element")
    if new > buffer.shape[2]:
        raise ValueError(f"{new} new rows do not fit a buffer of {buffer.shape[2]}")
    xp.require(past, Within(name, 0, buffer.shape[2] - new))
