"""Attention in the forms that the compilers for TPUs and GPUs know, with scores in float32."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import lax

from sardonyx.backends.jax.accelerators.long_attention import attended_in_blocks
from sardonyx.backends.jax.accelerators.plain_softmax import (
    IsLost,
    is_lost_by,
    lost_rows,
    plainly_mixed,
    with_zeros,
)
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
from sardonyx.backends.operations.scores import Mask, Scoring

# Bytes of scores in float32 from which they are computed block by block.
LARGEST_SCORES = 2**29
# Keys of a block of XLA:TPU's kernel for scores in float32 (libtpu 0.0.52).
KERNEL_KEYS = 1024


def is_supported(*arrays: Any) -> bool:
    """Whether the forms of this file are for queries, keys and values of these types and shapes."""
    dtypes = {array.dtype.name for array in arrays}
    are_full = all(array.ndim == 4 and 0 not in array.shape for array in arrays)
    return are_full and len(dtypes) == 1 and dtypes <= {"float32", "bfloat16", "float16"}


def is_long(q: Any, k: Any) -> bool:
    """Whether the scores of all queries and keys are too many for memory.

    Those of a few queries, as in a step of a decoder, take less than the keys themselves. Blocks of
    keys would save nothing there, and move the keys between devices that divide them. Sizes that
    `jax.export` leaves open count as small.
    """
    if not all(isinstance(size, int) for size in (*q.shape, *k.shape)):
        return False
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
    products, is_lost = Products(precision), is_lost_by(scoring)
    mix = partial(plainly_mixed, products, is_lost)
    mask, factor = mask_of(scoring, all_scores(q, k)), scaled(q, scoring.scale)
    scores = masked(capped(products.scores(factor, k), scoring), mask)
    if _may_hide_a_block(scoring, mask, k):
        return _without_hidden_blocks(scores, is_lost, lambda scores: mix(scores, v))
    if is_lost is None:
        return mix(scores, v)
    if q.shape[2] == 1:
        # No kernel serves a single query, and its greatest score is at hand.
        return with_zeros(mix(scores, v), is_lost(_top(scores)))
    # The compiler knows no guard between the products, so queries without a key get some before.
    sees_any = None if scoring.sees_some else _sees_any(mask)
    if sees_any is not None:
        scores = jnp.where(sees_any, scores, jnp.zeros_like(scores))
    y = mix(scores, v)
    # The kernel reads scaled queries from memory; beside a mask they are never stored.
    is_masked = mask.bias is not None or mask.allowed is not None
    again, keys = lax.stop_gradient((q if is_masked else factor, k))

    def find() -> Any:
        """The kernel keeps its scores to itself, so they are computed once more."""
        factor = scaled(again, scoring.scale) if is_masked else again
        scores = capped(products.scores(factor, keys), scoring)
        return is_lost(_top(masked(scores, lax.stop_gradient(mask_of(scoring, all_scores(q, k))))))

    lost = lost_rows(y, find)
    return with_zeros(y, lost if sees_any is None else lost | ~sees_any)


def _may_hide_a_block(scoring: Scoring, mask: Mask, k: Any) -> bool:
    """Whether a mask may hide all keys of the kernel's first block from a query that sees others.

    The kernel subtracts the maximum so far, which is minus infinity then.
    """
    is_masked = mask.bias is not None or mask.allowed is not None
    hides_ends_only = scoring.sees_some or scoring.reach is not None
    in_float32 = bool(k.dtype == jnp.float32)
    return in_float32 and is_masked and not hides_ends_only and _exceeds(k.shape[2], KERNEL_KEYS)


def _exceeds(size: Any, limit: int) -> bool:
    """Whether a size is larger; what `jax.export` leaves open may be."""
    return not isinstance(size, int) or size > limit


def _without_hidden_blocks(scores: Any, is_lost: IsLost | None, mix: Callable[[Any], Any]) -> Any:
    """Mix with scores that are finite where the mask hides keys; they still get no weight."""
    top = _top(scores)
    y = mix(jnp.maximum(scores, jnp.finfo(scores.dtype).min))
    if is_lost is None:
        return jnp.where(top == -jnp.inf, jnp.nan * y, y)
    return with_zeros(y, is_lost(top))


def _sees_any(mask: Mask) -> Any:
    """Return whether the mask leaves each query a key; None if it has no say in that."""
    allowed: Any = mask.allowed
    bias: Any = mask.bias
    if allowed is None and bias is not None:
        allowed = bias != -jnp.inf
    return None if allowed is None else jnp.any(allowed, axis=-1, keepdims=True)


def _top(scores: Any) -> Any:
    return lax.stop_gradient(jnp.max(scores, axis=-1, keepdims=True))


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
