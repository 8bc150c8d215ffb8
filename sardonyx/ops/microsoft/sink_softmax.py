"""The scores of attention and their softmax, with a sink that takes weight and has no value."""

from __future__ import annotations

import math

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import require_shape
from sardonyx.ops.dtypes import FLOAT32
from sardonyx.ops.precision import wide


def capped_scores(xp: Backend, q: Array, k: Array, scale: float, softcap: float) -> Array:
    """Return the scores in float32 or wider; a scale of 0 stands for that of the head's size."""
    scores = wide(xp, xp.attention_scores(q, k, scale_of(q, scale)))
    return xp.tanh(scores / softcap) * softcap if softcap > 0 else scores


def scale_of(q: Array, scale: float) -> float:
    """Return the scale, or that of the head's size if it is 0."""
    return scale or 1 / math.sqrt(max(q.shape[3], 1))


def sink_scores(
    xp: Backend, head_sink: Array | None, num_heads: int, smooth_softmax: int
) -> Array | None:
    """Return the score of a key without a value, for each head, or None."""
    if head_sink is not None:
        require_shape("head_sink", head_sink, (num_heads,))
        return wide(xp, xp.reshape(head_sink, (1, -1, 1, 1)))
    return xp.zeros((1, 1, 1, 1), dtype=xp.dtype(FLOAT32)) if smooth_softmax == 1 else None


def weights_beside(xp: Backend, scores: Array, seen: Array, sink: Array | None) -> Array:
    """Return the softmax over the keys that are seen; a query without any gets zeros."""
    if not scores.size:
        return scores
    scores = xp.where(seen, scores, xp.asarray(-math.inf, dtype=scores.dtype))
    top = xp.max(scores, axis=-1, keepdims=True)
    if sink is not None:
        top = xp.maximum(top, sink)
    top = xp.where(xp.equal(top, -math.inf), xp.zeros_like(top), top)
    weights = xp.exp(xp.below_top(scores, top))
    total = xp.sum(weights, axis=-1, keepdims=True)
    if sink is not None:
        total = total + xp.exp(sink - top)
    return weights / xp.nonzero_total(total)
