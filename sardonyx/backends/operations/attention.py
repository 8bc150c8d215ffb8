"""Attention: the products of queries and keys, and of their softmax and the values."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from sardonyx.backends.operations.numbers import Numbers
from sardonyx.backends.operations.scores import Scoring
from sardonyx.backends.standard import Array


class Attention(Numbers):
    """Over the last two axes; heads of queries, on the axis before, may share those of keys."""

    def attention(
        self,
        q: Array,
        k: Array,
        v: Array,
        bias: Array | None = None,
        *,
        scale: float,
        is_guarded: bool = False,
    ) -> Array:
        """`softmax(scale * q @ k^T + bias) @ v` over the last two axes.

        Several heads of `q`, on the axis before these, may share one of `k` and `v`. If the call
        is guarded, weights that are NaN, as where the bias forbids every key, are zeros.
        """
        scores = self.attention_scores(q, k, scale)
        if bias is not None:
            scores = scores + bias
        if self.numpy_dtype(q.dtype).itemsize < 4:
            scores = self.astype(scores, self.dtype(np.dtype(np.float32)))
        e = self.exp(self.below_top(scores, self.max(scores, axis=-1, keepdims=True)))
        weights = e / self.sum(e, axis=-1, keepdims=True)
        if is_guarded:
            weights = self.where(self.isnan(weights), self.zeros_like(weights), weights)
        return self.attention_mix(self.astype(weights, q.dtype), v)

    def attention_like(
        self,
        general: Callable[[Array, Array, Array], Array],
        q: Array,
        k: Array,
        v: Array,
        scoring: Scoring,
    ) -> Array:
        """`general(q, k, v)`, or the same in a form that is faster on the device.

        `scoring` says what it computes. The arrays have four axes: sample, head, place, size.
        """
        return general(q, k, v)

    def with_zeros_for_nan(self, mixed: Array, bias: Array | None) -> Array:
        """The result of a guarded attention, from that of one without a guard.

        Zeros for the queries that may see no key, and for those whose weights are NaN.
        """
        is_zero = self.all(self.isnan(mixed), axis=-1, keepdims=True)
        if bias is not None:
            sees_any = self.any(bias > -math.inf, axis=-1, keepdims=True)
            is_zero = self.logical_or(is_zero, self.logical_not(sees_any))
        return self.where(is_zero, self.zeros_like(mixed), mixed)

    def attention_scores(self, q: Array, k: Array, scale: float) -> Array:
        """`scale * q @ k^T`: how much each query looks at each key.

        Narrow floats overflow less if each side is multiplied by the root of the scale.
        """
        if self.numpy_dtype(q.dtype).itemsize < 4:
            root = math.sqrt(abs(scale))
            q = q * self.asarray(math.copysign(root, scale), dtype=q.dtype)
            k = k * self.asarray(root, dtype=k.dtype)
        else:
            q = q * scale
        product = self.matmul(self._by_shared_head(q, k), self.matrix_transpose(k))
        return self.reshape(product, (*q.shape[:-1], k.shape[-2]))

    def attention_mix(self, weights: Array, v: Array) -> Array:
        """`weights @ v`: the values, mixed for each query."""
        product = self.matmul(self._by_shared_head(weights, v), v)
        return self.reshape(product, (*weights.shape[:-1], v.shape[-1]))

    def _by_shared_head(self, x: Array, other: Array) -> Array:
        """`x` with the heads that share one of `other`'s heads put one below the other."""
        if x.shape[:-2] == other.shape[:-2]:
            return x
        sharing = x.shape[-3] // other.shape[-3]
        return self.reshape(x, (*other.shape[:-2], sharing * x.shape[-2], x.shape[-1]))
