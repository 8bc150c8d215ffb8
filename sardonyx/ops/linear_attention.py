"""Linear attention, whose past is one matrix, and the convolution that goes before it."""

from __future__ import annotations

import math

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.activation import Swish
from sardonyx.ops.definition import Ints, op
from sardonyx.ops.precision import at_least_float32

FLOAT32 = np.dtype(np.float32)
# Which of the inputs `decay` and `beta` each rule has.
RULES = {
    "linear": (False, False),
    "gated": (True, False),
    "delta": (False, True),
    "gated_delta": (True, True),
}
# Tokens taken at once, at most. Where each element of a key has a decay of its own, the work in a
# chunk is no matrix product, and grows with its length.
CHUNK, CHUNK_BY_ELEMENT = 128, 16


@op
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
    update_rule: str = "gated_delta",
) -> tuple[Array, Array]:
    """The recurrence over tokens, in float32 and by whole chunks of them."""
    _check_gates(update_rule, decay, beta)
    d_k, d_v = _check_sizes(query, key, value, q_num_heads, kv_num_heads)
    batch, length, _ = query.shape
    wide = xp.dtype(FLOAT32)
    chunk = max(min(chunk_size, CHUNK, length), 1)
    if decay is None:
        decay = xp.zeros((batch, length, kv_num_heads), dtype=wide)
    elif _gate_size("decay", decay, query, kv_num_heads * d_k, kv_num_heads) > kv_num_heads:
        chunk = min(chunk, CHUNK_BY_ELEMENT)
    groups = (kv_num_heads, q_num_heads // kv_num_heads)
    tokens = [(query, groups), *((x, (kv_num_heads, 1)) for x in (key, value, decay))]
    if beta is not None:
        tokens.append((beta, (_gate_size("beta", beta, query, kv_num_heads, 1), 1)))
    inputs = tuple(_in_chunks(xp, xp.astype(x, wide), heads, chunk) for x, heads in tokens)
    first = xp.expand_dims(_first_state(xp, past_state, (batch, kv_num_heads, d_k, d_v)), axis=2)

    def step(carry: tuple[Array, ...], now: tuple[Array, ...]) -> tuple[tuple[Array], tuple[Array]]:
        state, read = _after_chunk(xp, *carry, *now)
        return (state,), (read,)

    (state,), (reads,) = xp.scan(step, (first,), inputs, inputs[0].shape[0])
    reads = xp.permute_dims(reads, (1, 0, 4, 2, 3, 5))
    out = xp.reshape(reads, (batch, reads.shape[1] * chunk, q_num_heads * d_v))[:, :length, :]
    out = out * (scale or 1 / math.sqrt(d_k))
    kept = query.dtype if past_state is None else past_state.dtype
    return xp.astype(out, query.dtype), xp.astype(xp.squeeze(state, axis=2), kept)


def _after_chunk(
    xp: Backend, state: Array, q: Array, k: Array, v: Array, decay: Array, beta: Array | None = None
) -> tuple[Array, Array]:
    """The state after a chunk, and what the chunk's queries read.

    All as if token by token: the state shrinks, then `written[t]` is put under `k[t]`, then `q[t]`
    reads. With a `beta` a token writes what is new in its value, which depends on what those before
    it wrote: a triangular system.
    """
    since_start = xp.exp(xp.cumulative_sum(decay, axis=-2))
    between = _decays_between(xp, decay)
    written = v
    if beta is not None:
        among = xp.tril(_products(xp, k, k, between) * beta, k=-1)
        known = xp.matmul(k * since_start, state)
        one = xp.eye(k.shape[-2], dtype=k.dtype)
        written = xp.solve_lower(among + one, beta * (v - known))
    read = xp.matmul(q * since_start, state)
    read = read + xp.matmul(_products(xp, q, k, between), written)
    until_end = k * xp.exp(between[..., -1, :, :])
    shrunk = state * xp.matrix_transpose(since_start[..., -1:, :])
    return shrunk + xp.matmul(xp.matrix_transpose(until_end), written), read


def _decays_between(xp: Backend, decay: Array) -> Array:
    """At [..., t, s, :] the sum of the decays after s, up to t. Before s, nothing is left.

    Not as the difference of two sums, of which one decay to nothing would leave NaN.
    """
    time = xp.arange(decay.shape[-2])
    t, s = time[:, None, None], time[None, :, None]
    after = xp.where(t > s, decay[..., :, None, :], xp.zeros((), dtype=decay.dtype))
    return xp.where(t >= s, xp.cumulative_sum(after, axis=-3), -math.inf)


def _products(xp: Backend, a: Array, k: Array, between: Array) -> Array:
    """What the keys at s give to `a` at t, after the decay between them."""
    if between.shape[-1] == 1:
        return xp.matmul(a, xp.matrix_transpose(k)) * xp.exp(between[..., 0])
    return xp.sum(a[..., :, None, :] * k[..., None, :, :] * xp.exp(between), axis=-1)


def _in_chunks(xp: Backend, x: Array, heads: tuple[int, int], chunk: int) -> Array:
    """(batch, length, ...) as (chunks, batch, *heads, chunk, size).

    The last chunk is filled with zeros, which neither shrink nor change the state.
    """
    batch, length, width = x.shape
    chunks = -(-length // chunk)
    x = xp.pad(x, [(0, 0), (0, chunks * chunk - length), (0, 0)], 0.0)
    x = xp.reshape(x, (batch, chunks, chunk, *heads, width // math.prod(heads)))
    return xp.permute_dims(x, (1, 0, 3, 4, 2, 5))


def _first_state(xp: Backend, past: Array | None, shape: Ints) -> Array:
    wide = xp.dtype(FLOAT32)
    if past is None:
        return xp.zeros(shape, dtype=wide)
    if past.shape != shape:
        raise ValueError(f"past_state has shape {past.shape}, but must have shape {shape}")
    return xp.astype(past, wide)


def _check_gates(update_rule: str, decay: Array | None, beta: Array | None) -> None:
    if update_rule not in RULES:
        raise ValueError(f"update_rule is {update_rule!r}, but must be one of {', '.join(RULES)}")
    gates = {"decay": decay, "beta": beta}
    for (name, gate), wanted in zip(gates.items(), RULES[update_rule], strict=True):
        if (gate is not None) != wanted:
            need = "needs the input" if wanted else "has no input"
            raise ValueError(f"the update rule {update_rule!r} {need} {name}")


def _check_sizes(
    query: Array, key: Array, value: Array, q_heads: int, kv_heads: int
) -> tuple[int, int]:
    """The sizes of a key and of a value."""
    if kv_heads < 1 or q_heads < 1 or q_heads % kv_heads:
        raise ValueError(f"{q_heads} heads of queries cannot share {kv_heads} heads of keys")
    named = {"query": (query, q_heads), "key": (key, kv_heads), "value": (value, kv_heads)}
    for name, (x, heads) in named.items():
        if x.ndim != 3 or x.shape[:2] != query.shape[:2] or x.shape[2] % heads:
            raise ValueError(f"{name} of shape {x.shape} is no batch of tokens of {heads} heads")
    d_k, d_v = key.shape[2] // kv_heads, value.shape[2] // kv_heads
    if query.shape[2] != q_heads * d_k or not d_k:
        raise ValueError(f"queries have size {query.shape[2] // q_heads}, but keys {d_k}")
    return d_k, d_v


def _gate_size(name: str, gate: Array, query: Array, *sizes: int) -> int:
    if gate.ndim != 3 or gate.shape[:2] != query.shape[:2] or gate.shape[2] not in sizes:
        raise ValueError(
            f"{name} has shape {gate.shape}, but must have {query.shape[:2]} and one of {sizes}"
        )
    return gate.shape[2]


@op
def CausalConvWithState(
    xp: Backend,
    input: Array,
    weight: Array,
    bias: Array | None = None,
    past_state: Array | None = None,
    *,
    activation: str = "none",
) -> tuple[Array, Array]:
    """Each channel by its own filter, over what came before; then that for the next call."""
    if activation not in ("none", "silu", "swish"):
        raise ValueError(f"activation is {activation!r}, but must be 'none', 'silu' or 'swish'")
    if input.ndim != 3 or weight.ndim != 3:
        raise ValueError(f"input and weight have {input.ndim} and {weight.ndim} axes, not three")
    batch, channels, length = input.shape
    kernel = weight.shape[2]
    if weight.shape[:2] != (channels, 1) or not kernel:
        raise ValueError(f"a weight of shape {weight.shape} does not fit {channels} channels")
    if bias is not None and bias.shape != (channels,):
        raise ValueError(f"bias has shape {bias.shape}, but must have shape {(channels,)}")
    past = (batch, channels, kernel - 1)
    if past_state is None:
        past_state = xp.zeros(past, dtype=input.dtype)
    elif past_state.shape != past:
        raise ValueError(f"past_state has shape {past_state.shape}, but must have shape {past}")
    if not length:
        return input, past_state
    known = xp.concat([past_state, input], axis=2)
    inputs = (known, weight) if bias is None else (known, weight, bias)
    return _filtered(xp, *inputs, activation=activation), known[:, :, length:]


@at_least_float32
def _filtered(
    xp: Backend, x: Array, weight: Array, bias: Array | None = None, *, activation: str
) -> Array:
    y = xp.convolution(
        x, weight, strides=(1,), pads=((0, 0),), dilations=(1,), groups=weight.shape[0]
    )
    if bias is not None:
        y = y + xp.reshape(bias, (-1, 1))
    return y if activation == "none" else Swish(xp, y)
