"""Normalizations of onnxruntime: in the default domain, of sums, over groups and branches.

All compute in float32 or wider and round once, at the end.
"""

from __future__ import annotations

from typing import Annotated, Any

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import Within
from sardonyx.backends.standard import Array
from sardonyx.ops.activation import Sigmoid, Swish
from sardonyx.ops.axes import axis_within, require_broadcasts, require_shape
from sardonyx.ops.definition import DType, op
from sardonyx.ops.dtypes import FLOAT32, INT32
from sardonyx.ops.indexing import Gather
from sardonyx.ops.microsoft.channels import channels_first
from sardonyx.ops.normalization import (
    GroupNormalization,
    LayerNormalization,
    RMSNormalization,
    root_mean_square,
)
from sardonyx.ops.options import require_one_of
from sardonyx.ops.precision import wide

# -- in the default domain ------------------------------------------------------------------------


@LayerNormalization.before(17)
def layer_normalization_of_onnxruntime(
    xp: Backend,
    X: Array,
    Scale: Array,
    B: Array | None = None,
    **others: Annotated[Any, LayerNormalization],
) -> tuple[Array, Array, Array]:
    """Return the result in the dtype of `Scale`: before the standard had it, onnxruntime did."""
    bias = None if B is None else wide(xp, B)
    Y, mean, inverse = LayerNormalization(xp, wide(xp, X), wide(xp, Scale), bias, **others)
    return xp.astype(Y, Scale.dtype), mean, inverse


@op
def SimplifiedLayerNormalization(
    xp: Backend,
    X: Array,
    scale: Array,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: DType = FLOAT32,
) -> tuple[Array, Array]:
    """Divide by the root of the mean of squares, and scale; return also the inverse root."""
    require_broadcasts("scale", scale, X.shape)
    axes = tuple(range(axis_within(axis, X.ndim), X.ndim))
    x = wide(xp, X)
    root = root_mean_square(xp, x, axes, epsilon)
    Y = xp.astype(x / root * wide(xp, scale), scale.dtype)
    return Y, xp.astype(1 / root, xp.dtype(stash_type))


# -- of a sum with a residual ---------------------------------------------------------------------


