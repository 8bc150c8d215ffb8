"""Gated delta networks over packed requests, with a state that is one matrix for each head."""

from __future__ import annotations

import math
from typing import NamedTuple

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import Within
from sardonyx.backends.standard import Array
from sardonyx.ops import linear_attention
from sardonyx.ops.activation import Sigmoid, Softplus
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import Outputs, op
from sardonyx.ops.dtypes import FLOAT32, INT64
from sardonyx.ops.linear_attention import RULES
from sardonyx.ops.microsoft.packed_requests import MOST_CAPTURED
from sardonyx.ops.options import require_one_of

# Added to the sum of squares under a norm, so that vectors of zeros stay zeros.
NORM_EPSILON = 1e-6


class Tokens(NamedTuple):
    """Arrays in float32 whose axes are tokens, heads and mostly elements; first packed."""

    query: Array
    key: Array
    value: Array
    # The logarithm of the decay, for each head or each element of its keys.
    decay: Array | None
    beta: Array | None


@op(domain="com.microsoft")
def GatedDeltaNet(
    xp: Backend,
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    cu_seqlens: Array | None = None,
    decay: Array | None = None,
    beta: Array | None = None,
    initial_state: Array | None = None,
    a_log: Array | None = None,
    dt_bias: Array | None = None,
    capture_count: Array | None = None,
    state_update_active: Array | None = None,
    *,
    beta_activation: str = "none",
    chunk_size: int = 64,
    gate_activation: str = "none",
    qk_l2_norm: int = 0,
    scale: float = 0.0,
    state_update_capacity: int = 0,
    update_rule: str = "gated_delta",
    outputs: Outputs,
) -> tuple[Array, Array, Array]:
    """Compute the recurrence of LinearAttention for each request, from its own state.

    Neighbouring heads of values share one of queries and keys. The states have the axis of values
    first. Requests of different lengths are padded to the number of all tokens.
    """
    require_one_of("update_rule", update_rule, RULES)
    require_one_of("gate_activation", gate_activation, ("none", "qwen"))
    require_one_of("beta_activation", beta_activation, ("none", "sigmoid"))
    dtype, leading = query.dtype, query.shape[:-2]
    q, k, v = _by_token(xp, query, key, value, initial_state)
    count, heads, size = v.shape
    packing = Packing.of(xp, cu_seqlens, initial_state, count)
    if qk_l2_norm:
        q, k = (_normalized(xp, x) for x in (q, k))
    decay = _decay(xp, decay, a_log, dt_bias, gate_activation, count, heads)
    if beta is not None:
        if beta.size != count * heads or beta.shape[-1:] != (heads,):
            raise ValueError(f"beta has shape {beta.shape}, but must have ({count}, {heads})")
        beta = xp.reshape(xp.astype(beta, v.dtype), (count, heads))
        beta = Sigmoid(xp, beta) if beta_activation == "sigmoid" else beta
    gates = (None if x is None else packing.by_request(xp, x) for x in (decay, beta))
    tokens = Tokens(*(packing.by_request(xp, x) for x in (q, k, v)), *gates)
    if initial_state is None:
        initial_state = xp.zeros((packing.batch, heads, size, k.shape[2]), dtype=v.dtype)
    require_shape("initial_state", initial_state, (packing.batch, heads, size, k.shape[2]))
    state = xp.matrix_transpose(initial_state)
    y, final = _recurrence(xp, tokens, state, update_rule, chunk_size, scale)
    y = xp.astype(packing.packed(xp, y), dtype)
    if key is not None and len(leading) == 2:
        y = xp.reshape(y, (*leading, heads, size))
    if outputs < 3:
        return y, xp.matrix_transpose(final), final
    captured = _captured(xp, packing, capture_count, state_update_active, state_update_capacity)
    return y, xp.matrix_transpose(final), _state_update(xp, tokens, state, captured)


# -- packed tokens ---------------------------------------------------------------------------------


