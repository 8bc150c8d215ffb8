"""Attention to some blocks of the keys, as Phi-3-small has it."""

from __future__ import annotations

import math

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import Within
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import Outputs, op
from sardonyx.ops.dtypes import FLOAT32
from sardonyx.ops.microsoft.group_query_attention import GroupQueryAttention


@op(domain="com.microsoft")
def SparseAttention(
    xp: Backend,
    query: Array,
    key: Array | None,
    value: Array | None,
    past_key: Array,
    past_value: Array,
    block_row_indices: Array,
    block_col_indices: Array,
    total_sequence_length: int,
    key_total_sequence_lengths: Array,
    cos_cache: Array | None = None,
    sin_cache: Array | None = None,
    *,
    do_rotary: int = 0,
    kv_num_heads: int,
    num_heads: int,
    rotary_interleaved: int = 0,
    scale: float = 0.0,
    sparse_block_size: int,
) -> tuple[Array, Array, Array]:
    """Attend as GroupQueryAttention does, with the keys of all other blocks masked."""
    total, length = total_sequence_length, query.shape[1]
    lengths = key_total_sequence_lengths
    layouts = _layouts(xp, block_row_indices, block_col_indices)
    count, blocks = layouts.shape[:2]
    if not count or num_heads % count:
        raise ValueError(f"{count} layouts of blocks do not divide {num_heads} heads")
    if sparse_block_size < 1 or total > blocks * sparse_block_size:
        raise ValueError(
            f"{blocks} blocks of {sparse_block_size} tokens are too few for total_sequence_length "
            f"{total}"
        )
    start = xp.zeros_like(lengths) if length == total else lengths - length
    xp.require(lengths, Within("key_total_sequence_lengths", 1, total))
    sparse_block_size = min(sparse_block_size, max(total, 1))
    place = xp.reshape(start, (-1, 1)) + xp.arange(length, dtype=lengths.dtype)
    rows = xp.minimum(place // sparse_block_size, blocks - 1)
    # (batch, queries, layouts, blocks of keys), and then the keys of these blocks by head.
    seen = xp.gather(xp.permute_dims(layouts, (1, 0, 2)), [rows])
    seen = xp.take(seen, xp.arange(total) // sparse_block_size, axis=3)
    seen = xp.take(seen, xp.arange(num_heads) % count, axis=2)
    zero, hidden = (xp.asarray(number, dtype=query.dtype) for number in (0.0, -math.inf))
    bias = xp.where(xp.permute_dims(seen, (0, 2, 1, 3)), zero, hidden)
    y, present_key, present_value = GroupQueryAttention(
        xp,
        *(query, key, value, past_key, past_value, lengths - 1, total),
        *(cos_cache, sin_cache, None, bias),
        do_rotary=do_rotary,
        kv_num_heads=kv_num_heads,
        num_heads=num_heads,
        outputs=Outputs(3),
        rotary_interleaved=rotary_interleaved,
        scale=scale,
    )
    return y, present_key, present_value


def _layouts(xp: Backend, rows: Array, columns: Array) -> Array:
    """Return (layouts, blocks of queries, blocks of keys) from the lists of the blocks in use."""
    if rows.ndim != 2 or columns.ndim != 2 or rows.shape[0] != columns.shape[0]:
        raise ValueError(
            f"block_row_indices and block_col_indices have shapes {rows.shape} and "
            f"{columns.shape}, but need two axes and the same number of layouts"
        )
    wide = xp.dtype(FLOAT32)
    entry = xp.arange(columns.shape[1], dtype=rows.dtype)
    in_row = (entry >= rows[:, :-1, None]) & (entry < rows[:, 1:, None])
    in_column = xp.equal(columns[:, :, None], xp.arange(rows.shape[1] - 1, dtype=columns.dtype))
    return xp.matmul(xp.astype(in_row, wide), xp.astype(in_column, wide)) > 0
