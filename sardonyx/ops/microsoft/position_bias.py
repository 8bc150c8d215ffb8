"""Numbers to add to the scores of attention that depend on the distance of query and key."""

from __future__ import annotations

import math

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import require_broadcasts, require_shape
from sardonyx.ops.definition import Host, op
from sardonyx.ops.dtypes import FLOAT32
from sardonyx.ops.microsoft.attention import by_head
from sardonyx.ops.microsoft.packed_attention import RestorePadding


@op(domain="com.microsoft")
def RelativePositionBias(
    xp: Backend,
    bias_table: Array,
    query_length: int,
    key_length: int,
    *,
    is_bidirectional: int = 0,
    max_distance: int,
) -> Array:
    """Look up the bias of T5: near distances have a bucket each, far ones share a bucket.

    The table is (buckets, heads) by its shape, but its elements are in the order of columns.
    """
    if bias_table.ndim != 2:
        raise ValueError(f"bias_table has {bias_table.ndim} axes, but needs (buckets, heads)")
    if query_length < 0 or key_length < 0:
        raise ValueError(f"query_length {query_length} and key_length {key_length} must be counts")
    buckets, heads = bias_table.shape
    # The buckets are computed in eight bytes.
    xp.allow((query_length, key_length, max(heads, 1)), np.dtype(np.int64), copies=4)
    by_place = _buckets(query_length, key_length, buckets, max_distance, bool(is_bidirectional))
    table = xp.permute_dims(xp.reshape(bias_table, (heads, buckets)), (1, 0))
    chosen = xp.take(table, xp.asarray(by_place.reshape(-1)), axis=0)
    chosen = xp.reshape(chosen, (query_length, key_length, heads))
    return xp.expand_dims(xp.permute_dims(chosen, (2, 0, 1)), axis=0)


@op(domain="com.microsoft")
def GatedRelativePositionBias(
    xp: Backend,
    query_layer: Array,
    query_bias: Array,
    rel_pos: Array,
    weight: Array,
    bias: Array,
    eco_a: Array,
    token_offset: Array | None = None,
    *,
    num_heads: int,
) -> Array:
    """Multiply `rel_pos` by a gate of each query, the mean of two sigmoids' interplay in WavLM."""
    x = query_layer if token_offset is None else RestorePadding(xp, query_layer, token_offset)
    require_shape("query_bias", query_bias, x.shape[-1:])
    q = by_head(xp, x + query_bias, num_heads)
    if weight.ndim != 2 or weight.shape[0] != q.shape[3] or weight.shape[1] % 2:
        raise ValueError(f"weight has shape {weight.shape}, but must have ({q.shape[3]}, even)")
    require_shape("bias", bias, weight.shape[1:])
    batch, heads, length, _ = q.shape
    require_broadcasts("rel_pos", rel_pos, (batch, heads, length, length))
    require_broadcasts("eco_a", eco_a, (batch, heads, length, 1))
    gates = xp.matmul(q, weight) + bias
    halves = xp.reshape(gates, (*gates.shape[:3], 2, gates.shape[3] // 2))
    sums = xp.sum(halves, axis=-1)
    update, reset = (1 / (1 + xp.exp(-sums[..., i : i + 1])) for i in range(2))
    return (update * (reset * eco_a - 1.0) + 2.0) * rel_pos


def _buckets(
    queries: int, keys: int, count: int, max_distance: int, is_bidirectional: bool
) -> Host:
    """Return the bucket of each query and key: linear up to half of them, logarithmic beyond."""
    distance = np.arange(keys) - np.arange(queries)[:, None]
    first: Host | int = 0
    if is_bidirectional:
        count //= 2
        first = np.where(distance > 0, count, 0)
        distance = np.abs(distance)
    else:
        distance = np.maximum(-distance, 0)
    exact = count // 2
    if exact < 1 or max_distance <= exact:
        raise ValueError(f"{count} buckets and max_distance {max_distance} are too few")
    ratio = np.maximum(distance, 1).astype(FLOAT32) / np.float32(exact)
    far = np.log(ratio) / np.float32(math.log(max_distance / exact)) * np.float32(count - exact)
    far = np.minimum(exact + far.astype(np.int64), count - 1)
    return np.asarray(first + np.where(distance < exact, distance, far))
