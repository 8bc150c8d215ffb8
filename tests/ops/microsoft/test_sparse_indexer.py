"""SparseAttentionIndexer, which only GPUs have, against its documentation in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.errors import InvalidInput
from tests.ops.microsoft.comparison import results

BATCH, LENGTH, HEADS, SIZE, PAST = 2, 3, 2, 6, 6
NAMES = ["query", "key", "query_norm_weight", "key_norm_weight", "cos_cache", "sin_cache", "mask"]
NAMES += ["past_key", "gate", "position_bias", "head_weights", "position_ids"]
NAMES += ["past_sequence_length", "past_proj_buffer"]


def drawn(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def norm(x: Any, weight: Any) -> Any:
    x = x.astype(np.float64)
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + 1e-6) * weight


def run(xp: Backend, x: dict[str, Any], outputs: int, **options: Any) -> Any:
    inputs = [x.get(name) for name in NAMES]
    while inputs[-1] is None:
        inputs.pop()
    return results(xp, "SparseAttentionIndexer", *inputs, outputs=outputs, **options)


def common() -> dict[str, Any]:
    return {
        "query": drawn(BATCH, LENGTH, HEADS * SIZE),
        "query_norm_weight": drawn(SIZE, seed=2),
        "key_norm_weight": drawn(SIZE, seed=3),
    }


# -- blocks of visible tokens ----------------------------------------------------------------------


def qsa(**others: Any) -> dict[str, Any]:
    tables = {"cos_cache": drawn(16, 4, seed=4), "sin_cache": drawn(16, 4, seed=5)}
    keys = {"key": drawn(BATCH, LENGTH, SIZE), "past_key": drawn(BATCH, PAST, SIZE)}
    return {**common(), **tables, **keys, **others}


def halves(x: Any, cos: Any, sin: Any) -> Any:
    turned, half = x.copy(), len(cos) // 2
    turned[:half] = x[:half] * cos[:half] - x[half : 2 * half] * sin[:half]
    turned[half : 2 * half] = x[half : 2 * half] * cos[half:] + x[:half] * sin[half:]
    return turned


def best_tokens(x: dict[str, Any], ratio: int, budget: int) -> Any:
    """The steps of the documentation, for each query."""
    keys = np.concatenate([x["past_key"][:, :PAST], x["key"]], axis=1)
    mask = x.get("mask")
    out = np.full((BATCH, LENGTH, budget + ratio - 1), -1, np.int32)
    for b in range(BATCH):
        cos, sin = (a if a.ndim == 2 else a[b] for a in (x["cos_cache"], x["sin_cache"]))
        for s in range(LENGTH):
            place = PAST + s
            visible = [t for t in range(place + 1) if mask is None or mask[b, t]]
            scores = []
            for start in range(0, len(visible) - ratio + 1, ratio):
                block = visible[start : start + ratio]
                pooled = norm(keys[b, block].mean(axis=0), x["key_norm_weight"])
                pooled = halves(pooled, cos[block[0]], sin[block[0]])
                queries = x["query"][b, s].reshape(HEADS, SIZE)
                turned = [
                    halves(norm(q, x["query_norm_weight"]), cos[place], sin[place]) for q in queries
                ]
                scores.append(sum(max(q @ pooled, 0) for q in turned))
            order = np.argsort(-np.asarray(scores), kind="stable")[: budget // ratio]
            chosen = [t for j in order for t in visible[j * ratio : (j + 1) * ratio]]
            chosen += visible[len(scores) * ratio :]
            out[b, s, : len(chosen)] = chosen
    return out


HIDDEN = np.ones((BATCH, PAST + LENGTH), np.int64)
HIDDEN[0, :3] = 0
HIDDEN[1, [1, 4]] = 0


@pytest.mark.parametrize(("ratio", "budget"), [(2, 4), (3, 3), (1, 2), (4, 16), (16, 16)])
@pytest.mark.parametrize("mask", [None, HIDDEN], ids=["all", "some"])
def test_tokens(xp: Backend, ratio: int, budget: int, mask: Any) -> None:
    x = qsa(mask=mask)
    found, present = run(xp, x, 2, policy_mode="qsa", compress_ratio=ratio, token_budget=budget)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, best_tokens(x, ratio, budget))
    np.testing.assert_array_equal(present, np.concatenate([x["past_key"], x["key"]], axis=1))


def test_tokens_with_a_capacity_and_angles_of_each_sample(xp: Backend) -> None:
    tables = {"cos_cache": drawn(2, 16, 4, seed=4), "sin_cache": drawn(2, 16, 4, seed=5)}
    room = drawn(BATCH, 12, SIZE, seed=9)
    room[:, :PAST] = qsa()["past_key"]
    x = qsa(past_key=room, past_sequence_length=np.int32([PAST]), **tables)
    options = {"policy_mode": "qsa", "compress_ratio": 2, "token_budget": 4}
    found, present = run(xp, x, 2, **options)
    np.testing.assert_array_equal(found, best_tokens(x, 2, 4))
    end = PAST + LENGTH
    np.testing.assert_array_equal(present[:, PAST:end], x["key"])
    np.testing.assert_array_equal(present[:, end:], room[:, end:])


def test_queries_and_keys_in_one_array() -> None:
    x = qsa()
    joined = {**x, "query": np.concatenate([x["query"], x["key"]], axis=2), "key": None}
    options = {"policy_mode": "qsa", "compress_ratio": 2, "token_budget": 4}
    np.testing.assert_array_equal(run(HOST, joined, 2, **options)[0], best_tokens(x, 2, 4))


# -- entries for several tokens --------------------------------------------------------------------

RATIO, ENTRIES, TOP = 2, 3, 3


def csa(held: int, length: int = LENGTH, **others: Any) -> dict[str, Any]:
    x = {
        **common(),
        "query": drawn(BATCH, length, HEADS * SIZE),
        "cos_cache": drawn(32, 2, seed=4),
        "sin_cache": drawn(32, 2, seed=5),
        "key": drawn(BATCH, length, 2 * SIZE),
        "gate": drawn(BATCH, length, 2 * SIZE, seed=1),
        "position_bias": drawn(RATIO, 2 * SIZE),
        "head_weights": drawn(BATCH, length, HEADS),
        "position_ids": np.arange(length)[None] + np.asarray([[6], [4]]),
        "past_key": drawn(BATCH, ENTRIES, SIZE),
        "past_proj_buffer": drawn(2, BATCH, held, 2 * SIZE, seed=6),
    }
    return {**x, **others}


def pairs(x: Any, cos: Any, sin: Any) -> Any:
    turned, start = x.copy(), len(x) - 2 * len(cos)
    for i, (c, s) in enumerate(zip(cos, sin, strict=True)):
        one, two = x[start + 2 * i], x[start + 2 * i + 1]
        turned[start + 2 * i] = one * c - two * s
        turned[start + 2 * i + 1] = two * c + one * s
    return turned


def best_entries(x: dict[str, Any], held: int) -> tuple[Any, Any, Any]:
    length = x["key"].shape[1]
    keys, gates = np.concatenate(
        [x["past_proj_buffer"], np.stack([x["key"], x["gate"]])], axis=2
    ).astype(np.float64)
    overlap = RATIO if held >= RATIO else 0
    pending = held - overlap + length
    windows = pending // RATIO
    entries = np.zeros((BATCH, ENTRIES + windows, SIZE))
    entries[:, :ENTRIES] = x["past_key"][:, :ENTRIES]
    chosen = np.full((BATCH, length, TOP), -1, np.int32)
    bias = x["position_bias"]
    for b in range(BATCH):
        for w in range(windows):
            own = [*range(overlap + w * RATIO, overlap + (w + 1) * RATIO)]
            values = [
                (keys[b, t, SIZE:], gates[b, t, SIZE:] + bias[t - own[0], SIZE:]) for t in own
            ]
            if w or overlap:
                before = [t - RATIO for t in own]
                values += [
                    (keys[b, t, :SIZE], gates[b, t, :SIZE] + bias[t - before[0], :SIZE])
                    for t in before
                ]
            weights = np.exp([gate for _, gate in values])
            pooled = sum(w * v for w, (v, _) in zip(weights, values, strict=True))
            pooled = norm(pooled / weights.sum(axis=0), x["key_norm_weight"])
            place = (ENTRIES + w) * RATIO
            angles = x["cos_cache"][place], x["sin_cache"][place]
            entries[b, ENTRIES + w] = pairs(pooled, *angles)
        for s in range(length):
            place = x["position_ids"][b, s]
            angles = x["cos_cache"][place], x["sin_cache"][place]
            queries = norm(x["query"][b, s].reshape(HEADS, SIZE), x["query_norm_weight"])
            turned = [pairs(q, *angles) for q in queries]
            scores = [
                sum(
                    weight * max(q @ entry, 0)
                    for q, weight in zip(turned, x["head_weights"][b, s], strict=True)
                )
                for entry in entries[b, : (place + 1) // RATIO]
            ]
            order = np.argsort(-np.asarray(scores), kind="stable")[:TOP]
            chosen[b, s, : len(order)] = order
    start = overlap + (windows - 1) * RATIO if windows else 0
    return chosen, entries, np.stack([keys, gates])[:, :, start:]


@pytest.mark.parametrize("held", range(2 * RATIO))
@pytest.mark.parametrize("length", [1, 3])
def test_entries(xp: Backend, held: int, length: int) -> None:
    x = csa(held, length)
    options = {"policy_mode": "csa", "compress_ratio": RATIO, "index_topk": TOP}
    found, present, rest = run(xp, x, 3, **options)
    chosen, entries, projections = best_entries(x, held)
    np.testing.assert_array_equal(found, chosen)
    np.testing.assert_allclose(present, entries, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(rest, projections, rtol=1e-6)


def test_entries_with_a_capacity() -> None:
    room = np.concatenate([csa(3)["past_key"], drawn(BATCH, 4, SIZE, seed=8)], axis=1)
    x = csa(3, past_key=room, past_sequence_length=np.int32([ENTRIES]))
    options = {"policy_mode": "csa", "compress_ratio": RATIO, "index_topk": TOP}
    found, present, _ = run(HOST, x, 3, **options)
    chosen, entries, _ = best_entries(x, 3)
    np.testing.assert_array_equal(found, chosen)
    assert present.shape == room.shape
    np.testing.assert_allclose(present[:, : entries.shape[1]], entries, rtol=1e-4, atol=1e-5)


def test_gates_without_a_finite_sum_give_zeros() -> None:
    x = csa(0)
    x["gate"][0, :, SIZE] = -np.inf
    x["gate"][1, 0, SIZE + 1] = np.inf
    x["key_norm_weight"] = np.ones(SIZE, np.float32)
    x["cos_cache"][:], x["sin_cache"][:] = 1, 0
    options = {"policy_mode": "csa", "compress_ratio": RATIO, "index_topk": TOP}
    _, present, _ = run(HOST, x, 3, **options)
    assert present[0, ENTRIES, 0] == 0
    assert present[1, ENTRIES, 1] == 0
    assert np.all(np.isfinite(present))


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        (qsa(), {"token_budget": 3}, "a budget that 2 divides"),
        (qsa(), {"token_budget": 2, "index_topk": 1}, "no index_topk"),
        (qsa(), {"token_budget": 2, "policy_mode": "all"}, "policy_mode"),
        (qsa(past_key=drawn(1, 2, SIZE)), {"token_budget": 2}, "past_key has shape"),
        (qsa(cos_cache=drawn(3, 2)), {"token_budget": 2}, "cos_cache has shape"),
        (csa(0), {"policy_mode": "csa"}, "a positive index_topk"),
        (csa(0, gate=None), {"policy_mode": "csa", "index_topk": 1}, "key, gate and position_bias"),
        (csa(4), {"policy_mode": "csa", "index_topk": 1}, "must have below 4"),
        (csa(0, position_ids=None), {"policy_mode": "csa", "index_topk": 1}, "head_weights and"),
    ],
)
def test_what_is_refused(inputs: Any, options: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        run(HOST, inputs, 2, **{"policy_mode": "qsa", "compress_ratio": 2, **options})
