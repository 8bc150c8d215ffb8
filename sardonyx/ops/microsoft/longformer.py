"""LongformerAttention: to the tokens nearby, and to and from a few that see all others."""

from __future__ import annotations

import math

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.activation import Softmax
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import op
from sardonyx.ops.precision import wide


@op(domain="com.microsoft")
def LongformerAttention(
    xp: Backend,
    input: Array,
    weight: Array,
    bias: Array,
    mask: Array,
    global_weight: Array,
    global_bias: Array,
    global_: Array,
    *,
    num_heads: int,
    window: int,
) -> Array:
    """Attend to `window` tokens on either side and to the global ones; these attend to all.

    Global tokens attend with projections of their own. All pairs of tokens get a score, of which
    most are hidden: which tokens are global is known only when the program runs.
    """
    if input.ndim != 3 or num_heads < 1 or input.shape[2] % num_heads or window < 1:
        raise ValueError(
            f"input has shape {input.shape}, but must be (batch, length, size), where "
            f"{num_heads} heads divide the size; window is {window}, but must be positive"
        )
    batch, length, hidden = input.shape
    for name, x in (("weight", weight), ("global_weight", global_weight)):
        require_shape(name, x, (hidden, 3 * hidden))
    for name, x in (("bias", bias), ("global_bias", global_bias)):
        require_shape(name, x, (3 * hidden,))
    for name, x in (("mask", mask), ("global", global_)):
        require_shape(name, x, (batch, length))
    is_global = xp.not_equal(global_, 0)
    place = xp.arange(length)
    is_near = xp.abs(place[:, None] - place) <= window
    bias_of_keys = wide(xp, mask)[:, None, None, :]
    near = _mixed(
        xp,
        _projected(xp, input, weight, bias, num_heads),
        xp.where(is_near | is_global[:, None, None, :], bias_of_keys, -math.inf),
    )
    all_tokens = _mixed(
        xp, _projected(xp, input, global_weight, global_bias, num_heads), bias_of_keys
    )
    y = xp.where(is_global[:, None, :, None], all_tokens, near)
    return xp.reshape(xp.permute_dims(y, (0, 2, 1, 3)), input.shape)


def _projected(xp: Backend, x: Array, weight: Array, bias: Array, heads: int) -> Array:
    """Return queries, keys and values of (3, batch, heads, length, size)."""
    batch, length, hidden = x.shape
    rows = xp.reshape(xp.matmul(x, weight) + bias, (batch, length, 3, heads, hidden // heads))
    return xp.permute_dims(rows, (2, 0, 3, 1, 4))


def _mixed(xp: Backend, projected: Array, bias: Array) -> Array:
    """Return the values mixed by the softmax of the scores and the bias."""
    query, key, value = (projected[i, ...] for i in range(3))
    if not value.size:
        return value
    scores = wide(xp, xp.attention_scores(query, key, 1 / math.sqrt(query.shape[3])))
    weights = Softmax(xp, scores + bias)
    return xp.attention_mix(xp.astype(weights, value.dtype), value)
