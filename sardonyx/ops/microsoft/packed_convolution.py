"""Convolution of each channel with its past, for requests one after the other in one array."""

from __future__ import annotations

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.activation import Swish
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import op
from sardonyx.ops.microsoft.packed_requests import Requests
from sardonyx.ops.options import require_one_of
from sardonyx.ops.precision import wide


@op(domain="com.microsoft")
def VarlenCausalConvWithState(
    xp: Backend,
    input: Array,
    weight: Array,
    cumulative_sequence_length: Array,
    bias: Array | None,
    initial_state: Array,
    capture_count: Array | None = None,
    *,
    activation: str = "none",
    dilation: int = 1,
    state_update_capacity: int = 0,
) -> tuple[Array, Array, Array]:
    """Return the convolved tokens, the last tokens of each request, and some of its first ones.

    Each request goes on from its `initial_state`, the last tokens before this call.
    """
    require_one_of("activation", activation, ("none", "silu", "swish"))
    if input.ndim != 2 or weight.ndim != 3 or dilation < 1:
        raise ValueError(
            f"input has shape {input.shape}, weight has shape {weight.shape} and dilation is "
            f"{dilation}, but they must have 2 and 3 axes, and dilation must be at least 1"
        )
    total, channels = input.shape
    taps = weight.shape[2]
    require_shape("weight", weight, (channels, 1, taps))
    requests = Requests.of(xp, total, cumulative_sequence_length, (taps - 1) * dilation)
    require_shape("initial_state", initial_state, (requests.count, channels, requests.past))
    past = xp.moveaxis(initial_state, 1, -1)
    row, place = requests.places(xp)
    Y = xp.zeros(input.shape, dtype=wide(xp, input).dtype)
    for tap in range(taps):
        seen = requests.at(xp, input, past, row, place - (taps - 1 - tap) * dilation)
        Y = Y + wide(xp, seen) * wide(xp, weight[:, 0, tap])
    if bias is not None:
        require_shape("bias", bias, (channels,))
        Y = Y + wide(xp, bias)
    Y = xp.astype(Y if activation == "none" else Swish(xp, Y), input.dtype)
    state = xp.moveaxis(requests.at(xp, input, past, *requests.last_places(xp)), -1, 1)
    *first, is_captured = requests.first_places(xp, capture_count, state_update_capacity)
    tokens = requests.at(xp, input, past, *first)
    updates = xp.where(xp.expand_dims(is_captured, axis=-1), tokens, xp.zeros_like(tokens))
    return Y, state, updates
