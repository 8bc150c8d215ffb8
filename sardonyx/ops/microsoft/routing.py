"""How a mixture of experts chooses experts for each token."""

from __future__ import annotations

import math
from typing import NamedTuple

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.activation import Softmax
from sardonyx.ops.axes import require_shape
from sardonyx.ops.dtypes import FLOAT32, INT64

# The sparse mixer compares experts whose scores differ by at most this part of the larger one.
MIXED_WITHIN = 0.02


class Routes(NamedTuple):
    """The experts of each token, and their weights in float32; both have shape (tokens, k)."""

    experts: Array
    weights: Array


def routes_by_softmax(xp: Backend, scores: Array, k: int, *, normalizes: bool) -> Routes:
    """Weight the experts by the softmax of all scores; the weights of those chosen may add up to 1.

    Of experts with equal scores the last come first, as in onnxruntime.
    """
    scores = xp.astype(scores, xp.dtype(FLOAT32))
    experts = top_experts(xp, scores, k)
    weights = xp.take_along_axis(Softmax(xp, scores, axis=-1), experts, axis=-1)
    return Routes(experts, normalized(xp, weights) if normalizes else weights)


def top_experts(xp: Backend, scores: Array, k: int) -> Array:
    """Return the experts with the k highest scores."""
    count = scores.shape[1]
    if not 1 <= k <= count:
        raise ValueError(f"k is {k}, but must be from 1 to {count}, the number of experts")
    order = xp.top_k(xp.flip(scores, axis=1), k, axis=1, largest=True)
    return count - 1 - order


def normalized(xp: Backend, weights: Array) -> Array:
    """Divide the weights of each token by their sum, unless that is 0."""
    total = xp.sum(weights, axis=-1, keepdims=True)
    is_zero = xp.equal(total, 0)
    return xp.where(is_zero, 0.0, weights / xp.where(is_zero, 1.0, total))


def routes_by_sparse_mixer(xp: Backend, scores: Array, k: int) -> Routes:
    """Choose two experts in turn, each weighted by a softmax over those with similar scores."""
    if k != 2:
        raise ValueError(f"k is {k}, but must be 2, the number of experts of the sparse mixer")
    scores = xp.astype(scores, xp.dtype(FLOAT32))
    first = top_experts(xp, scores, 1)
    is_first = xp.equal(xp.arange(scores.shape[1], dtype=first.dtype), first)
    without_first = xp.where(is_first, -math.inf, scores)
    second = top_experts(xp, without_first, 1)
    each = (_share(xp, scores, scores), _share(xp, without_first, scores))
    return Routes(xp.concat([first, second], axis=1), xp.concat(each, axis=1))


def _share(xp: Backend, candidates: Array, scores: Array) -> Array:
    """Return the softmax of the best candidate among those with similar scores."""
    top = xp.max(candidates, axis=1, keepdims=True)
    scale = xp.maximum(xp.abs(scores), top)
    is_similar = (top - scores) <= MIXED_WITHIN * scale
    parts = xp.where(is_similar, xp.exp(candidates - top), 0.0)
    return 1 / xp.sum(parts, axis=1, keepdims=True)


def weights_of_all(xp: Backend, routes: Routes, count: int) -> Array:
    """Return the weight of each of the experts, which is 0 for those not chosen."""
    numbers = xp.arange(count, dtype=xp.dtype(INT64))
    is_chosen = xp.equal(routes.experts[..., None], numbers)
    weights = xp.where(is_chosen, routes.weights[..., None], 0.0)
    return xp.sum(weights, axis=1)


def require_scores(name: str, scores: Array, tokens: int) -> None:
    """Raise a ValueError unless there is one row of scores for each token."""
    if scores.ndim != 2:
        raise ValueError(f"{name} has shape {scores.shape}, but must be a matrix")
    require_shape(name, scores, (tokens, scores.shape[1]))
