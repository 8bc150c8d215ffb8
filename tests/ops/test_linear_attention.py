from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST
from sardonyx.ops.linear_attention import CausalConvWithState, LinearAttention
from tests.ops.oracle import assert_same, run

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
NARROW = pytest.mark.parametrize("dtype", [np.dtype(np.float16), BFLOAT16], ids=str)
WITH_NARROW = pytest.mark.parametrize(
    "backend", [HOST, JaxBackend()], ids=lambda backend: backend.name
)
RULES = pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])


def drawn(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


# -- linear attention -----------------------------------------------------------------------------

BATCH, HEADS, SHARING, D_K, D_V = 2, 2, 3, 8, 5
COUNTS = {"kv_num_heads": HEADS, "q_num_heads": HEADS * SHARING}


def tokens(
    length: int, rule: str, *, by_element: bool = False, one_rate: bool = False
) -> list[Any]:
    """All inputs; keys of unit length, and decays of which some leave nothing."""
    keys = drawn(BATCH, length, HEADS, D_K, seed=1)
    keys /= np.linalg.norm(keys, axis=-1, keepdims=True)
    decay = -2 * np.exp(drawn(BATCH, length, HEADS * (D_K if by_element else 1), seed=2))
    decay[:, ::17], decay[:, 3::50] = -np.inf, -300
    rate = 1 / (1 + np.exp(-drawn(BATCH, length, 1 if one_rate else HEADS, seed=3)))
    return [
        drawn(BATCH, length, HEADS * SHARING * D_K),
        keys.reshape(BATCH, length, HEADS * D_K),
        drawn(BATCH, length, HEADS * D_V, seed=4),
        drawn(BATCH, HEADS, D_K, D_V, seed=5),
        decay if "gated" in rule else None,
        rate if "delta" in rule else None,
    ]


def step_by_step(inputs: list[Any], scale: float = D_K**-0.5) -> tuple[np.ndarray, np.ndarray]:
    """The recurrence as the standard writes it, in float64."""
    q, k, v, past, decay, rate = (None if x is None else x.astype(np.float64) for x in inputs)
    length = q.shape[1]
    q = q.reshape(BATCH, length, HEADS, SHARING, D_K)
    k, v = k.reshape(BATCH, length, HEADS, D_K), v.reshape(BATCH, length, HEADS, D_V)
    state = np.zeros((BATCH, HEADS, D_K, D_V)) if past is None else past
    out = np.zeros((BATCH, length, HEADS, SHARING, D_V))
    for t in range(length):
        written = v[:, t]
        if decay is not None:
            state = state * np.exp(decay[:, t]).reshape(BATCH, HEADS, -1, 1)
        if rate is not None:
            known = np.einsum("bhkv,bhk->bhv", state, k[:, t])
            written = rate[:, t, :, None] * (written - known)
        state = state + k[:, t, :, :, None] * written[:, :, None, :]
        out[:, t] = scale * np.einsum("bhkv,bhgk->bhgv", state, q[:, t])
    return out.reshape(BATCH, length, -1), state


def assert_near(found: np.ndarray, wanted: np.ndarray, tolerance: float = 2e-6) -> None:
    assert found.shape == wanted.shape
    assert np.abs(found.astype(np.float64) - wanted).max(initial=0) <= tolerance * max(
        np.abs(wanted).max(initial=0), 1
    )


@pytest.mark.sampled(30)
@RULES
@pytest.mark.parametrize("length", [1, 5, 150])
@pytest.mark.parametrize("options", [{}, {"by_element": True, "one_rate": True}])
def test_chunks_are_as_good_as_single_tokens(
    xp: Backend, rule: str, length: int, options: Any
) -> None:
    inputs = tokens(length, rule, **options)
    out, state = run(xp, LinearAttention, *inputs, update_rule=rule, **COUNTS)
    assert out.dtype == state.dtype == np.float32
    for found, wanted in zip((out, state), step_by_step(inputs), strict=True):
        assert_near(found, wanted)


@pytest.mark.parametrize("chunk_size", [-1, 1, 3, 10**9])
def test_the_chunk_size_changes_nothing(xp: Backend, chunk_size: int) -> None:
    inputs = tokens(10, "gated_delta")
    inputs[3] = None
    wanted = step_by_step(inputs, scale=0.5)
    found = run(xp, LinearAttention, *inputs, chunk_size=chunk_size, scale=0.5, **COUNTS)
    for one, other in zip(found, wanted, strict=True):
        assert_near(one, other)


def test_keys_that_are_all_the_same(xp: Backend) -> None:
    """The hardest triangular systems: each token replaces what the last one wrote."""
    inputs = tokens(64, "delta")
    inputs[1][:] = inputs[1][:, :1]
    inputs[5][:] = 1
    found = run(xp, LinearAttention, *inputs, update_rule="delta", **COUNTS)
    for one, other in zip(found, step_by_step(inputs), strict=True):
        assert_near(one, other)


@RULES
def test_keys_beyond_all_bounds_are_no_error(xp: Backend, rule: str) -> None:
    inputs = tokens(20, rule)
    inputs[1][:] = -1e30
    _, state = run(xp, LinearAttention, *inputs, update_rule=rule, **COUNTS)
    assert not np.isfinite(state).all() or np.abs(state).max() > 1e20


@RULES
def test_no_tokens_leave_the_state_as_it_was(xp: Backend, rule: str) -> None:
    inputs = tokens(0, rule)
    out, state = run(xp, LinearAttention, *inputs, update_rule=rule, **COUNTS)
    assert out.shape == (BATCH, 0, HEADS * SHARING * D_V)
    assert_same(state, inputs[3], ulps=0)


@WITH_NARROW
@NARROW
def test_the_state_of_narrow_floats_is_kept_in_float32(backend: Backend, dtype: Any) -> None:
    inputs = [None if x is None else x.astype(dtype) for x in tokens(60, "gated_delta")]
    wanted = step_by_step(inputs)
    tolerance = float(ml_dtypes.finfo(dtype).eps)
    for past, kept in ((inputs[3], dtype), (inputs[3].astype(np.float32), np.float32)):
        inputs[3] = past
        out, state = run(backend, LinearAttention, *inputs, **COUNTS)
        assert (out.dtype, state.dtype) == (dtype, kept)
        assert_near(out, wanted[0], tolerance)
        assert_near(state, wanted[1], tolerance)


FULL = tokens(4, "gated_delta")


@pytest.mark.parametrize(
    ("changes", "attributes", "message"),
    [
        ({}, {"update_rule": "new"}, "update_rule is 'new'"),
        ({}, {"update_rule": "gated"}, "does not use the input beta"),
        ({4: None}, {}, "needs the input decay"),
        ({5: None}, {}, "needs the input beta"),
        ({}, {"q_num_heads": 3}, "must be a multiple of kv_num_heads"),
        ({}, {"kv_num_heads": 0}, "must be a multiple of kv_num_heads"),
        ({0: drawn(BATCH, 4, 47)}, {}, "query has shape"),
        ({1: drawn(BATCH, 5, HEADS * D_K)}, {}, "key has shape"),
        ({2: drawn(BATCH, HEADS, 4, D_V)}, {}, "value has shape"),
        ({0: drawn(BATCH, 4, HEADS * SHARING * 7)}, {}, "queries have size 7 per head, but keys 8"),
        ({3: drawn(BATCH, HEADS, D_V, D_K)}, {}, "past_state has shape"),
        ({4: drawn(BATCH, 4, 3)}, {}, "decay has shape"),
        ({5: drawn(BATCH, 4, HEADS * D_K)}, {}, "beta has shape"),
    ],
)
def test_LinearAttention_refuses(xp: Backend, changes: Any, attributes: Any, message: str) -> None:
    inputs = [changes.get(i, x) for i, x in enumerate(FULL)]
    with pytest.raises(ValueError, match=message):
        run(xp, LinearAttention, *inputs, **(COUNTS | attributes))


# -- the convolution before it --------------------------------------------------------------------


def filtered(x: np.ndarray, weight: np.ndarray, past: np.ndarray) -> np.ndarray:
    known = np.concatenate([past, x], axis=2).astype(np.float64)
    kernel = weight.shape[2]
    windows = np.lib.stride_tricks.sliding_window_view(known, kernel, axis=2)
    y: np.ndarray = np.einsum("bclk,ck->bcl", windows, weight[:, 0].astype(np.float64))
    return y


@pytest.mark.parametrize("kernel", [1, 2, 4])
@pytest.mark.parametrize("length", [0, 1, 9])
@pytest.mark.parametrize("activation", ["none", "silu", "swish"])
@pytest.mark.sampled(4)
def test_CausalConvWithState_goes_on_where_it_stopped(
    xp: Backend, kernel: int, length: int, activation: str
) -> None:
    x, weight, bias = drawn(2, 3, length + 6), drawn(3, 1, kernel), drawn(3)
    y = filtered(x, weight, np.zeros((2, 3, kernel - 1))) + bias[:, None]
    wanted = y if activation == "none" else y / (1 + np.exp(-y))
    state, parts = None, []
    for part in (x[..., :length], x[..., length:]):
        out, state = run(xp, CausalConvWithState, part, weight, bias, state, activation=activation)
        parts.append(out)
    assert_same(np.concatenate(parts, axis=2), wanted.astype(np.float32), ulps=32)
    assert_same(state, x[..., x.shape[2] - kernel + 1 :], ulps=0)


@WITH_NARROW
@NARROW
def test_narrow_floats_are_filtered_in_float32(backend: Backend, dtype: Any) -> None:
    x, weight = drawn(2, 3, 20, dtype=dtype), drawn(3, 1, 4, dtype=dtype)
    y = filtered(x, weight, np.zeros((2, 3, 3)))
    found, state = run(backend, CausalConvWithState, x, weight, activation="silu")
    assert_same(found, (y / (1 + np.exp(-y))).astype(dtype), ulps=1)
    assert_same(state, x[..., -3:], ulps=0)


X, WEIGHT = drawn(2, 3, 5), drawn(3, 1, 4)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([X[0], WEIGHT], "both must have three"),
        ([X, WEIGHT[:2]], "for the 3 channels"),
        ([X, drawn(3, 2, 4)], "for the 3 channels"),
        ([X, drawn(3, 1, 0)], "for the 3 channels"),
        ([X, WEIGHT, drawn(4)], "bias has shape"),
        ([X, WEIGHT, None, drawn(2, 3, 4)], "past_state has shape"),
    ],
)
def test_CausalConvWithState_refuses(xp: Backend, inputs: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(xp, CausalConvWithState, *inputs)
    with pytest.raises(ValueError, match="activation is 'relu'"):
        run(xp, CausalConvWithState, X, WEIGHT, activation="relu")
