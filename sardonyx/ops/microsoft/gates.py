"""Gates of linear attention, and of n-grams whose embeddings enter a model in all its layers."""

from __future__ import annotations

import math

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops import activation
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import Outputs, op
from sardonyx.ops.precision import wide

# Below it, the root in a gate's argument would be too steep.
LEAST_PRODUCT = 1e-6


@op(domain="com.microsoft")
def LinearAttentionGate(
    xp: Backend,
    a: Array,
    dt_bias: Array,
    decay_scale: Array,
    b: Array | None = None,
    *,
    outputs: Outputs,
) -> tuple[Array, ...]:
    """Return how fast each head forgets, and if requested how much it takes up."""
    if not a.ndim:
        raise ValueError("a must have an axis for the heads, but has none")
    require_shape("dt_bias", dt_bias, a.shape[-1:])
    require_shape("decay_scale", decay_scale, a.shape[-1:])
    decay = xp.astype(decay_scale * activation.Softplus(xp, wide(xp, a) + dt_bias), a.dtype)
    if outputs == 1:
        return (decay,)
    if b is None:
        raise ValueError("b is missing, but the output 'beta' needs it")
    require_shape("b", b, a.shape)
    return decay, xp.astype(activation.Sigmoid(xp, wide(xp, b)), b.dtype)


@op(domain="com.microsoft")
def EngramGate(
    xp: Backend,
    key: Array,
    query: Array,
    value: Array,
    key_norm_scale: Array,
    query_norm_scale: Array,
    conv_norm_scale: Array | None = None,
    *,
    epsilon: float = 1e-5,
    outputs: Outputs,
) -> tuple[Array, ...]:
    """Return the values times the gate of each branch, and if requested normalised as well."""
    if key.ndim != 4 or key.shape != query.shape:
        raise ValueError(
            f"key has shape {key.shape} and query has shape {query.shape}, but both must be "
            "(batch, length, branches, features)"
        )
    batch, length, branches, features = key.shape
    require_shape("value", value, (batch, length, features))
    require_shape("key_norm_scale", key_norm_scale, (branches, features))
    require_shape("query_norm_scale", query_norm_scale, (branches, features))
    k = _normalized(xp, wide(xp, key), key_norm_scale, epsilon)
    q = _normalized(xp, wide(xp, query), query_norm_scale, epsilon)
    product = xp.sum(k * q, axis=-1, keepdims=True) / math.sqrt(max(features, 1))
    root = xp.sqrt(xp.maximum(xp.abs(product), LEAST_PRODUCT))
    gate = activation.Sigmoid(xp, xp.sign(product) * root)
    gated = gate * xp.expand_dims(wide(xp, value), axis=2)
    output = xp.astype(gated, value.dtype)
    if outputs == 1:
        return (output,)
    if conv_norm_scale is None:
        raise ValueError("conv_norm_scale is missing, but the output 'gated_value_normed' needs it")
    require_shape("conv_norm_scale", conv_norm_scale, (branches, features))
    return output, xp.astype(_normalized(xp, gated, conv_norm_scale, epsilon), value.dtype)


def _normalized(xp: Backend, x: Array, scale: Array, epsilon: float) -> Array:
    squares = xp.mean(xp.square(x), axis=-1, keepdims=True)
    return x / xp.sqrt(squares + epsilon) * wide(xp, scale)
