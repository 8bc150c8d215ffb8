"""What both policies of SparseAttentionIndexer compute with: norms, rotations and scores."""

from __future__ import annotations

from typing import NamedTuple

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.activation import Relu
from sardonyx.ops.dtypes import FLOAT32, INT64
from sardonyx.ops.microsoft.kv_cache import written
from sardonyx.ops.normalization import root_mean_square


class Cache(NamedTuple):
    """Rows of keys, and how many of them are there before this call."""

    # (batch, rows, size)
    rows: Array
    past: Array
    # Whether the number of rows is the same after each call.
    has_capacity: bool

    @classmethod
    def of(cls, xp: Backend, rows: Array, past: Array | None, query: Array, size: int) -> Cache:
        if rows.ndim != 3 or rows.shape[0] != query.shape[0] or rows.shape[2] != size:
            raise ValueError(
                f"past_key has shape {rows.shape}, but must be ({query.shape[0]}, length, {size})"
            )
        if past is None:
            return cls(rows, xp.asarray(rows.shape[1], dtype=xp.dtype(INT64)), has_capacity=False)
        return cls(rows, xp.astype(xp.reshape(past, ()), xp.dtype(INT64)), has_capacity=True)

    def with_rows(self, xp: Backend, new: Array) -> Array:
        """Return the rows of the past and the new ones after them."""
        length = new.shape[1]
        if not self.has_capacity:
            return xp.concat([self.rows, xp.astype(new, self.rows.dtype)], axis=1)
        if length > self.rows.shape[1]:
            raise ValueError(f"past_key has {self.rows.shape[1]} rows, too few for {length} more")
        start = xp.broadcast_to(self.past, (new.shape[0],))
        buffer, added = self.rows[:, None, :, :], xp.astype(new, self.rows.dtype)[:, None, :, :]
        return written(xp, buffer, added, start)[:, 0, :, :]


class Angles(NamedTuple):
    """Cosines and sines by position: (positions, size), for all samples or for each."""

    cos: Array
    sin: Array

    @classmethod
    def of(cls, cos: Array, sin: Array, batch: int) -> Angles:
        has_batch = cos.ndim == 3 and cos.shape[0] == batch
        if cos.shape != sin.shape or not (cos.ndim == 2 or has_batch) or not cos.shape[-2]:
            raise ValueError(
                f"cos_cache has shape {cos.shape} and sin_cache {sin.shape}, but both must be "
                "(positions, size), or have a batch axis before these"
            )
        return cls(cos, sin)

    def at(self, xp: Backend, positions: Array) -> tuple[Array, Array]:
        """Return the rows of (batch, count) positions, in float32."""
        last = self.cos.shape[-2] - 1
        positions = xp.minimum(xp.maximum(positions, xp.zeros_like(positions)), last)
        places = [positions]
        if self.cos.ndim == 3:
            sample = xp.arange(positions.shape[0], dtype=positions.dtype)[:, None]
            places = [xp.broadcast_to(sample, positions.shape), positions]
        cos, sin = (xp.astype(xp.gather(x, places), xp.dtype(FLOAT32)) for x in self)
        return cos, sin

    def of_requests(self, xp: Backend, request: Array, positions: Array) -> tuple[Angles, Array]:
        """Return angles for all requests, and in these the place of each request's position."""
        if self.cos.ndim == 2:
            return self, positions
        count, width = self.cos.shape[-2:]
        place = xp.minimum(xp.maximum(positions, xp.zeros_like(positions)), count - 1)
        flat = Angles(*(xp.reshape(x, (-1, width)) for x in self))
        return flat, request * count + place

    def turned_halves(self, xp: Backend, x: Array, positions: Array) -> Array:
        """Rotate the first elements of (batch, count, ..., size): one of each half is a pair."""
        cos, sin = (_beside(xp, a, x) for a in self.at(xp, positions))
        width = cos.shape[-1]
        if width > x.shape[-1] or width % 2:
            raise ValueError(f"a rotary table has {width} columns, for keys of {x.shape[-1]}")
        turned, rest = x[..., :width], x[..., width:]
        one, other = turned[..., : width // 2], turned[..., width // 2 :]
        swapped = xp.concat([-other, one], axis=-1)
        return xp.concat([turned * cos + swapped * sin, rest], axis=-1)

    def turned_pairs(self, xp: Backend, x: Array, positions: Array) -> Array:
        """Rotate the last elements of (batch, count, ..., size): neighbours are a pair."""
        cos, sin = (_beside(xp, a, x) for a in self.at(xp, positions))
        width = 2 * cos.shape[-1]
        start = x.shape[-1] - width
        if start < 0:
            raise ValueError(f"a rotary table has {width // 2} columns, for keys of {x.shape[-1]}")
        rest, turned = x[..., :start], x[..., start:]
        pairs = xp.reshape(turned, (*turned.shape[:-1], width // 2, 2))
        one, other = pairs[..., 0], pairs[..., 1]
        pairs = xp.stack([one * cos - other * sin, other * cos + one * sin], axis=-1)
        return xp.concat([rest, xp.reshape(pairs, turned.shape)], axis=-1)


def _beside(xp: Backend, angles: Array, x: Array) -> Array:
    """Return (batch, count, size) with axes of one before the last, as many as `x` has."""
    batch, count, size = angles.shape
    return xp.reshape(angles, (batch, count, *(1 for _ in range(x.ndim - 3)), size))


def normalized(xp: Backend, x: Array, weight: Array, epsilon: float) -> Array:
    """Normalise the last axis, in float32."""
    x = xp.astype(x, xp.dtype(FLOAT32))
    x = x / root_mean_square(xp, x, (x.ndim - 1,), epsilon)
    return x * xp.astype(weight, x.dtype)


def head_scores(xp: Backend, queries: Array, keys: Array, scale: float) -> Array:
    """Return (batch, queries, heads, keys): how much each head looks at each key, if it does."""
    products = xp.matmul(queries, xp.matrix_transpose(keys)[:, None, :, :])
    return Relu(xp, products) * scale
