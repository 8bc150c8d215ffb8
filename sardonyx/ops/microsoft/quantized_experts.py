"""Mixtures of experts whose weights have few bits."""

from __future__ import annotations

from typing import Annotated, Any

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import op
from sardonyx.ops.dtypes import FLOAT32
from sardonyx.ops.microsoft.experts import Activated, Experts, Layer, mixture, rows_of
from sardonyx.ops.microsoft.few_bits import (
    dequantized,
    require_bits,
    require_block_size,
    require_bytes,
    unpacked,
)
from sardonyx.ops.microsoft.gating import is_fused
from sardonyx.ops.microsoft.routing import (
    Routes,
    normalized,
    require_scores,
    routes_by_softmax,
    routes_by_sparse_mixer,
    top_experts,
)


def mixed(
    xp: Backend,
    input: Array,
    router_probs: Array,
    router_weights: Array | None,
    fc1: Array,
    fc1_bias: Array | None,
    fc2: Array,
    fc2_bias: Array | None,
    fc3: Array | None,
    fc3_bias: Array | None,
    *,
    k: int = 1,
    normalize_routing_weights: int = 0,
    use_sparse_mixer: int = 0,
    **activation: Activated,
) -> Array:
    """Mix experts, weighted by `router_weights`, or by the softmax over those that are chosen."""
    tokens = rows_of(xp, input)
    require_scores("router_probs", router_probs, tokens.shape[0])
    if use_sparse_mixer:
        routes = routes_by_sparse_mixer(xp, router_probs, k)
    elif router_weights is None:
        routes = routes_by_softmax(xp, router_probs, k, normalizes=True)
    else:
        require_shape("router_weights", router_weights, router_probs.shape)
        chosen = top_experts(xp, router_probs, k)
        weights = xp.take_along_axis(router_weights, chosen, axis=-1)
        weights = xp.astype(weights, xp.dtype(FLOAT32))
        routes = Routes(chosen, normalized(xp, weights) if normalize_routing_weights else weights)
    count, hidden = router_probs.shape[1], tokens.shape[1]
    beside = None if fc3 is None else Layer(fc3, fc3_bias)
    experts = Experts(Layer(fc1, fc1_bias), Layer(fc2, fc2_bias), beside)
    experts = experts.checked(xp, count, hidden, is_fused=is_fused(**activation))
    return xp.reshape(mixture(xp, tokens, routes, experts, **activation), input.shape)


@op(domain="com.microsoft")
def QMoE(
    xp: Backend,
    input: Array,
    router_probs: Array,
    fc1_experts_weights: Array,
    fc1_scales: Array | None,
    fc1_experts_bias: Array | None,
    fc2_experts_weights: Array,
    fc2_scales: Array | None = None,
    fc2_experts_bias: Array | None = None,
    fc3_experts_weights: Array | None = None,
    fc3_scales: Array | None = None,
    fc3_experts_bias: Array | None = None,
    fc1_zero_points: Array | None = None,
    fc2_zero_points: Array | None = None,
    fc3_zero_points: Array | None = None,
    router_weights: Array | None = None,
    fc1_global_scale: Array | None = None,
    fc2_global_scale: Array | None = None,
    fc1_act_scale: Array | None = None,
    fc2_act_scale: Array | None = None,
    fc1_act_block_scale: Array | None = None,
    fc2_act_block_scale: Array | None = None,
    *,
    expert_weight_bits: int = 4,
    fc1_expert_weight_bits: int | None = None,
    fc2_expert_weight_bits: int | None = None,
    fc3_expert_weight_bits: int | None = None,
    block_size: int | None = None,
    quant_type: str = "int",
    weights_prepacked: int = -1,
    accuracy_level: int = 0,
    **mixing: Annotated[Any, mixed],
) -> Array:
    """Mix experts with weights of 2, 4 or 8 bits; `accuracy_level` allows less precision."""
    if quant_type != "int" or weights_prepacked == 1:
        raise ValueError(
            f"quant_type is {quant_type!r} and weights_prepacked is {weights_prepacked}, but only "
            "integers that are not packed for one kind of GPU are supported"
        )

    def unpack(
        weight: Array, scales: Array | None, zero_points: Array | None, own_bits: int | None
    ) -> Array:
        bits = own_bits or expert_weight_bits
        return experts_weight(
            xp, weight, scales, zero_points, bits=bits, block_size=block_size or 0
        )

    fc1 = unpack(fc1_experts_weights, fc1_scales, fc1_zero_points, fc1_expert_weight_bits)
    fc2 = unpack(fc2_experts_weights, fc2_scales, fc2_zero_points, fc2_expert_weight_bits)
    fc3 = fc3_experts_weights
    if fc3 is not None:
        fc3 = unpack(fc3, fc3_scales, fc3_zero_points, fc3_expert_weight_bits)
    layers = (fc1, fc1_experts_bias, fc2, fc2_experts_bias, fc3, fc3_experts_bias)
    return mixed(xp, input, router_probs, router_weights, *layers, **mixing)


def experts_weight(
    xp: Backend,
    packed: Array,
    scales: Array | None,
    zero_points: Array | None = None,
    *,
    bits: int,
    block_size: int,
) -> Array:
    """Return the weights (experts, outputs, inputs) of a layer in the type of the scales.

    A scale belongs to an output, or to a block of its inputs; zero points are packed along that
    axis.
    """
    require_bits(bits, (2, 4, 8))
    require_bytes(xp, "the weights of experts", packed)
    if scales is None or packed.ndim != 3:
        raise ValueError(
            f"weights of shape {packed.shape} must have 3 axes, and an input of scales"
        )
    numbers = unpacked(xp, packed, bits)
    experts, outputs, inputs = numbers.shape
    if block_size:
        require_block_size(block_size)
    size = block_size or max(inputs, 1)
    is_by_block = scales.ndim == 3
    shape = (experts, outputs, -(-inputs // size)) if is_by_block else (experts, outputs)
    require_shape("scales", scales, shape)

    def spread(x: Array) -> Array:
        """Return one element for each input."""
        return xp.repeat(x, size, axis=2)[..., :inputs] if is_by_block else x[..., None]

    zero_point: Array | int = 1 << (bits - 1)
    if zero_points is not None:
        require_shape("zero_points", zero_points, (*shape[:-1], -(-shape[-1] * bits // 8)))
        zero_point = spread(unpacked(xp, zero_points, bits, shape[-1]))
    return dequantized(xp, numbers, zero_point, spread(scales))
