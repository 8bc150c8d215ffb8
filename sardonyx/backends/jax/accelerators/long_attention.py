"""Attention block by block, so that memory never holds the scores of all queries and keys."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from sardonyx.backends.jax import shard_map
from sardonyx.backends.jax.accelerators.scores import (
    Products,
    divisor_of,
    mask_of,
    masked,
    scaled_scores,
    shift_of,
    tile_at,
)
from sardonyx.backends.jax.accelerators.softmax import below_top
from sardonyx.backends.operations.scores import Scoring

# Scores of one block, of all samples and heads together.
BLOCK_SCORES = 2**25
MOST_QUERIES = 1024
LEAST_KEYS, MOST_KEYS = 128, 1024


class _Mixed(NamedTuple):
    """The values of the keys so far, by weights relative to that of the greatest score."""

    top: Any
    total: Any
    values: Any


class _Attention(NamedTuple):
    """All arrays, and what is done with them."""

    q: Any
    k: Any
    v: Any
    scoring: Scoring
    products: Products
    # Sizes of a block.
    queries: int
    keys: int


def attended_in_blocks(q: Any, k: Any, v: Any, scoring: Scoring, products: Products) -> Any:
    """Attention of each block of queries to one block of keys after another.

    Gradients compute the scores of each block anew.
    """
    queries, keys = block_sizes(q.shape, k.shape[2])
    attention = _Attention(q, k, v, scoring, products, queries, keys)
    of_block = jax.checkpoint(partial(_of_queries, attention))
    mixed = lax.map(of_block, _starts(q.shape[2], queries))
    *_, last = starts = range(0, q.shape[2], queries)
    before = jnp.reshape(jnp.moveaxis(mixed[:-1], 0, 2), (*q.shape[:2], last, v.shape[3]))
    # The last block ends where the queries do, and begins with some of the block before it.
    rest = mixed[len(starts) - 1, :, :, queries - (q.shape[2] - last) :, :]
    return jnp.concat([before, rest], axis=2).astype(q.dtype)


def block_sizes(queries: tuple[int, ...], keys: int) -> tuple[int, int]:
    """Return how many queries and keys a block has, of queries of this shape and so many keys."""
    together, length = math.prod(queries[:2]), queries[2]
    rows = min(length, MOST_QUERIES)
    columns = min(keys, max(BLOCK_SCORES // (together * rows), LEAST_KEYS), MOST_KEYS)
    rows = min(rows, max(BLOCK_SCORES // (together * columns), 1))
    return rows, columns


def _starts(size: int, block: int) -> Any:
    return jnp.arange(-(-size // block), dtype=jnp.int32) * block


def _of_queries(attention: _Attention, begin: Any) -> Any:
    """Return the values for the block of queries that begins at this place, in float32."""
    q, size = attention.q, attention.queries
    row = jnp.minimum(begin, q.shape[2] - size)
    q = lax.dynamic_slice_in_dim(q, row, size, axis=2)
    step = jax.checkpoint(partial(_with_keys, attention, q, row))
    starts = _starts(attention.k.shape[2], attention.keys)
    nothing = _before_all_keys(attention, q)
    if shard_map.is_manual():
        nothing = _Mixed(*shard_map.settled(lambda *c: step(_Mixed(*c), starts[0])[0], nothing))
    mixed, _ = lax.scan(step, nothing, starts)
    return mixed.values / divisor_of(mixed.total, attention.scoring)


def _before_all_keys(attention: _Attention, q: Any) -> _Mixed:
    sink: Any = attention.scoring.sink
    top = jnp.full((*q.shape[:3], 1), -jnp.inf, jnp.float32)
    if sink is not None:
        top = jnp.broadcast_to(sink, top.shape)
    values = jnp.zeros((*q.shape[:3], attention.v.shape[3]), jnp.float32)
    total = jnp.exp(below_top(top, shift_of(top)))
    return _Mixed(lax.stop_gradient(top), total, values)


def _with_keys(
    attention: _Attention, q: Any, row: Any, mixed: _Mixed, begin: Any
) -> tuple[_Mixed, None]:
    """Add the block of keys that begins at this place to what the queries have so far."""
    size, whole = attention.keys, attention.k.shape[2]
    column = jnp.minimum(begin, whole - size)
    k, v = (lax.dynamic_slice_in_dim(x, column, size, axis=2) for x in attention[1:3])
    tile = tile_at(row, q.shape[2], column, size, _cut(row, q.shape[2], column, size))
    scores = scaled_scores(q, k, attention.scoring, attention.products)
    scores = masked(scores, mask_of(attention.scoring, tile))
    if whole % size:
        # The last block ends where the keys do; its first keys were in the block before it.
        scores = jnp.where(tile.keys >= begin, scores, jnp.float32(-jnp.inf))
    # Results do not depend on it, so gradients pass it by.
    top = jnp.maximum(mixed.top, lax.stop_gradient(jnp.max(scores, axis=-1, keepdims=True)))
    shift = shift_of(top)
    weights, rest = jnp.exp(below_top(scores, shift)), jnp.exp(below_top(mixed.top, shift))
    total = mixed.total * rest + jnp.sum(weights, axis=-1, keepdims=True)
    values = mixed.values * rest + attention.products.mixed(weights, v)
    return _Mixed(top, total, values), None


def _cut(row: Any, rows: int, column: Any, columns: int) -> Any:
    """Return the function that cuts an array which broadcasts to all scores."""

    def cut(array: Any) -> Any:
        for axis, start, size in ((-2, row, rows), (-1, column, columns)):
            if array.ndim >= -axis and array.shape[axis] > 1:
                array = lax.dynamic_slice_in_dim(array, start, size, axis=array.ndim + axis)
        return array

    return cut
