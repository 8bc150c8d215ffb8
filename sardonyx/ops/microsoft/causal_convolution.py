"""Convolution of each channel with its past, of which the last elements are a state."""

from __future__ import annotations

import math

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.activation import Swish
from sardonyx.ops.axes import require_shape
from sardonyx.ops.convolution import Conv
from sardonyx.ops.definition import Ints, op
from sardonyx.ops.options import require_one_of
from sardonyx.ops.precision import wide


@op(domain="com.microsoft")
def CausalConvWithState(
    xp: Backend,
    input: Array,
    weight: Array,
    bias: Array | None = None,
    past_state: Array | None = None,
    *,
    activation: str = "none",
    channels_last: int = 0,
    dilation: int = 1,
    ndim: int = 1,
    state_window: int = 0,
) -> tuple[Array, Array]:
    """Convolve each channel over the past state and the input, and return also the new state.

    With `state_window` there is a state after each of the last elements of the input.
    """
    if ndim != 1:
        raise ValueError(f"ndim is {ndim}, but must be 1, as in onnxruntime's own kernels")
    require_one_of("activation", activation, ("none", "silu", "swish"))
    if dilation < 1 or not 0 <= state_window <= 8:
        raise ValueError(
            f"dilation is {dilation} and state_window is {state_window}, but they must be at "
            "least 1, and 0 to 8"
        )
    x = _channels_first(xp, input) if channels_last else input
    if x.ndim != 3 or weight.ndim != 3 or weight.shape[:2] != (x.shape[1], 1):
        raise ValueError(
            f"input has shape {input.shape} and weight has shape {weight.shape}, but must have a "
            "batch axis, channels and a length, and one filter per channel"
        )
    reach = (weight.shape[2] - 1) * dilation
    axis = 1 if channels_last else 2
    shape = (*input.shape[:axis], reach, *input.shape[axis + 1 :])
    past = _last_state(xp, past_state, input, shape, state_window)
    whole = xp.concat([past, input], axis=axis)
    Y = Conv(
        xp,
        wide(xp, _channels_first(xp, whole) if channels_last else whole),
        wide(xp, weight),
        None if bias is None else wide(xp, bias),
        group=x.shape[1],
        dilations=(dilation,),
    )
    Y = xp.astype(Y if activation == "none" else Swish(xp, Y), input.dtype)
    if channels_last:
        Y = xp.reshape(xp.moveaxis(Y, 1, -1), input.shape)
    return Y, _states(xp, whole, shape, axis, state_window)


def _channels_first(xp: Backend, x: Array) -> Array:
    """Return (N, L, d1, ..., dn) as (N, d1 * ... * dn, L)."""
    if x.ndim < 3:
        raise ValueError(f"input has shape {x.shape}, but must have at least three axes")
    batch, length, *channels = x.shape
    return xp.moveaxis(xp.reshape(x, (batch, length, math.prod(channels))), -1, 1)


def _last_state(
    xp: Backend, past_state: Array | None, input: Array, shape: Ints, window: int
) -> Array:
    """Return the last state of a window, or the only state; zeros if there is none."""
    if past_state is None:
        return xp.zeros(shape, dtype=input.dtype)
    require_shape("past_state", past_state, (window, *shape) if window else shape)
    return past_state[-1, ...] if window else past_state


def _states(xp: Backend, whole: Array, shape: Ints, axis: int, window: int) -> Array:
    """Return the last elements of the past and the input, or a window of those before them too."""
    reach = shape[axis]
    length = whole.shape[axis] - reach
    before = (slice(None),) * axis
    if not window:
        return whole[(*before, slice(length, None), ...)]
    ends = range(length - window + 1, length + 1)
    states = [
        # Before the first element of the input there is no state.
        whole[(*before, slice(end, end + reach), ...)]
        if end > 0
        else xp.zeros(shape, dtype=whole.dtype)
        for end in ends
    ]
    return xp.stack(states, axis=0)
