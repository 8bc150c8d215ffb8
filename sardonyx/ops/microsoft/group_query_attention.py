"""Attention whose heads of queries share heads of keys, with a cache of past keys and values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import NamedTuple

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import Within
from sardonyx.backends.operations.scores import Mask, Reach, Scoring, Tile
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import require_broadcasts, require_shape
from sardonyx.ops.definition import Outputs, op
from sardonyx.ops.dtypes import INT32
from sardonyx.ops.microsoft.attention import by_head, joined_heads
from sardonyx.ops.microsoft.kv_cache import lengthened, written
from sardonyx.ops.microsoft.quantized_cache import CacheFormat, cache_shape
from sardonyx.ops.microsoft.rotary import rotated
from sardonyx.ops.microsoft.sink_softmax import capped_scores, scale_of, sink_scores, weights_beside
from sardonyx.ops.microsoft.sliding_cache import SlidingCache, columns_from
from sardonyx.ops.normalization import RMSNormalization
from sardonyx.ops.options import require_one_of
from sardonyx.ops.precision import wide

# Values, the caches of keys and values, and the weights or scores.
ALL_OUTPUTS = Outputs(4)


@op(domain="com.microsoft")
def GroupQueryAttention(
    xp: Backend,
    query: Array,
    key: Array | None,
    value: Array | None,
    past_key: Array | None,
    past_value: Array | None,
    seqlens_k: Array,
    total_sequence_length: int,
    cos_cache: Array | None = None,
    sin_cache: Array | None = None,
    position_ids: Array | None = None,
    attention_bias: Array | None = None,
    head_sink: Array | None = None,
    k_scale: Array | None = None,
    v_scale: Array | None = None,
    q_norm_weight: Array | None = None,
    k_norm_weight: Array | None = None,
    *,
    causal: int = 1,
    do_rotary: int = 0,
    k_quant_type: str = "NONE",
    kv_cache_bit_width: int = 0,
    kv_num_heads: int,
    local_window_size: int = -1,
    num_heads: int,
    outputs: Outputs = ALL_OUTPUTS,
    qk_norm_epsilon: float = 1e-6,
    qk_output: int = 0,
    rotary_interleaved: int = 0,
    scale: float = 0.0,
    sliding_window_cache: int = 0,
    smooth_softmax: int = -1,
    softcap: float = 0.0,
    v_quant_type: str = "NONE",
) -> tuple[Array, ...]:
    """Write the new keys and values to the cache, and attend to as many rows as a sample has.

    Rows of the cache beyond those are zeros. A prompt, as long as the whole sequence, starts at the
    first row, even if the lengths differ by sample; other tokens are the last of their sample.
    """
    require_one_of("qk_output", qk_output, (0, 1, 2))
    q, k, v = _by_head(xp, query, key, value, num_heads, kv_num_heads)
    if q_norm_weight is not None and k_norm_weight is not None:
        q = RMSNormalization(xp, q, q_norm_weight, epsilon=qk_norm_epsilon)
        k = RMSNormalization(xp, k, k_norm_weight, epsilon=qk_norm_epsilon)
    bits = kv_cache_bit_width
    k_format = CacheFormat.of(xp, "k", k_quant_type, bits, k_scale, past_key, k)
    v_format = CacheFormat.of(xp, "v", v_quant_type, bits, v_scale, past_value, v)
    shapes = (cache_shape(k_format, k.shape), cache_shape(v_format, v.shape))
    total, length, room = total_sequence_length, q.shape[2], _room(past_key, past_value, *shapes)
    if total < max(length, 1) or (not k.shape[2] and total > room):
        raise ValueError(f"total_sequence_length is {total}, too small or large for the inputs")
    sliding = SlidingCache.of(past_key, local_window_size) if sliding_window_cache else None
    if sliding is not None and (qk_output or not k.shape[2]):
        raise ValueError("sliding_window_cache needs new keys, and qk_output of 0")
    is_prompt = length == total
    least = 0 if is_prompt and sliding is None else length - 1
    lengths = _lengths(xp, seqlens_k, q.shape[0], least, total - 1)
    start = lengths * 0 if is_prompt or past_key is None else lengths - length
    counts = Counts(start, lengths, total)
    if do_rotary:
        places = _places(xp, position_ids, start, length, is_prompt)
        cos, sin = _angles(xp, cos_cache, sin_cache, places, position_ids, total)
        q = rotated(xp, q, cos, sin, interleaved=rotary_interleaved)
        k = rotated(xp, k, cos, sin, interleaved=rotary_interleaved) if k.shape[2] else k
    caches = (
        _cached(xp, past, new, counts, sliding, form, is_prompt=is_prompt)
        for past, new, form in ((past_key, k, k_format), (past_value, v, v_format))
    )
    (keys, present_key), (values, present_value) = caches
    first = start * 0 if sliding is None else sliding.first_positions(xp, start)
    if attention_bias is not None:
        shape = (*q.shape[:3], keys.shape[2])
        if sliding is None:
            require_broadcasts("attention_bias", attention_bias, shape)
        else:
            attention_bias = columns_from(xp, attention_bias, first, shape, total)
        attention_bias = wide(xp, attention_bias)
    window = local_window_size if local_window_size < keys.shape[2] else -1
    reach = None
    if sliding is None and attention_bias is None and window < 0:
        starts_first = is_prompt or past_key is None
        reach = Reach(bool(causal), counts.lengths) if starts_first or not causal else None
    weighing = _Weighing(
        scale_of(q, scale),
        max(softcap, 0.0),
        attention_bias,
        sink_scores(xp, head_sink, num_heads, smooth_softmax),
        partial(_seen, xp, counts, first, window=window, is_causal=bool(causal)),
        reach,
    )
    shows = qk_output if outputs == ALL_OUTPUTS else None
    y, *shown = _attended(xp, q, keys, values, weighing, shows)
    return (joined_heads(xp, y), present_key, present_value, *shown)


# -- inputs ---------------------------------------------------------------------------------------


def _by_head(
    xp: Backend,
    query: Array,
    key: Array | None,
    value: Array | None,
    num_heads: int,
    kv_num_heads: int,
) -> tuple[Array, Array, Array]:
    if kv_num_heads < 1 or num_heads % kv_num_heads:
        raise ValueError(f"num_heads is {num_heads}, no multiple of kv_num_heads {kv_num_heads}")
    if (key is None) != (value is None):
        raise ValueError("key and value go together; one of them is missing")
    if key is None or value is None:
        x = by_head(xp, query, num_heads + 2 * kv_num_heads)
        end = num_heads + kv_num_heads
        return x[:, :num_heads, ...], x[:, num_heads:end, ...], x[:, end:, ...]
    q, k, v = by_head(xp, query, num_heads), *(by_head(xp, x, kv_num_heads) for x in (key, value))
    if k.shape != v.shape or (k.shape[0], k.shape[3]) != (q.shape[0], q.shape[3]):
        raise ValueError(
            f"key and value have shapes {key.shape} and {value.shape}, which must be equal and fit "
            f"{kv_num_heads} heads of the size of {num_heads} heads of {query.shape}"
        )
    if k.shape[2] not in (0, q.shape[2]):
        raise ValueError(f"key has {k.shape[2]} tokens, but query has {q.shape[2]}")
    return q, k, v


def _room(
    past_key: Array | None,
    past_value: Array | None,
    key_shape: tuple[int, ...],
    value_shape: tuple[int, ...],
) -> int:
    """Return the number of rows of the past, for new rows of these shapes."""
    if past_key is None or past_value is None:
        if past_key is not past_value:
            raise ValueError("past_key and past_value go together; one of them is missing")
        return 0
    for name, past, shape in (
        ("past_key", past_key, key_shape),
        ("past_value", past_value, value_shape),
    ):
        batch, heads, _, size = shape
        if past.ndim != 4 or (*past.shape[:2], past.shape[3]) != (batch, heads, size):
            raise ValueError(
                f"{name} has shape {past.shape}, but must have ({batch}, {heads}, length, {size})"
            )
    require_shape("past_value", past_value, past_key.shape)
    return past_key.shape[2]


def _lengths(xp: Backend, seqlens_k: Array, batch: int, least: int, most: int) -> Array:
    """Return the number of keys of each sample, its new ones included."""
    if seqlens_k.size != batch:
        raise ValueError(f"seqlens_k has shape {seqlens_k.shape}, but must have ({batch},)")
    xp.require(seqlens_k, Within("seqlens_k", least, most))
    return xp.reshape(seqlens_k, (batch,)) + 1


def _angles(
    xp: Backend,
    cos_cache: Array | None,
    sin_cache: Array | None,
    places: Array,
    position_ids: Array | None,
    total: int,
) -> tuple[Array, Array]:
    """Return the cosines and sines of places, which are rows of their caches."""
    if cos_cache is None or sin_cache is None:
        raise ValueError("do_rotary needs the inputs cos_cache and sin_cache")
    if cos_cache.ndim != 2:
        raise ValueError(f"cos_cache has shape {cos_cache.shape}, but needs (positions, angles)")
    require_shape("sin_cache", sin_cache, cos_cache.shape)
    rows = cos_cache.shape[0]
    if position_ids is not None:
        xp.require(position_ids, Within("position_ids", 0, rows - 1))
    elif rows < total:
        raise ValueError(f"cos_cache has {rows} positions, but the sequence has {total}")
    return xp.gather(cos_cache, [places]), xp.gather(sin_cache, [places])


def _places(
    xp: Backend, position_ids: Array | None, start: Array, length: int, is_prompt: bool
) -> Array:
    """Return the position of each new token; a prompt has only the first of them in its ids."""
    if position_ids is None:
        return xp.reshape(start, (-1, 1)) + xp.arange(length, dtype=start.dtype)
    if not is_prompt:
        require_shape("position_ids", position_ids, (start.shape[0], length))
        return position_ids
    first = xp.reshape(position_ids, (-1,))[:1]
    places = xp.reshape(first + xp.arange(length, dtype=first.dtype), (1, -1))
    return xp.broadcast_to(places, (start.shape[0], length))


class Counts(NamedTuple):
    """The numbers of tokens: of each sample before this call and after it, and of the longest."""

    start: Array
    lengths: Array
    total: int


def _cached(
    xp: Backend,
    past: Array | None,
    new: Array,
    counts: Counts,
    sliding: SlidingCache | None,
    form: CacheFormat | None,
    *,
    is_prompt: bool,
) -> tuple[Array, Array]:
    """Return the rows that the queries look at, and the cache for the next call."""
    if form is not None:
        stored = form.stored(xp, new)
        rows, present = _cached(xp, past, stored, counts, sliding, None, is_prompt=is_prompt)
        return form.loaded(xp, rows, new), present
    if sliding is not None and past is not None:
        staged = new if is_prompt else sliding.staged(xp, past, new, counts.start)
        return staged, sliding.present(xp, staged, counts.start, counts.lengths)
    size = max(counts.total, 0 if past is None else past.shape[2])
    if not new.shape[2] and past is not None:
        present = past
    elif past is None or is_prompt:
        present = lengthened(xp, new, size)
    else:
        present = written(xp, lengthened(xp, past, size), new, counts.start, clears=True)
    return present[:, :, : counts.total, :], present


# -- scores ---------------------------------------------------------------------------------------


class _Weighing(NamedTuple):
    """How the queries weigh the keys that they see."""

    scale: float
    softcap: float
    bias: Array | None
    sink: Array | None
    seen: Callable[[Tile], Array]
    reach: Reach | None

    def mask(self, tile: Tile) -> Mask:
        return Mask(None if self.bias is None else tile.cut(self.bias), self.seen(tile))


def _attended(
    xp: Backend, q: Array, keys: Array, values: Array, weighing: _Weighing, shows: int | None
) -> tuple[Array, ...]:
    """Return the values that each query reads, and the weights, or the scores if `shows` is 1."""

    def general(q: Array, keys: Array, values: Array) -> tuple[Array, Array]:
        seen = weighing.seen(_whole(xp, q.shape[2], keys.shape[2]))
        scores = capped_scores(xp, q, keys, weighing.scale, weighing.softcap)
        scores = scores if weighing.bias is None else scores + weighing.bias
        weights = xp.astype(weights_beside(xp, scores, seen, weighing.sink), q.dtype)
        shown = weights
        if shows == 1:
            shown = xp.astype(xp.where(seen, scores, xp.zeros_like(scores)), q.dtype)
        return xp.attention_mix(weights, values), shown

    if shows is not None:
        return general(q, keys, values)
    scoring = Scoring(
        weighing.scale, weighing.softcap, weighing.mask, weighing.sink, reach=weighing.reach
    )
    return (xp.attention_like(lambda *x: general(*x)[0], q, keys, values, scoring),)


def _whole(xp: Backend, queries: int, keys: int) -> Tile:
    """Return the tile of all scores."""
    dtype = xp.dtype(INT32)
    rows = xp.reshape(xp.arange(queries, dtype=dtype), (-1, 1))
    return Tile(rows, xp.arange(keys, dtype=dtype), lambda array: array)


def _seen(
    xp: Backend, counts: Counts, first: Array, tile: Tile, *, window: int, is_causal: bool
) -> Array:
    """Return which keys each query sees: the padding after a short prompt sees the whole prompt.

    The first key of each sample is at the position `first`, and the others follow it.
    """
    by_sample = (-1, 1, 1, 1)
    place = xp.reshape(first, by_sample) + tile.keys
    end = xp.reshape(counts.lengths, by_sample)
    if is_causal:
        end = xp.minimum(end, xp.reshape(counts.start, by_sample) + tile.queries + 1)
    seen = [place < end]
    if window >= 0:
        seen.append(place >= end - window)
    return reduce(xp.logical_and, seen)
