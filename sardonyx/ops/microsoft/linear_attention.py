"""Linear attention of com.microsoft and the operators before it, with states of the last tokens."""

from __future__ import annotations

from collections.abc import Callable

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops import linear_attention
from sardonyx.ops.activation import Sigmoid, Softplus
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import op
from sardonyx.ops.precision import wide


@op(domain="com.microsoft")
def LinearAttention(
    xp: Backend,
    query: Array,
    key: Array,
    value: Array,
    past_state: Array | None = None,
    decay: Array | None = None,
    beta: Array | None = None,
    *,
    chunk_size: int = 64,
    kv_num_heads: int,
    q_num_heads: int,
    scale: float = 0.0,
    state_window: int = 0,
    update_rule: str = "gated_delta",
) -> tuple[Array, Array]:
    """Compute as the standard's operator; a head of queries may have several heads of keys.

    With a window, the states after each of the last tokens are joined along a first axis.
    """
    if q_num_heads and kv_num_heads > q_num_heads:
        query = _repeated(xp, query, q_num_heads, kv_num_heads)
        q_num_heads = kv_num_heads
    arrays = (query, key, value, decay, beta)

    def run(start: int, end: int, state: Array | None) -> tuple[Array, Array]:
        q, k, v, d, b = (None if x is None else x[:, start:end, :] for x in arrays)
        return linear_attention.LinearAttention(
            xp,
            *(q, k, v, state, d, b),
            chunk_size=chunk_size,
            kv_num_heads=kv_num_heads,
            q_num_heads=q_num_heads,
            scale=scale,
            update_rule=update_rule,
        )

    if not state_window:
        return run(0, query.shape[1], past_state)
    return _with_states(xp, run, query.shape[1], _latest(past_state, state_window), state_window)


@op(domain="com.microsoft")
def LinearAttentionGate(
    xp: Backend, a: Array, dt_bias: Array, decay_scale: Array, b: Array | None = None
) -> tuple[Array, Array]:
    """Return `decay_scale * softplus(a + dt_bias)` and `sigmoid(b)`, both computed in float32."""
    for name, x in {"dt_bias": dt_bias, "decay_scale": decay_scale}.items():
        require_shape(name, x, a.shape[-1:])
    decay = xp.astype(decay_scale * Softplus(xp, wide(xp, a) + dt_bias), a.dtype)
    # Without `b` no node has the second output.
    return decay, decay if b is None else Sigmoid(xp, b)


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
    """Convolve as the standard's operator; a dilated kernel has zeros between its elements."""
    if ndim != 1 or dilation < 1 or weight.ndim != 3:
        raise ValueError(
            f"ndim is {ndim}, dilation {dilation} and weight has {weight.ndim} axes; one axis of "
            "positions, a positive dilation and a weight of three axes are supported"
        )
    past = _latest(past_state, state_window)
    x = _channels_first(xp, input) if channels_last else input
    if past is not None and channels_last:
        past = _channels_first(xp, past)
    weight = _dilated(xp, weight, dilation)
    if past is None:
        past = xp.zeros((x.shape[0], x.shape[1], weight.shape[2] - 1), dtype=x.dtype)
    y, state = linear_attention.CausalConvWithState(
        xp, x, weight, bias, past, activation=activation
    )
    rest = input.shape[2:] if channels_last else None
    if state_window:
        extended = xp.concat([past, x], axis=2)
        ends = [x.shape[2] - state_window + 1 + i for i in range(state_window)]
        state = xp.stack(
            [
                extended[:, :, end : end + weight.shape[2] - 1] if end > 0 else xp.zeros_like(past)
                for end in ends
            ]
        )
    if rest is not None:
        y = xp.reshape(xp.permute_dims(y, (0, 2, 1)), input.shape)
        axes = (*range(state.ndim - 2), state.ndim - 1, state.ndim - 2)
        state = xp.permute_dims(state, axes)
        state = xp.reshape(state, (*state.shape[:-1], *rest))
    return y, state


def _repeated(xp: Backend, query: Array, heads: int, count: int) -> Array:
    """Return `count` heads of queries, of which neighbours are equal."""
    if query.ndim != 3 or count % heads or query.shape[2] % heads:
        raise ValueError(f"query of shape {query.shape} has no {heads} heads for {count} of keys")
    batch, length, hidden = query.shape
    by_head = xp.reshape(query, (batch, length, heads, 1, hidden // heads))
    shape = (batch, length, heads, count // heads, hidden // heads)
    return xp.reshape(xp.broadcast_to(by_head, shape), (batch, length, count * hidden // heads))


def _latest(past: Array | None, window: int) -> Array | None:
    """Return the last of the states in a window."""
    if past is None or not window:
        return past
    if past.ndim < 1 or past.shape[0] != window:
        raise ValueError(f"past_state has shape {past.shape}, but must start with {window} states")
    return past[window - 1, ...]


def _with_states(
    xp: Backend,
    run: Callable[[int, int, Array | None], tuple[Array, Array]],
    length: int,
    state: Array | None,
    window: int,
) -> tuple[Array, Array]:
    """Run all tokens but the last ones at once, then each for itself, and join their states."""
    start = max(length - window + 1, min(length, 1))
    results = [run(0, start, state)]
    for token in range(start, length):
        results.append(run(token, token + 1, results[-1][1]))
    states = [state for _, state in results]
    missing = window - min(length, window)
    states = [xp.zeros_like(states[0])] * missing + states[: window - missing]
    return xp.concat([y for y, _ in results], axis=1), xp.stack(states)


def _channels_first(xp: Backend, x: Array) -> Array:
    if x.ndim < 3:
        raise ValueError(f"an input of shape {x.shape} needs (batch, length, channels)")
    x = xp.reshape(x, (*x.shape[:2], -1)) if x.ndim > 3 else x
    return xp.permute_dims(x, (0, 2, 1))


def _dilated(xp: Backend, weight: Array, dilation: int) -> Array:
    if dilation == 1 or not weight.shape[2]:
        return weight
    channels, one, size = weight.shape
    spread = xp.pad(weight[..., None], [(0, 0)] * 3 + [(0, dilation - 1)], 0.0)
    return xp.reshape(spread, (channels, one, size * dilation))[..., : (size - 1) * dilation + 1]
