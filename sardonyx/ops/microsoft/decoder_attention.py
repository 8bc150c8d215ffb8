"""Attention of com.microsoft in decoders that generate one token after the other."""

from __future__ import annotations

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import op
from sardonyx.ops.dtypes import INT32
from sardonyx.ops.linalg import require_factors
from sardonyx.ops.microsoft.attention import attended, by_head, projected, require_state, turned
from sardonyx.ops.microsoft.multi_head_attention import biased_by_head


@op(domain="com.microsoft")
def DecoderMaskedMultiHeadAttention(
    xp: Backend,
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    mask_index: Array | None = None,
    attention_bias: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    past_sequence_length: Array | None = None,
    beam_width: Array | None = None,
    cache_indirection: Array | None = None,
    bias: Array | None = None,
    *,
    mask_filter_value: float = -10000.0,
    num_heads: int,
    output_qk: int = 0,
    past_present_share_buffer: int = 0,
    scale: float = 0.0,
) -> tuple[Array, Array, Array, Array]:
    """Attend as MultiHeadAttention does; a query alone has keys and values joined to it.

    The shape of `cache_indirection` says how many beams there are. Keys in a buffer are in plain
    order, as onnxruntime's CPU kernel has them.
    """
    _require_one_token(query)
    if (past_key is None) != (past_value is None):
        raise ValueError("past_key and past_value go together; one of them is missing")
    if past_present_share_buffer and past_key is not None and past_sequence_length is None:
        raise ValueError("a shared buffer needs the input past_sequence_length; add it")
    if key is None and value is None and query.ndim == 3:
        size = query.shape[2] // 3 if past_key is None else past_key.shape[3] * num_heads
        query, key, value = (
            query[..., :size],
            query[..., size : 2 * size],
            query[..., 2 * size :],
        )
    y, keys, values, scores = attended(
        xp,
        biased_by_head(xp, query, key, value, bias, num_heads),
        (past_key, past_value, past_sequence_length if past_present_share_buffer else None),
        (mask_index, attention_bias, mask_filter_value),
        beams=cache_indirection,
        is_causal=0,
        scale=scale,
        shows_scores=True,
    )
    assert scores is not None
    return y, keys, values, scores


@op(domain="com.microsoft")
def DecoderMaskedSelfAttention(
    xp: Backend,
    input: Array,
    weights: Array,
    bias: Array,
    mask_index: Array | None,
    past: Array,
    attention_bias: Array | None,
    past_sequence_length: Array,
    beam_width: Array | None = None,
    cache_indirection: Array | None = None,
    *,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    num_heads: int,
    past_present_share_buffer: int = 0,
    scale: float = 0.0,
) -> tuple[Array, Array]:
    """Attend as Attention does, to a state in which the elements of shared keys are reordered."""
    _require_one_token(input)
    q, k, v = projected(xp, input, weights, bias, num_heads, ())
    require_state(past, k, v)
    is_shared = bool(past_present_share_buffer)
    if do_rotary:
        first = past_sequence_length if is_shared else past.shape[3]
        q, k = (turned(xp, x, first, 0) for x in (q, k))
    keys = _in_order(xp, past[0, ...]) if is_shared else past[0, ...]
    y, key, value, _ = attended(
        xp,
        (q, k, v),
        (keys, past[1, ...], past_sequence_length if is_shared else None),
        (mask_index, attention_bias, mask_filter_value),
        beams=cache_indirection,
        is_causal=0,
        scale=scale,
    )
    return y, xp.stack([_reordered(xp, key) if is_shared else key, value])


def _require_one_token(x: Array) -> None:
    if x.ndim != 3 or x.shape[1] != 1:
        raise ValueError(f"an input of shape {x.shape} must have (batch, 1, hidden): one token")


def _reordered(xp: Backend, keys: Array) -> Array:
    """Return the keys with pieces of 16 bytes as the last axis and the tokens before them."""
    batch, heads, length, size = keys.shape
    piece = _piece(xp, keys)
    parts = xp.reshape(keys, (batch, heads, length, size // piece, piece))
    return xp.reshape(xp.permute_dims(parts, (0, 1, 3, 2, 4)), keys.shape)


def _in_order(xp: Backend, keys: Array) -> Array:
    """Undo `_reordered`."""
    batch, heads, length, size = keys.shape
    piece = _piece(xp, keys)
    parts = xp.reshape(keys, (batch, heads, size // piece, length, piece))
    return xp.reshape(xp.permute_dims(parts, (0, 1, 3, 2, 4)), keys.shape)


def _piece(xp: Backend, keys: Array) -> int:
    piece = 16 // xp.numpy_dtype(keys.dtype).itemsize
    if keys.shape[3] % piece:
        raise ValueError(f"heads of size {keys.shape[3]} have no pieces of {piece} elements")
    return piece


@op(domain="com.microsoft")
def DecoderAttention(
    xp: Backend,
    query: Array,
    key: Array,
    q_weight: Array,
    kv_weight: Array,
    bias: Array,
    key_padding_mask: Array | None,
    key_cache: Array | None,
    value_cache: Array | None,
    static_kv: bool,
    use_past: bool,
    has_layer_state: bool,
    has_key_padding_mask: bool,
    *,
    mask_filter_value: float = -10000.0,
    num_heads: int,
) -> tuple[Array, Array, Array]:
    """Attend to an encoder if `static_kv`, else to the query's own tokens; length is first.

    With a state that is used, an encoder's keys and values are the caches, and own ones follow
    them.
    """
    has_past = use_past and has_layer_state
    if has_past and (key_cache is None or value_cache is None):
        raise ValueError("use_past needs the inputs key_cache and value_cache")
    if query.ndim != 3 or key.ndim != 3 or q_weight.ndim != 2:
        raise ValueError("query and key need (length, batch, hidden), and q_weight two axes")
    require_factors(query, q_weight)
    hidden = q_weight.shape[1]
    require_shape("kv_weight", kv_weight, (key.shape[2], 2 * hidden))
    require_shape("bias", bias, (3 * hidden,))
    q = _first_by_head(xp, xp.matmul(query, q_weight) + bias[:hidden], num_heads)
    past: tuple[Array | None, Array | None, None] = (None, None, None)
    if has_past and static_kv and key_cache is not None and value_cache is not None:
        k, v = key_cache, value_cache
    else:
        source = key if static_kv else query
        require_factors(source, kv_weight)
        kv = xp.matmul(source, kv_weight) + bias[hidden:]
        k, v = (_first_by_head(xp, x, num_heads) for x in (kv[..., :hidden], kv[..., hidden:]))
        past = (key_cache, value_cache, None) if has_past else past
    mask = None
    if has_key_padding_mask and key_padding_mask is not None:
        mask = xp.astype(xp.logical_not(key_padding_mask), xp.dtype(INT32))
    y, keys, values, _ = attended(
        xp, (q, k, v), past, (mask, None, mask_filter_value), is_causal=0, scale=0.0
    )
    return xp.permute_dims(y, (1, 0, 2)), keys, values


def _first_by_head(xp: Backend, x: Array, num_heads: int) -> Array:
    """Return (batch, heads, length, size) for (length, batch, hidden)."""
    return by_head(xp, xp.permute_dims(x, (1, 0, 2)), num_heads)
