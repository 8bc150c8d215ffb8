"""Linear attention of com.microsoft, with the states of the last tokens."""

from __future__ import annotations

from collections.abc import Callable

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops import linear_attention
from sardonyx.ops.definition import op


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
    kept = min(length, window)
    states = [xp.expand_dims(state, axis=0) for _, state in results[:kept]]
    last = results[-1][1]
    missing = xp.zeros((window - kept, *last.shape), dtype=last.dtype)
    return xp.concat([y for y, _ in results], axis=1), xp.concat([missing, *states])
