"""GatedDeltaNet, which only CUDA has in onnxruntime, against its documentation in NumPy."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.errors import InvalidInput
from tests.ops.microsoft.comparison import results

KEYS, VALUES, SIZE, WIDTH = 2, 4, 3, 5
BOUNDS = np.asarray([0, 3, 3, 8], np.int32)


def drawn(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def tokens(count: int = 8) -> dict[str, Any]:
    return {
        "query": drawn(count, KEYS, SIZE),
        "key": drawn(count, KEYS, SIZE, seed=1) / 3,
        "value": drawn(count, VALUES, WIDTH),
        "decay": -np.abs(drawn(count, VALUES)),
        "beta": np.abs(drawn(count, VALUES, seed=1)) / 3,
    }


def recurrence(
    bounds: Any, state: Any, x: dict[str, Any], rule: str = "gated_delta", scale: float = 0.0
) -> tuple[Any, Any, list[Any]]:
    """The formulas of the documentation, token by token; and each token's update of the state."""
    out = np.zeros(x["value"].shape)
    final = np.zeros(state.shape)
    updates = []
    for request, (start, end) in enumerate(pairwise(bounds)):
        for head in range(VALUES):
            shared = head * KEYS // VALUES
            now = state[request, head].T.astype(np.float64)
            for t in range(start, end):
                q, k = (x[name][t, shared].astype(np.float64) for name in ("query", "key"))
                written = x["value"][t, head].astype(np.float64)
                decay = np.exp(x["decay"][t, head]) if "gated" in rule else 1.0
                now = np.reshape(decay, (-1, 1)) * now
                if "delta" in rule:
                    written = x["beta"][t, head] * (written - now.T @ k)
                now = now + np.outer(k, written)
                out[t, head] = (scale or SIZE**-0.5) * now.T @ q
                updates.append((request, t - start, head, decay, written))
            final[request, head] = now.T
    return out, final, updates


def run(xp: Backend, names: list[str], x: dict[str, Any], outputs: int = 2, **options: Any) -> Any:
    inputs = [x.get(name) for name in names]
    while inputs[-1] is None:
        inputs.pop()
    return results(xp, "GatedDeltaNet", *inputs, outputs=outputs, **options)


NAMES = ["query", "key", "value", "cu_seqlens", "decay", "beta", "initial_state"]
NAMES += ["a_log", "dt_bias", "capture_count", "state_update_active"]
USES = {"linear": (), "gated": ("decay",), "delta": ("beta",), "gated_delta": ("decay", "beta")}


@pytest.mark.parametrize("rule", USES)
@pytest.mark.parametrize("is_ragged", [False, True])
def test_the_recurrence(xp: Backend, rule: str, is_ragged: bool) -> None:
    x = tokens()
    bounds = BOUNDS if is_ragged else np.asarray([0, 4, 8])
    state = drawn(len(bounds) - 1, VALUES, WIDTH, SIZE)
    expected, final, _ = recurrence(bounds, state, x, rule)
    given = {name: x[name] for name in ("query", "key", "value", *USES[rule])}
    given |= {"initial_state": state} | ({"cu_seqlens": bounds} if is_ragged else {})
    y, last = run(xp, NAMES, given, update_rule=rule)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(last, final, rtol=1e-4, atol=1e-5)
    assert last.dtype == np.float32


def test_a_batch_axis_and_packed_rows() -> None:
    x, state = tokens(), drawn(2, VALUES, WIDTH, SIZE)
    y, final = run(HOST, NAMES, {**x, "initial_state": state}, scale=0.5)
    by_batch = {name: array.reshape(2, 4, *array.shape[1:]) for name, array in x.items()}
    z, other = run(HOST, NAMES, {**by_batch, "initial_state": state}, scale=0.5)
    np.testing.assert_allclose(z, y.reshape(2, 4, VALUES, WIDTH), rtol=1e-6)
    np.testing.assert_allclose(other, final, rtol=1e-6)
    rows = [x[name].reshape(8, -1) for name in ("query", "key", "value")]
    packed = {"query": np.concatenate(rows, 1), "decay": x["decay"], "beta": x["beta"]}
    z, other = run(HOST, NAMES, {**packed, "initial_state": state}, scale=0.5)
    np.testing.assert_allclose(z, y, rtol=1e-6)


