"""Mixtures of experts: each token runs through the few networks that it is routed to."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import op
from sardonyx.ops.dtypes import FLOAT32
from sardonyx.ops.microsoft.gating import activated, is_fused
from sardonyx.ops.microsoft.routing import (
    Routes,
    require_scores,
    routes_by_softmax,
    routes_by_sparse_mixer,
    weights_of_all,
)

Activated: TypeAlias = Annotated[Any, activated]


@op(domain="com.microsoft")
def MoE(
    xp: Backend,
    input: Array,
    router_probs: Array,
    fc1_experts_weights: Array,
    fc1_experts_bias: Array | None,
    fc2_experts_weights: Array,
    fc2_experts_bias: Array | None = None,
    fc3_experts_weights: Array | None = None,
    fc3_experts_bias: Array | None = None,
    *,
    k: int = 1,
    normalize_routing_weights: int = 0,
    use_sparse_mixer: int = 0,
    **activation: Activated,
) -> Array:
    tokens = rows_of(xp, input)
    require_scores("router_probs", router_probs, tokens.shape[0])
    if use_sparse_mixer:
        routes = routes_by_sparse_mixer(xp, router_probs, k)
    else:
        normalizes = bool(normalize_routing_weights)
        routes = routes_by_softmax(xp, router_probs, k, normalizes=normalizes)
    experts = Experts(
        Layer(fc1_experts_weights, fc1_experts_bias),
        Layer(fc2_experts_weights, fc2_experts_bias),
        None if fc3_experts_weights is None else Layer(fc3_experts_weights, fc3_experts_bias),
    )
    count, hidden = router_probs.shape[1], tokens.shape[1]
    experts = experts.checked(xp, count, hidden, is_fused=is_fused(**activation))
    return xp.reshape(mixture(xp, tokens, routes, experts, **activation), input.shape)


def rows_of(xp: Backend, tokens: Array) -> Array:
    """Return tokens of shape (tokens, size) or (batch, tokens, size) as rows."""
    if tokens.ndim not in (2, 3):
        raise ValueError(f"input has shape {tokens.shape}, but must have 2 or 3 axes")
    return xp.reshape(tokens, (math.prod(tokens.shape[:-1]), tokens.shape[-1]))


# -- the networks ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Layer:
    """A linear layer of each expert: weights (experts, outputs, inputs), biases by output."""

    weight: Array
    bias: Array | None = None

    def __call__(self, xp: Backend, x: Array) -> Array:
        """Apply it to (experts, tokens, inputs); one matrix of tokens may serve all experts."""
        y = xp.matmul(x, xp.matrix_transpose(self.weight))
        return y if self.bias is None else y + self.bias[:, None, :]

    def of(self, xp: Backend, experts: Array) -> Layer:
        """Return the layer of these experts."""
        bias = None if self.bias is None else xp.take(self.bias, experts, axis=0)
        return Layer(xp.take(self.weight, experts, axis=0), bias)

    def checked(self, xp: Backend, name: str, shape: tuple[int, int, int]) -> Layer:
        """Return it in this shape; old files state the two last axes the other way round.

        The weights lie in memory as they do today.
        """
        experts, outputs, inputs = shape
        weight = self.weight
        if weight.shape == (experts, inputs, outputs):
            weight = xp.reshape(weight, shape)
        require_shape(f"{name}_experts_weights", weight, shape)
        if self.bias is not None:
            require_shape(f"{name}_experts_bias", self.bias, (experts, outputs))
        return Layer(weight, self.bias)


@dataclass(frozen=True, slots=True)
class Experts:
    """Networks of two layers, and of one beside the first if that is gated by it."""

    first: Layer
    second: Layer
    beside: Layer | None = None

    def __call__(self, xp: Backend, x: Array, **activation: Any) -> Array:
        beside = None if self.beside is None else self.beside(xp, x)
        return self.second(xp, activated(xp, self.first(xp, x), beside, **activation))

    def of(self, xp: Backend, experts: Array) -> Experts:
        """Return some of them, perhaps several times."""
        beside = None if self.beside is None else self.beside.of(xp, experts)
        return Experts(self.first.of(xp, experts), self.second.of(xp, experts), beside)

    def checked(self, xp: Backend, count: int, hidden: int, *, is_fused: bool) -> Experts:
        """Return them, if their shapes fit `count` experts and tokens of the size `hidden`."""
        size = math.prod(self.second.weight.shape[1:]) // max(hidden, 1)
        wider = size * 2 if is_fused else size
        beside = self.beside
        if beside is not None:
            beside = beside.checked(xp, "fc3", (count, size, hidden))
        return Experts(
            self.first.checked(xp, "fc1", (count, wider, hidden)),
            self.second.checked(xp, "fc2", (count, hidden, size)),
            beside,
        )


def mixture(xp: Backend, x: Array, routes: Routes, experts: Experts, **activation: Any) -> Array:
    """Return for each of the tokens `x` the sum of what its experts return, by their weights.

    Few tokens take the weights of their own experts. Of many, each runs through all experts, since
    the shapes of programs cannot depend on how many tokens an expert gets.
    """
    tokens, k = routes.experts.shape
    count = experts.first.weight.shape[0]
    if tokens * k < count:
        own = experts.of(xp, xp.reshape(routes.experts, (-1,)))
        rows = xp.reshape(xp.repeat(x, k, axis=0), (tokens * k, 1, x.shape[1]))
        each = xp.reshape(own(xp, rows, **activation), (tokens, k, x.shape[1]))
        weights = routes.weights
    else:
        each = xp.moveaxis(experts(xp, x[None, ...], **activation), 0, 1)
        weights = weights_of_all(xp, routes, count)
    weights = weights[..., None]
    # An expert that is not chosen has no part in the sum, even where it returns an infinity.
    parts = xp.where(weights > 0, weights * xp.astype(each, xp.dtype(FLOAT32)), 0.0)
    return xp.astype(xp.sum(parts, axis=1), x.dtype)