class Packing(NamedTuple):
    """Where the tokens of each request lie among all tokens."""

    batch: int
    # The length of all requests, or of the longest that there may be.
    length: int
    # The first token and the number of tokens of each request; None if all are equally long.
    starts: Array | None
    lengths: Array | None

    @classmethod
    def of(cls, xp: Backend, bounds: Array | None, state: Array | None, count: int) -> Packing:
        if bounds is None:
            if state is None or state.ndim != 4 or not state.shape[0] or count % state.shape[0]:
                shape = None if state is None else state.shape
                raise ValueError(
                    f"without cu_seqlens, initial_state must say into how many requests the {count}"
                    f" tokens divide; its shape is {shape}"
                )
            return cls(state.shape[0], count // state.shape[0], None, None)
        if bounds.ndim != 1 or bounds.shape[0] < 2:
            raise ValueError(
                f"cu_seqlens has shape {bounds.shape}, but must have batch + 1 numbers"
            )
        xp.require(bounds, Within("cu_seqlens", 0, count))
        bounds = xp.astype(bounds, xp.dtype(INT64))
        return cls(bounds.shape[0] - 1, count, bounds[:-1], bounds[1:] - bounds[:-1])

    def by_request(self, xp: Backend, x: Array) -> Array:
        """Return packed tokens as (batch, length, ...), with zeros after each request."""
        if self.starts is None or self.lengths is None:
            return xp.reshape(x, (self.batch, self.length, *x.shape[1:]))
        place = xp.arange(self.length, dtype=self.starts.dtype)
        token = xp.minimum(self.starts[:, None] + place, max(self.length - 1, 0))
        is_there = place < self.lengths[:, None]
        rows = xp.gather(x, [token])
        is_there = xp.reshape(is_there, (*is_there.shape, *(1 for _ in x.shape[1:])))
        return xp.where(is_there, rows, xp.zeros_like(rows))

    def packed(self, xp: Backend, x: Array) -> Array:
        """Return (batch, length, ...) as packed tokens."""
        if self.starts is None or self.lengths is None:
            return xp.reshape(x, (self.batch * self.length, *x.shape[2:]))
        token = xp.arange(self.length, dtype=self.starts.dtype)
        ends = self.starts + self.lengths
        row = xp.sum(xp.astype(token[:, None] >= ends, token.dtype), axis=1, dtype=token.dtype)
        row = xp.minimum(row, self.batch - 1)
        place = xp.maximum(token - xp.gather(self.starts, [row]), xp.zeros_like(token))
        return xp.gather(x, [row, place])


def _by_token(
    xp: Backend, query: Array, key: Array | None, value: Array | None, state: Array | None
) -> tuple[Array, Array, Array]:
    """Return queries, keys and values of (tokens, heads, size) in float32."""
    wide = xp.dtype(FLOAT32)
    if (key is None) != (value is None):
        raise ValueError("key and value go together; one of them is missing")
    if key is None or value is None:
        return _unpacked(xp, xp.astype(query, wide), state)
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.ndim not in (3, 4) or x.shape[:-2] != query.shape[:-2]:
            raise ValueError(
                f"{name} has shape {x.shape}, but must have tokens, heads and a size, or a batch "
                "axis before them"
            )
    count = math.prod(query.shape[:-2])
    q, k, v = (xp.reshape(xp.astype(x, wide), (count, *x.shape[-2:])) for x in (query, key, value))
    if q.shape != k.shape or not q.shape[1] or v.shape[1] % q.shape[1] or not v.shape[1]:
        raise ValueError(
            f"query has shape {query.shape}, key {key.shape} and value {value.shape}, but query "
            "and key must be alike, with a number of heads that divides that of value"
        )
    return q, k, v


def _unpacked(xp: Backend, query: Array, state: Array | None) -> tuple[Array, Array, Array]:
    """Divide rows that hold queries, keys and values, by the sizes of the state."""
    if state is None or state.ndim != 4:
        raise ValueError("without key and value, initial_state must have the sizes of the heads")
    _, heads, size, key_size = state.shape
    keys = query.shape[-1] - heads * size
    if query.ndim < 2 or keys <= 0 or keys % (2 * key_size) or heads % (keys // 2 // key_size):
        raise ValueError(
            f"query has shape {query.shape}, which does not divide into heads of the sizes of "
            f"initial_state, {state.shape}"
        )
    rows = xp.reshape(query, (math.prod(query.shape[:-1]), query.shape[-1]))
    q, k, v = rows[:, : keys // 2], rows[:, keys // 2 : keys], rows[:, keys:]
    q, k = (xp.reshape(x, (x.shape[0], keys // 2 // key_size, key_size)) for x in (q, k))
    return q, k, xp.reshape(v, (v.shape[0], heads, size))


# -- gates -----------------------------------------------------------------------------------------


def _normalized(xp: Backend, x: Array) -> Array:
    return x / xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True) + NORM_EPSILON)


def _decay(
    xp: Backend,
    decay: Array | None,
    a_log: Array | None,
    dt_bias: Array | None,
    activation: str,
    count: int,
    heads: int,
) -> Array | None:
    """Return the logarithm of the decay as (tokens, heads) or (tokens, heads, key size)."""
    has_gate = activation == "qwen"
    if (a_log is not None or dt_bias is not None) != has_gate:
        raise ValueError("a_log and dt_bias go together with gate_activation 'qwen'")
    if decay is None:
        if has_gate:
            raise ValueError("gate_activation 'qwen' needs the input decay")
        return None
    if not count or decay.size % (count * heads):
        raise ValueError(
            f"decay has shape {decay.shape}, but must have {count} tokens and {heads} heads"
        )
    by_element = decay.size != count * heads
    shape = (count, heads, decay.size // (count * heads)) if by_element else (count, heads)
    decay = xp.reshape(xp.astype(decay, xp.dtype(FLOAT32)), shape)
    if a_log is None or dt_bias is None:
        if has_gate:
            raise ValueError("gate_activation 'qwen' needs the inputs a_log and dt_bias")
        return decay
    ones = (1,) if by_element else ()
    for name, x in (("a_log", a_log), ("dt_bias", dt_bias)):
        require_shape(name, x, (heads,))
    slope, bias = (xp.reshape(x, (heads, *ones)) for x in (a_log, dt_bias))
    return -xp.exp(slope) * Softplus(xp, decay + bias)


# -- the recurrence --------------------------------------------------------------------------------


def _recurrence(
    xp: Backend, tokens: Tokens, state: Array, rule: str, chunk_size: int, scale: float
) -> tuple[Array, Array]:
    """Return (batch, length, heads, size), and the state after the last token."""
    batch, length, heads, size = tokens.value.shape
    joined = (_by_value_head(xp, tokens.query, heads), _by_value_head(xp, tokens.key, heads))
    query, key, value = (_joined(xp, x) for x in (*joined, tokens.value))
    decay, beta = (None if x is None else _joined(xp, x) for x in (tokens.decay, tokens.beta))
    y, final = linear_attention.LinearAttention(
        xp,
        *(query, key, value, state, decay, beta),
        chunk_size=chunk_size,
        kv_num_heads=heads,
        q_num_heads=heads,
        scale=scale,
        update_rule=rule,
    )
    return xp.reshape(y, (batch, length, heads, size)), final


def _joined(xp: Backend, x: Array) -> Array:
    """Return all elements of a token on one axis."""
    batch, length, *rest = x.shape
    return xp.reshape(x, (batch, length, math.prod(rest)))


def _by_value_head(xp: Backend, x: Array, heads: int) -> Array:
    """Repeat queries or keys for the heads of values that share them."""
    return x if x.shape[2] == heads else xp.repeat(x, heads // x.shape[2], axis=2)


# -- updates of the state --------------------------------------------------------------------------


def _captured(
    xp: Backend,
    packing: Packing,
    capture_count: Array | None,
    active: Array | None,
    capacity: int,
) -> Array:
    """Return, for each request and each of its first tokens, whether its update is a result."""
    if not 0 <= capacity <= MOST_CAPTURED or (capacity > 0) != (capture_count is not None):
        raise ValueError(
            f"state_update_capacity is {capacity}, but must be 0 to {MOST_CAPTURED}, and positive "
            "exactly if capture_count is present"
        )
    place = xp.arange(capacity, dtype=xp.dtype(INT64))
    if capture_count is None:
        return xp.broadcast_to(place < 0, (packing.batch, capacity))
    require_shape("capture_count", capture_count, (packing.batch,))
    lengths = packing.lengths
    if lengths is None:
        lengths = xp.full((packing.batch,), packing.length, dtype=place.dtype)
    most = xp.minimum(xp.astype(capture_count, place.dtype), lengths)
    captured = place < most[:, None]
    return captured if active is None else captured & xp.not_equal(xp.reshape(active, ()), 0)


def _state_update(xp: Backend, tokens: Tokens, state: Array, captured: Array) -> Array:
    """Return the decays, keys and written values of first tokens, and zeros for the others.

    After each token the state is `decay * state + outer(key, written)`.
    """
    batch, length, heads, size = tokens.value.shape
    capacity = captured.shape[1]
    decays, keys, values = [], [], []
    for place in range(min(capacity, length)):
        decay = tokens.decay
        if decay is None:
            shrink = xp.ones((batch, heads), dtype=state.dtype)
        elif decay.ndim == 4:
            raise ValueError("state_update_capacity needs one decay per head, not one per element")
        else:
            shrink = xp.exp(decay[:, place, ...])
        state = state * shrink[:, :, None, None]
        key = _by_value_head(xp, tokens.key, heads)[:, place, :, :, None]
        written = tokens.value[:, place, :, None, :]
        if tokens.beta is not None:
            stored = xp.matmul(xp.matrix_transpose(key), state)
            written = tokens.beta[:, place, :, None, None] * (written - stored)
        state = state + xp.matmul(key, written)
        decays.append(shrink)
        keys.append(xp.reshape(tokens.key[:, place, :, :], (batch, -1)))
        values.append(xp.reshape(written, (batch, heads * size)))
    sizes = (heads, tokens.key.shape[2] * tokens.key.shape[3], heads * size)
    parts = []
    for rows, width in zip((decays, keys, values), sizes, strict=True):
        missing = [xp.zeros((batch, width), dtype=state.dtype)] * (capacity - len(rows))
        part = xp.stack([*rows, *missing], axis=1)
        part = xp.where(captured[:, :, None], part, xp.zeros_like(part))
        parts.append(xp.reshape(part, (batch, capacity * width)))
    return xp.concat(parts, axis=1)
