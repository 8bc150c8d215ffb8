"""Quantized forms of attention and of the embeddings that come before it."""

from __future__ import annotations

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import Within
from sardonyx.backends.standard import Array
from sardonyx.ops import normalization
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import op
from sardonyx.ops.dtypes import INT32
from sardonyx.ops.microsoft.attention import attended, by_head
from sardonyx.ops.microsoft.quantized_products import MatMulIntegerToFloat
from sardonyx.ops.microsoft.quantized_values import dequantized

DOMAIN = "com.microsoft"


@op(domain=DOMAIN)
def QAttention(
    xp: Backend,
    input: Array,
    weight: Array,
    bias: Array,
    input_scale: Array,
    weight_scale: Array,
    mask_index: Array | None = None,
    input_zero_point: Array | None = None,
    weight_zero_point: Array | None = None,
    past: Array | None = None,
    *,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    num_heads: int,
    past_present_share_buffer: int = 0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[Array, Array]:
    """Multiply quantized input and weights to queries, keys and values, and attend in floats."""
    if do_rotary or past_present_share_buffer:
        raise ValueError("do_rotary and past_present_share_buffer must be 0: no kernel has them")
    if input.ndim != 3 or weight.ndim != 2 or weight.shape[1] % 3:
        raise ValueError(
            f"input has shape {input.shape} and weight {weight.shape}, but must have (batch, "
            "length, size) and (size, 3 * hidden size)"
        )
    scales, zeros = (input_scale, weight_scale), (input_zero_point, weight_zero_point)
    joined = MatMulIntegerToFloat(xp, input, weight, *scales, *zeros, bias)
    size = weight.shape[1] // 3
    parts = (joined[..., i * size : (i + 1) * size] for i in range(3))
    q, k, v = (by_head(xp, part, num_heads) for part in parts)
    if past is not None and (past.ndim != 5 or past.shape[0] != 2):
        raise ValueError(f"past has shape {past.shape}, but must join keys and values on axis 0")
    pair = (None, None) if past is None else (past[0, ...], past[1, ...])
    y, key, value, _ = attended(
        xp,
        (q, k, v),
        (*pair, None),
        (mask_index, None, mask_filter_value),
        is_causal=unidirectional,
        scale=scale,
    )
    return y, xp.stack([key, value])


@op(domain=DOMAIN)
def QEmbedLayerNormalization(
    xp: Backend,
    input_ids: Array,
    segment_ids: Array | None,
    word_embedding_quant: Array,
    position_embedding_quant: Array,
    segment_embedding: Array | None,
    gamma_quant: Array,
    beta_quant: Array,
    mask: Array | None,
    word_embedding_scale: Array,
    position_embedding_scale: Array,
    segment_embedding_scale: Array | None,
    gamma_scale: Array,
    beta_scale: Array,
    word_embedding_zero_point: Array,
    position_embedding_zero_point: Array,
    segment_embedding_zero_point: Array | None,
    gamma_zero_point: Array,
    beta_zero_point: Array,
    *,
    epsilon: float = 1e-12,
) -> tuple[Array, Array]:
    """Add embeddings of words, positions and segments; normalise; count the mask's ones."""
    if input_ids.ndim != 2:
        raise ValueError(f"input_ids has shape {input_ids.shape}, but must have two axes")
    batch, length = input_ids.shape
    words = _rows(xp, "input_ids", word_embedding_quant, input_ids)
    total = dequantized(xp, words, word_embedding_scale, word_embedding_zero_point)
    if position_embedding_quant.shape[0] < length:
        raise ValueError(
            f"there are {position_embedding_quant.shape[0]} embeddings of positions for "
            f"sequences of {length}"
        )
    places = position_embedding_quant[:length, ...]
    total = total + dequantized(xp, places, position_embedding_scale, position_embedding_zero_point)
    if segment_ids is not None and segment_embedding is not None:
        if segment_embedding_scale is None:
            raise ValueError("segment_embedding needs segment_embedding_scale; add this input")
        require_shape("segment_ids", segment_ids, (batch, length))
        segments = _rows(xp, "segment_ids", segment_embedding, segment_ids)
        total = total + dequantized(
            xp, segments, segment_embedding_scale, segment_embedding_zero_point
        )
    gamma = dequantized(xp, gamma_quant, gamma_scale, gamma_zero_point)
    beta = dequantized(xp, beta_quant, beta_scale, beta_zero_point)
    y, _, _ = normalization.LayerNormalization(xp, total, gamma, beta, epsilon=epsilon)
    int32 = xp.dtype(INT32)
    if mask is None:
        return y, xp.zeros((batch,), dtype=int32)
    require_shape("mask", mask, (batch, length))
    return y, xp.sum(xp.astype(xp.equal(mask, 1), int32), axis=1, dtype=int32)


def _rows(xp: Backend, name: str, table: Array, ids: Array) -> Array:
    """Return the rows of a table; each id must be one of them."""
    if table.ndim != 2 or (ids.size and not table.shape[0]):
        raise ValueError(f"a table of embeddings has shape {table.shape}, but needs rows")
    last = table.shape[0] - 1
    xp.require(ids, Within(name, 0, last))
    return xp.gather(table, [xp.minimum(xp.maximum(ids, 0), last)])
