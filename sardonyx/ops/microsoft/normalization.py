"""Layer normalizations of onnxruntime: of the default domain, and with a residual before them.

All compute in float32 or wider and round once, at the end.
"""

from __future__ import annotations

from typing import Annotated, Any

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops import normalization
from sardonyx.ops.axes import axis_within, require_broadcasts, require_shape
from sardonyx.ops.definition import DType, op
from sardonyx.ops.dtypes import FLOAT32
from sardonyx.ops.normalization import LayerNormalization
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
    root = normalization.root_mean_square(xp, x, axes, epsilon)
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
