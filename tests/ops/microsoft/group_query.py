"""Inputs of GroupQueryAttention, and its results on a backend."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.ops.microsoft.group_query_attention import GroupQueryAttention

DOMAIN = "com.microsoft"
HEADS, KV_HEADS, SIZE = 4, 2, 16


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


ROTARY = (drawn(32, 8), drawn(32, 8, seed=1))


def inputs_of(
    queries: int,
    past: int | None,
    total: int,
    seqlens_k: Any,
    *others: Any,
    keys: int | None = None,
    is_packed: bool = False,
) -> list[Any]:
    """All inputs; `others` follow the caches of cosines and sines."""
    lengths = np.asarray(seqlens_k, np.int32)
    batch = lengths.shape[0]
    if is_packed:
        new: list[Any] = [drawn(batch, queries, (HEADS + 2 * KV_HEADS) * SIZE), None, None]
    else:
        tokens = queries if keys is None else keys
        kv = [drawn(batch, tokens, KV_HEADS * SIZE, seed=i) for i in (1, 2)]
        new = [drawn(batch, queries, HEADS * SIZE), *kv]
    cache = [None, None]
    if past is not None:
        cache = [drawn(batch, KV_HEADS, past, SIZE, seed=i) for i in (3, 4)]
    return [*new, *cache, lengths, np.asarray(total, np.int32), *ROTARY, *others]


def run(xp: Backend, inputs: list[Any], **attributes: Any) -> list[np.ndarray]:
    """Run the op compiled, with the total length as the number that it is at load."""
    total = int(inputs[6])
    arrays = [*inputs[:6], *inputs[7:]]
    with xp.scope(), np.errstate(all="ignore"):
        present = [xp.put(x) for x in arrays if x is not None]

        def replay(*arguments: Any) -> list[Any]:
            remaining = iter(arguments)
            each = [None if x is None else next(remaining) for x in arrays]
            options = {"num_heads": HEADS, "kv_num_heads": KV_HEADS, **attributes}
            return list(GroupQueryAttention(xp, *each[:6], total, *each[6:], **options))

        return [xp.fetch(x) for x in xp.compile(replay, present).run(*present)]