def test_a_decay_for_each_element_of_keys() -> None:
    x, state = tokens(), drawn(3, VALUES, WIDTH, SIZE)
    x["decay"] = -np.abs(drawn(8, VALUES, SIZE))
    expected, final, _ = recurrence(BOUNDS, state, x)
    y, last = run(HOST, NAMES, {**x, "cu_seqlens": BOUNDS, "initial_state": state})
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(last, final, rtol=1e-4, atol=1e-5)


def test_activations() -> None:
    x, state = tokens(), np.zeros((3, VALUES, WIDTH, SIZE), np.float32)
    a_log, dt_bias = drawn(VALUES), drawn(VALUES, seed=1)
    raw = {**x, "decay": drawn(8, VALUES), "beta": drawn(8, VALUES, seed=2)}
    raw |= {"cu_seqlens": BOUNDS, "a_log": a_log, "dt_bias": dt_bias}
    options = {"gate_activation": "qwen", "beta_activation": "sigmoid", "qk_l2_norm": 1}
    y, _ = run(HOST, NAMES, raw, **options)
    for name in ("query", "key"):
        x[name] = x[name] / np.sqrt(np.sum(x[name] ** 2, axis=-1, keepdims=True) + 1e-6)
    x["decay"] = -np.exp(a_log) * np.log1p(np.exp(raw["decay"] + dt_bias))
    x["beta"] = 1 / (1 + np.exp(-raw["beta"]))
    expected, _, _ = recurrence(BOUNDS, state, x)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("active", [None, 0, 1])
def test_updates_of_the_state(xp: Backend, active: int | None) -> None:
    x, state, capacity = tokens(), drawn(3, VALUES, WIDTH, SIZE), 4
    counts = np.asarray([2, 1, 9], np.int32)
    given = {**x, "cu_seqlens": BOUNDS, "initial_state": state, "capture_count": counts}
    if active is not None:
        given["state_update_active"] = np.asarray([active], np.int32)
    *_, found = run(xp, NAMES, given, outputs=3, state_update_capacity=capacity)
    decays = np.zeros((3, capacity, VALUES))
    keys = np.zeros((3, capacity, KEYS, SIZE))
    written = np.zeros((3, capacity, VALUES, WIDTH))
    for request, place, head, decay, value in recurrence(BOUNDS, state, x)[2]:
        if place < min(counts[request], capacity) and active != 0:
            decays[request, place, head] = decay
            keys[request, place] = x["key"][BOUNDS[request] + place]
            written[request, place, head] = value
    expected = np.concatenate([a.reshape(3, -1) for a in (decays, keys, written)], axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("others", "options", "message"),
    [
        ({"key": None}, {}, "one of them is missing"),
        ({"initial_state": None}, {}, "without cu_seqlens, initial_state must say"),
        ({"a_log": drawn(VALUES)}, {}, "go together with gate_activation"),
        ({}, {"gate_activation": "qwen"}, "go together with gate_activation"),
        ({"decay": None}, {}, "needs the input decay"),
        ({"beta": drawn(8, 2)}, {}, "beta has shape"),
        ({"value": drawn(8, 3, WIDTH)}, {}, "divides that of value"),
        ({"capture_count": np.ones(2, np.int32)}, {}, "state_update_capacity is 0"),
        ({"cu_seqlens": np.ones(1, np.int32)}, {}, "cu_seqlens has shape"),
        ({}, {"update_rule": "other"}, "update_rule"),
    ],
    ids=str,
)
def test_what_is_refused(others: Any, options: Any, message: str) -> None:
    x = {**tokens(), "initial_state": drawn(2, VALUES, WIDTH, SIZE), **others}
    with pytest.raises(InvalidInput, match=message):
        run(HOST, NAMES, x, outputs=3, **options)
