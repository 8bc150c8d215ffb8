"""Attention in the forms that the compilers for TPUs and GPUs know, with scores in float32."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
from jax import lax

from sardonyx.backends.jax.accelerators.long_attention import attended_in_blocks
from sardonyx.backends.jax.accelerators.scores import (
    Products,
    all_scores,
    capped,
    divisor_of,
    mask_of,
    masked,
    scaled,
    scaled_scores,
    shift_of,
    without_nan,
)
from sardonyx.backends.jax.accelerators.softmax import below_top
from sardonyx.backends.operations.scores import Scoring

# Bytes of scores in float32 from which they are computed block by block.
LARGEST_SCORES = 2**29


def is_supported(*arrays: Any) -> bool:
    """Whether the forms of this file are for queries, keys and values of these types and shapes."""
    dtypes = {array.dtype.name for array in arrays}
    are_full = all(array.ndim == 4 and 0 not in array.shape for array in arrays)
    return are_full and len(dtypes) == 1 and dtypes <= {"float32", "bfloat16", "float16"}


def is_long(q: Any, k: Any) -> bool:
    """Whether the scores of all queries and keys are too many for memory.

    Those of a few queries, as in a step of a decoder, take less than the keys themselves. Blocks of
    keys would save nothing there, and move the keys between devices that divide them.
    """
    scores: int = 4 * math.prod(q.shape[:3]) * k.shape[2]
    keys: int = k.size * k.dtype.itemsize
    return scores >= LARGEST_SCORES and scores > keys


def attended_on_tpu(q: Any, k: Any, v: Any, scoring: Scoring, precision: str | None) -> Any:
    """Attention whose softmax XLA:TPU computes between the two products, where it can.

    It knows a plain difference with the maximum. That is exact if no product is left to be joined
    with it: the scores come out of the matrix unit, of a sum, or of a product within the softcap.
    """
    if scoring.sink is not None or q.dtype == jnp.float16 or is_long(q, k):
        return attended(q, k, v, scoring, precision)
    products, mask = Products(precision), mask_of(scoring, all_scores(q, k))
    scores = masked(capped(products.scores(scaled(q, scoring.scale), k), scoring), mask)
    if mask.allowed is None or scoring.sees_some:
        return without_nan(_plainly_mixed(scores, v, products), scoring)
    # The compiler knows no guard between the products, so queries without a key get some before.
    allowed: Any = mask.allowed
    sees_any = jnp.any(allowed, axis=-1, keepdims=True)
    y = _plainly_mixed(jnp.where(sees_any, scores, jnp.zeros_like(scores)), v, products)
    return jnp.where(sees_any, y, jnp.zeros_like(y))


def _plainly_mixed(scores: Any, v: Any, products: Products) -> Any:
    e = jnp.exp(scores - lax.stop_gradient(jnp.max(scores, axis=-1, keepdims=True)))
    weights = e / jnp.sum(e, axis=-1, keepdims=True)
    return products.mixed(weights, v).astype(v.dtype)


def attended(q: Any, k: Any, v: Any, scoring: Scoring, precision: str | None) -> Any:
    """Attention of three kernels on GPUs; in blocks where memory would not hold the scores."""
    products = Products(precision)
    if is_long(q, k):
        return without_nan(attended_in_blocks(q, k, v, scoring, products), scoring)
    mask = mask_of(scoring, all_scores(q, k))
    scores = masked(scaled_scores(q, k, scoring, products), mask)
    top = jnp.max(scores, axis=-1, keepdims=True)
    sink: Any = scoring.sink
    if sink is not None:
        top = jnp.maximum(top, sink)
    top = shift_of(top)
    e = jnp.exp(below_top(scores, top))
    total = jnp.sum(e, axis=-1, keepdims=True)
    if sink is not None:
        total = total + jnp.exp(sink - top)
    weights = e / divisor_of(total, scoring)
    if scoring.zeros_for_nan:
        weights = jnp.where(jnp.isnan(weights), jnp.zeros_like(weights), weights)
    return products.mixed(weights, v).astype(q.dtype)
