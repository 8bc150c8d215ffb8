"""Scores of queries and keys, and values mixed by them, with sums in float32."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import lax

from sardonyx.backends.jax.accelerators.softmax import nonzero_total
from sardonyx.backends.jax.precision import multiplied, of_product
from sardonyx.backends.operations.scores import Mask, Scoring, Tile

# The last two axes of queries and keys are contracted, or those of weights and values.
_BY_HEAD = ((0, 1), (0, 1))


@dataclass(frozen=True)
class Products:
    """The two products of attention, of arrays of (batch, heads, length, size)."""

    precision: str | None

    def scores(self, q: Any, k: Any) -> Any:
        """Return how well queries and keys match; several heads of `q` may share one of `k`."""
        product = self._by_head(q, k, ((3,), (3,)))
        return jnp.reshape(product, (*q.shape[:3], k.shape[2]))

    def mixed(self, weights: Any, v: Any) -> Any:
        """Return the values, mixed for each query, in float32."""
        product = self._by_head(weights.astype(v.dtype), v, ((3,), (2,)))
        return jnp.reshape(product, (*weights.shape[:3], v.shape[3]))

    def _by_head(self, x: Any, shared: Any, contracted: Any) -> Any:
        heads = shared.shape[1]
        x = jnp.reshape(x, (x.shape[0], heads, x.shape[1] // heads * x.shape[2], x.shape[3]))
        x, shared, options = of_product(self.precision, x, shared)
        options["preferred_element_type"] = jnp.float32
        if x.dtype == jnp.bfloat16:
            # A product of two of them is exact in float32. libtpu fails at a higher precision
            # where it joins both products (0.0.52).
            options["precision"] = lax.Precision.DEFAULT
        by_head = partial(lax.dot_general, dimension_numbers=(contracted, _BY_HEAD))
        return multiplied(by_head, x, shared, **options)


def all_scores(q: Any, k: Any) -> Tile:
    """Return the tile of all queries and all keys."""
    return tile_at(0, q.shape[2], 0, k.shape[2], lambda array: array)


def tile_at(query: Any, queries: int, key: Any, keys: int, cut: Any) -> Tile:
    """Return the tile that begins at these places, which are 32-bit integers."""
    rows = jnp.arange(queries, dtype=jnp.int32)[:, None] + query
    return Tile(rows, jnp.arange(keys, dtype=jnp.int32) + key, cut)


def scaled(q: Any, scale: float) -> Any:
    """Return the queries times the scale, rounded once."""
    return (q.astype(jnp.float32) * jnp.float32(scale)).astype(q.dtype)


def scaled_scores(q: Any, k: Any, scoring: Scoring, products: Products) -> Any:
    """Return the scores without the mask; those of narrow types are scaled when they are wide."""
    if q.dtype == jnp.float32:
        return capped(products.scores(scaled(q, scoring.scale), k), scoring)
    return capped(products.scores(q, k) * jnp.float32(scoring.scale), scoring)


def capped(scores: Any, scoring: Scoring) -> Any:
    """Return the scores between the softcap and its negative, if there is one."""
    if not scoring.softcap:
        return scores
    cap = jnp.float32(scoring.softcap)
    return jnp.tanh(scores / cap) * cap


def mask_of(scoring: Scoring, tile: Tile) -> Mask:
    """Return the mask of a tile."""
    return Mask(None, None) if scoring.mask is None else scoring.mask(tile)


def masked(scores: Any, mask: Mask) -> Any:
    """Return the scores with the mask's numbers; a key that is not allowed gets minus infinity."""
    bias: Any = mask.bias
    allowed: Any = mask.allowed
    if bias is not None:
        scores = scores + bias.astype(jnp.float32)
    return scores if allowed is None else jnp.where(allowed, scores, jnp.float32(-jnp.inf))


def shift_of(top: Any) -> Any:
    """Return what to subtract from scores with these maxima: nothing where there is no key."""
    return lax.stop_gradient(jnp.where(top == -jnp.inf, jnp.zeros_like(top), top))


def divisor_of(total: Any, scoring: Scoring) -> Any:
    """Return the sum of the weights; where it is 0, it divides to NaN or to zeros."""
    return nonzero_total(total) if scoring.zeros_without_keys else total


def without_nan(y: Any, scoring: Scoring) -> Any:
    """Return zeros for the queries whose values are NaN, if the scoring asks for that."""
    if not scoring.zeros_for_nan:
        return y
    return jnp.where(jnp.all(jnp.isnan(y), axis=-1, keepdims=True), jnp.zeros_like(y), y)