@op(domain="com.microsoft")
def SkipLayerNormalization(
    xp: Backend,
    input: Array,
    skip: Array,
    gamma: Array,
    beta: Array | None = None,
    bias: Array | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[Array, Array, Array, Array]:
    """Normalise the sum of `input`, `skip` and `bias`; return also its statistics, and the sum."""
    total = _with_skip(xp, input, skip, gamma, beta, bias)
    shift = None if beta is None else wide(xp, beta)
    Y, mean, inverse = LayerNormalization(xp, total, wide(xp, gamma), shift, epsilon=epsilon)
    return xp.astype(Y, input.dtype), mean, inverse, xp.astype(total, input.dtype)


@op(domain="com.microsoft")
def SkipSimplifiedLayerNormalization(
    xp: Backend,
    input: Array,
    skip: Array,
    gamma: Array,
    bias: Array | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[Array, Array, Array, Array]:
    """Divide the sum of `input`, `skip` and `bias` by its root mean square, and scale it."""
    total = _with_skip(xp, input, skip, gamma, None, bias)
    Y, inverse = SimplifiedLayerNormalization(xp, total, wide(xp, gamma), epsilon=epsilon)
    mean = xp.astype(xp.mean(total, axis=-1, keepdims=True), inverse.dtype)
    return xp.astype(Y, input.dtype), mean, inverse, xp.astype(total, input.dtype)


def _with_skip(
    xp: Backend,
    input: Array,
    skip: Array,
    gamma: Array,
    beta: Array | None,
    bias: Array | None,
) -> Array:
    """Return the sum of `input`, `skip` and `bias` in float32 or wider; all shapes must fit."""
    if input.ndim not in (2, 3):
        raise ValueError(f"input has shape {input.shape}, but must have two or three axes")
    if skip.shape[-2:] != input.shape[-2:]:
        raise ValueError(
            f"skip has shape {skip.shape}, but its last two axes must be {input.shape[-2:]}, as "
            "those of input"
        )
    require_broadcasts("skip", skip, input.shape)
    for name, vector in (("gamma", gamma), ("beta", beta), ("bias", bias)):
        if vector is not None:
            require_shape(name, vector, input.shape[-1:])
    total = wide(xp, input) + wide(xp, skip)
    return total if bias is None else total + wide(xp, bias)


@op(domain="com.microsoft")
def EmbedLayerNormalization(
    xp: Backend,
    input_ids: Array,
    segment_ids: Array | None,
    word_embedding: Array,
    position_embedding: Array,
    segment_embedding: Array | None,
    gamma: Array,
    beta: Array,
    mask: Array | None = None,
    position_ids: Array | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int | None = None,
) -> tuple[Array, Array, Array]:
    """Normalise the sum of the embeddings; return also the ones per row of the mask, and the sum.

    Without `position_ids` the positions of each row are counted from 0; without `segment_ids` all
    tokens are in the first segment.
    """
    if input_ids.ndim != 2:
        raise ValueError(f"input_ids has shape {input_ids.shape}, but must have two axes")
    batch, length = input_ids.shape
    for name, ids in (("segment_ids", segment_ids), ("mask", mask)):
        if ids is not None:
            require_shape(name, ids, input_ids.shape)
    if position_ids is None:
        position_ids = xp.reshape(xp.arange(length, dtype=xp.dtype(INT32)), (1, length))
    require_broadcasts("position_ids", position_ids, input_ids.shape)
    if segment_ids is None:
        segment_ids = xp.zeros_like(input_ids)
    total = _embedded(xp, "input_ids", word_embedding, input_ids)
    total = total + _embedded(xp, "position_ids", position_embedding, position_ids)
    if segment_embedding is not None:
        total = total + _embedded(xp, "segment_ids", segment_embedding, segment_ids)
    for name, vector in (("gamma", gamma), ("beta", beta)):
        require_shape(name, vector, total.shape[-1:])
    Y, _, _ = LayerNormalization(xp, total, wide(xp, gamma), wide(xp, beta), epsilon=epsilon)
    int32 = xp.dtype(INT32)
    ones = xp.zeros((batch,), dtype=int32)
    if mask is not None:
        ones = xp.sum(xp.astype(xp.equal(mask, 1), int32), axis=1, dtype=int32)
    dtype = word_embedding.dtype
    return xp.astype(Y, dtype), ones, xp.astype(total, dtype)


def _embedded(xp: Backend, name: str, table: Array, ids: Array) -> Array:
    """Return the rows of the table in float32 or wider; ids are not counted from the end."""
    if table.ndim != 2 or not table.shape[0]:
        raise ValueError(f"the embedding for {name} has shape {table.shape}, but must have rows")
    xp.require(ids, Within(name, 0, table.shape[0] - 1))
    return wide(xp, Gather(xp, table, ids))


# -- over groups of channels ----------------------------------------------------------------------


@op(domain="com.microsoft")
def GroupNorm(
    xp: Backend,
    X: Array,
    gamma: Array,
    beta: Array,
    *,
    activation: int,
    channels_last: int = 1,
    epsilon: float = 1e-5,
    groups: int,
) -> Array:
    """Normalise groups of channels, scale and shift each; `activation` 1 applies SiLU."""
    require_one_of("activation", activation, (0, 1))
    x = wide(xp, channels_first(xp, X, channels_last))
    scale, shift = wide(xp, gamma), wide(xp, beta)
    Y = GroupNormalization(xp, x, scale, shift, num_groups=groups, epsilon=epsilon)
    Y = xp.astype(Swish(xp, Y) if activation else Y, X.dtype)
    return xp.moveaxis(Y, 1, -1) if channels_last else Y


@op(domain="com.microsoft")
def SkipGroupNorm(
    xp: Backend,
    X: Array,
    gamma: Array,
    beta: Array,
    skip: Array,
    bias: Array | None = None,
    *,
    channels_last: int = 1,
    **others: Annotated[Any, GroupNorm],
) -> tuple[Array, Array]:
    """Normalise the sum of `X`, `skip` and `bias`; return also the sum."""
    axis = X.ndim - 1 if channels_last else 1
    of_channels = tuple(n if i in (0, axis) else 1 for i, n in enumerate(X.shape))
    if skip.ndim == 2:
        require_shape("skip", skip, (X.shape[0], X.shape[axis]))
        skip = xp.reshape(skip, of_channels)
    if skip.shape not in (X.shape, of_channels):
        raise ValueError(
            f"skip has shape {skip.shape}, but must have shape {X.shape} or {of_channels}"
        )
    total = wide(xp, X) + wide(xp, skip)
    if bias is not None:
        require_shape("bias", bias, (X.shape[axis],))
        total = total + xp.reshape(wide(xp, bias), (1, *of_channels[1:]))
    Y = GroupNorm(xp, total, gamma, beta, channels_last=channels_last, **others)
    return xp.astype(Y, X.dtype), xp.astype(total, X.dtype)


# -- over parts of the last axis ------------------------------------------------------------------


@op(domain="com.microsoft")
def GatedRMSNorm(
    xp: Backend,
    X: Array,
    scale: Array,
    gate: Array,
    *,
    activation: str = "silu",
    epsilon: float = 1e-5,
) -> Array:
    """Normalise each run of as many elements as `scale` has, and multiply by the activated gate."""
    require_one_of("activation", activation, ("silu", "swish", "sigmoid"))
    require_shape("gate", gate, X.shape)
    if scale.ndim != 1 or not scale.size or X.ndim == 0 or X.shape[-1] % scale.size:
        raise ValueError(
            f"scale has shape {scale.shape}, but must be a vector of a length that divides the "
            f"last axis of X, whose shape is {X.shape}"
        )
    x = xp.reshape(wide(xp, X), (*X.shape[:-1], X.shape[-1] // scale.size, scale.size))
    Y = xp.reshape(RMSNormalization(xp, x, wide(xp, scale), epsilon=epsilon), X.shape)
    factor = (Sigmoid if activation == "sigmoid" else Swish)(xp, wide(xp, gate))
    return xp.astype(Y * factor, X.dtype)


@op(domain="com.microsoft")
def BranchwiseRMSNorm(
    xp: Backend,
    X: Array,
    scale: Array | None = None,
    *,
    epsilon: float = 1e-5,
    num_branches: int = 0,
) -> Array:
    """Normalise each branch: the last axis, or one of the equal parts into which it is divided."""
    if X.ndim < 2 - bool(num_branches) or num_branches < 0 or X.shape[-1] % (num_branches or 1):
        raise ValueError(f"X of shape {X.shape} cannot be divided into {num_branches} branches")
    x = wide(xp, X)
    if num_branches:
        x = xp.reshape(x, (*X.shape[:-1], num_branches, X.shape[-1] // num_branches))
    x = x / root_mean_square(xp, x, (x.ndim - 1,), epsilon)
    if scale is not None:
        x = x * _per_branch(xp, scale, x.shape[-2:])
    return xp.astype(xp.reshape(x, X.shape), X.dtype)


def _per_branch(xp: Backend, scale: Array, shape: tuple[int, ...]) -> Array:
    """Return the scale in a shape that broadcasts to branches of this shape."""
    branches, length = shape
    if scale.shape in (shape, (length,)):
        return wide(xp, scale)
    require_shape("scale", scale, (branches * length,))
    return xp.reshape(wide(xp, scale), shape)
