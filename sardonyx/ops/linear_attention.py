"""Linear attention, whose state is one matrix, and the causal convolution used before it."""

from __future__ import annotations

import math

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.activation import Swish
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import Ints, op
from sardonyx.ops.dtypes import FLOAT32
from sardonyx.ops.options import require_one_of
from sardonyx.ops.precision import at_least_float32

# For each update rule, whether it has the inputs `decay` and `beta`.
RULES = {
    "linear": (False, False),
    "gated": (True, False),
    "delta": (False, True),
    "gated_delta": (True, True),
}
# Maximum tokens per chunk. Where each element of a key has its own decay, the work in a chunk is
# not a matrix product, and grows with the square of its length.
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
    """Compute the recurrence over tokens in float32, one chunk of tokens at a time."""
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
    state_dtype = query.dtype if past_state is None else past_state.dtype
    return xp.astype(out, query.dtype), xp.astype(xp.squeeze(state, axis=2), state_dtype)


def _after_chunk(
    xp: Backend, state: Array, q: Array, k: Array, v: Array, decay: Array, beta: Array | None = None
) -> tuple[Array, Array]:
    """Return the state after a chunk, and the values that the chunk's queries read.

    The result is that of single tokens: the state decays, `written[t]` is stored under `k[t]`, then
    `q[t]` reads. With `beta`, a token writes only the difference to the stored value, which depends
    on the tokens before it: a triangular system.
    """
    since_start = xp.exp(xp.cumulative_sum(decay, axis=-2))
    between = _decays_between(xp, decay)
    written = v
    if beta is not None:
        among = xp.tril(_products(xp, k, k, between) * beta, k=-1)
        stored = xp.matmul(k * since_start, state)
        one = xp.eye(k.shape[-2], dtype=k.dtype)
        written = xp.solve_lower(among + one, beta * (v - stored))
    read = xp.matmul(q * since_start, state)
    read = read + xp.matmul(_products(xp, q, k, between), written)
    until_end = k * xp.exp(between[..., -1, :, :])
    shrunk = state * xp.matrix_transpose(since_start[..., -1:, :])
    return shrunk + xp.matmul(xp.matrix_transpose(until_end), written), read


def _decays_between(xp: Backend, decay: Array) -> Array:
    """Return at [..., t, s, :] the sum of the decays after s up to t; -inf where t < s.

    A difference of two cumulative sums would be NaN where a decay is -inf.
    """
    time = xp.arange(decay.shape[-2])
    t, s = time[:, None, None], time[None, :, None]
    after = xp.where(t > s, decay[..., :, None, :], xp.zeros((), dtype=decay.dtype))
    return xp.where(t >= s, xp.cumulative_sum(after, axis=-3), -math.inf)


def _products(xp: Backend, a: Array, k: Array, between: Array) -> Array:
    """Return the products of `a` at t and the keys at s, after the decay between them."""
    if between.shape[-1] == 1:
        return xp.matmul(a, xp.matrix_transpose(k)) * xp.exp(between[..., 0])
    return xp.sum(a[..., :, None, :] * k[..., None, :, :] * xp.exp(between), axis=-1)


def _in_chunks(xp: Backend, x: Array, heads: tuple[int, int], chunk: int) -> Array:
    """Reshape (batch, length, ...) to (chunks, batch, *heads, chunk, size).

    The last chunk is padded with zeros, which leave the state unchanged.
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
    require_shape("past_state", past, shape)
    return xp.astype(past, wide)


def _check_gates(update_rule: str, decay: Array | None, beta: Array | None) -> None:
    require_one_of("update_rule", update_rule, RULES)
    gates = {"decay": decay, "beta": beta}
    for (name, gate), wanted in zip(gates.items(), RULES[update_rule], strict=True):
        if (gate is not None) != wanted:
            verb = "needs" if wanted else "does not use"
            raise ValueError(f"update_rule {update_rule!r} {verb} the input {name}")


def _check_sizes(
    query: Array, key: Array, value: Array, q_heads: int, kv_heads: int
) -> tuple[int, int]:
    """Return the sizes of a key and of a value per head."""
    if kv_heads < 1 or q_heads < 1 or q_heads % kv_heads:
        raise ValueError(
            f"q_num_heads is {q_heads}, but must be a multiple of kv_num_heads {kv_heads}"
        )
    named = {"query": (query, q_heads), "key": (key, kv_heads), "value": (value, kv_heads)}
    for name, (x, heads) in named.items():
        if x.ndim != 3 or x.shape[:2] != query.shape[:2] or x.shape[2] % heads:
            raise ValueError(
                f"{name} has shape {x.shape}, but must have (batch, length, size) with a size "
                f"divisible by {heads} heads"
            )
    d_k, d_v = key.shape[2] // kv_heads, value.shape[2] // kv_heads
    if query.shape[2] != q_heads * d_k or not d_k:
        raise ValueError(f"queries have size {query.shape[2] // q_heads} per head, but keys {d_k}")
    return d_k, d_v


def _gate_size(name: str, gate: Array, query: Array, *sizes: int) -> int:
    if gate.ndim != 3 or gate.shape[:2] != query.shape[:2] or gate.shape[2] not in sizes:
        raise ValueError(
            f"{name} has shape {gate.shape}, but must have {query.shape[:2]} and then one of "
            f"{sizes}"
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
    """Convolve each channel with its own causal filter; return also the state for the next call."""
    require_one_of("activation", activation, ("none", "silu", "swish"))
    if input.ndim != 3 or weight.ndim != 3:
        raise ValueError(
            f"input has {input.ndim} axes and weight {weight.ndim}, but both must have three"
        )
    batch, channels, length = input.shape
    kernel = weight.shape[2]
    if weight.shape[:2] != (channels, 1) or not kernel:
        raise ValueError(
            f"weight has shape {weight.shape}, but must have ({channels}, 1, size) for the "
            f"{channels} channels of input"
        )
    if bias is not None:
        require_shape("bias", bias, (channels,))
    past = (batch, channels, kernel - 1)
    if past_state is None:
        past_state = xp.zeros(past, dtype=input.dtype)
    require_shape("past_state", past_state, past)
    if not length:
        return input, past_state
    extended = xp.concat([past_state, input], axis=2)
    inputs = (extended, weight) if bias is None else (extended, weight, bias)
    return _filtered(xp, *inputs, activation=activation), extended[:, :, length:]


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
