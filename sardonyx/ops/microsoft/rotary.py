"""Rotary embeddings of com.microsoft: pairs of elements turned by the angle of a position."""

from __future__ import annotations

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import Within
from sardonyx.backends.standard import Array
from sardonyx.ops import attention
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import Ints, op
from sardonyx.ops.options import require_one_of


@op(domain="com.microsoft")
def RotaryEmbedding(
    xp: Backend,
    input: Array,
    position_ids: Array,
    cos_cache: Array,
    sin_cache: Array,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Array:
    """Rotate by rows of the caches; a single position id is that of the first token.

    Like onnxruntime, ignore `scale`. Packing does not matter, since each token has its position.
    """
    batch, length = _tokens(input)
    if position_ids.size == 1 and position_ids.ndim < 2:
        last = cos_cache.shape[0] - max(length, 1)
        xp.require(position_ids, Within("position_ids", 0, last))
        positions = xp.reshape(position_ids, (1, 1)) + xp.arange(length, dtype=position_ids.dtype)
    else:
        require_shape("position_ids", position_ids, (batch, length))
        xp.require(position_ids, Within("position_ids", 0, cos_cache.shape[0] - 1))
        positions = position_ids
    cos, sin = (_rows(xp, cache, positions) for cache in (cos_cache, sin_cache))
    return rotated(xp, input, cos, sin, num_heads, rotary_embedding_dim, interleaved)


@op(domain="com.microsoft")
def MRotaryEmbedding(
    xp: Backend,
    input: Array,
    position_ids: Array,
    cos_cache: Array,
    sin_cache: Array,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    mrope_layout: int = 0,
    mrope_section: Ints,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Array:
    """Rotate each pair by a time, a height or a width: the positions are in this order."""
    require_shape("position_ids", position_ids, (3, *_tokens(input)))
    xp.require(position_ids, Within("position_ids", 0, cos_cache.shape[0] - 1))
    coordinates = _coordinates(mrope_section, mrope_layout, cos_cache.shape[-1])
    require_shape("sin_cache", sin_cache, cos_cache.shape)
    column = xp.asarray(coordinates, dtype=position_ids.dtype)

    def angles(cache: Array) -> Array:
        time, height, width = (_rows(xp, cache, position_ids[i, ...]) for i in range(3))
        rows = xp.where(xp.equal(column, 1), height, xp.where(xp.equal(column, 2), width, time))
        return rows if scale == 1 else rows * scale

    cos, sin = angles(cos_cache), angles(sin_cache)
    return rotated(xp, input, cos, sin, num_heads, rotary_embedding_dim, interleaved)


@op(domain="com.microsoft")
def GemmaRotaryEmbedding(
    xp: Backend, emb: Array, q: Array, q_rot: Array, k: Array, k_rot: Array
) -> tuple[Array, Array]:
    """Return `q * cos + q_rot * sin`, and the same of `k`: the angles are those of each token."""
    for name, x in {"q": q, "q_rot": q_rot, "k": k, "k_rot": k_rot}.items():
        if x.ndim != 4 or (x.shape[0], *x.shape[2:]) != emb.shape:
            raise ValueError(
                f"{name} has shape {x.shape}, but must have (batch, heads, length, size) with the "
                f"batch, length and size {emb.shape} of emb"
            )
    require_shape("q_rot", q_rot, q.shape)
    require_shape("k_rot", k_rot, k.shape)
    angles = xp.expand_dims(emb, axis=1)
    cos, sin = (xp.astype(f(angles), q.dtype) for f in (xp.cos, xp.sin))
    return q * cos + q_rot * sin, k * cos + k_rot * sin


def rotated(
    xp: Backend,
    x: Array,
    cos: Array,
    sin: Array,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    interleaved: int = 0,
) -> Array:
    """Rotate the start of each head, by one row of cosines and of sines per token.

    Without a number of elements to rotate, it is twice the length of a row; so is the size of a
    head, where the heads are not an axis of their own.
    """
    size = 2 * cos.shape[-1]
    if rotary_embedding_dim and x.ndim == 3 and not num_heads:
        raise ValueError("rotary_embedding_dim needs the attribute num_heads; add it")
    if not num_heads and x.ndim == 3:
        num_heads = x.shape[2] // max(size, 1)
    return attention.RotaryEmbedding(
        xp,
        x,
        cos,
        sin,
        interleaved=interleaved,
        num_heads=num_heads if x.ndim == 3 else None,
        rotary_embedding_dim=rotary_embedding_dim or size,
    )


def _tokens(x: Array) -> tuple[int, int]:
    """Return batch and length of (batch, length, hidden) or (batch, heads, length, size)."""
    if x.ndim not in (3, 4):
        raise ValueError(f"input has {x.ndim} axes, but needs three or four")
    return x.shape[0], x.shape[-2]


def _rows(xp: Backend, cache: Array, positions: Array) -> Array:
    if cache.ndim != 2:
        raise ValueError(f"a cache has {cache.ndim} axes, but needs two: position and angle")
    if not cache.shape[0] and positions.size:
        raise ValueError(f"a cache of shape {cache.shape} has no positions")
    return xp.gather(cache, [positions])


def _coordinates(sections: Ints, layout: int, columns: int) -> list[int]:
    """Return for each column of a cache the coordinate whose position selects the row: 0 to 2."""
    require_one_of("mrope_layout", layout, (0, 1))
    if len(sections) != 3 or min(sections) < 0 or sum(sections) != columns:
        raise ValueError(
            f"mrope_section is {list(sections)}, but must be three lengths that add up to the "
            f"{columns} columns of the caches"
        )
    if not layout:
        return [i for i, section in enumerate(sections) for _ in range(section)]
    chosen = [0] * columns
    for i in (1, 2):
        for column in range(i, min(3 * sections[i], columns), 3):
            chosen[column] = i
    return chosen
