"""PackedSparseAttentionIndexer, which only GPUs have, against its documentation in NumPy.

The documentation is followed token by token, for each request on its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.errors import InvalidInput
from tests.ops.microsoft.comparison import results
from tests.ops.microsoft.test_sparse_indexer import drawn, halves, norm, pairs
from tests.support.types_present import needs

HEADS, SIZE, CAPACITY, RATIO, TOP, BUDGET = 2, 6, 5, 3, 2, 6
NAMES = ["query", "key", "query_norm_weight", "key_norm_weight", "cos_cache", "sin_cache"]
NAMES += ["cumulative_sequence_lengths", "past_sequence_lengths", "gate", "position_bias"]
NAMES += ["head_weights", "position_ids", "past_key_state", "past_kv_buffer", "past_gate_buffer"]
NAMES += ["past_state_lengths", "state_update_capture_count", "state_update_active"]
# The new tokens of each request, and those before; the third has no new ones.
LENGTHS, PAST = (4, 1, 0, 7), (2, 8, 4, 0)
QSA = {"policy_mode": "qsa", "token_budget": BUDGET}
CSA = {"policy_mode": "csa", "index_topk": TOP}


def run(xp: Backend, x: dict[str, Any], **options: Any) -> Any:
    inputs = [x.get(name) for name in NAMES]
    while inputs[-1] is None:
        inputs.pop()
    options = {"compress_ratio": RATIO, "state_capacity": CAPACITY, **options}
    return results(xp, "PackedSparseAttentionIndexer", *inputs, outputs=7, **options)


def packed(
    lengths: tuple[int, ...] = LENGTHS,
    past: tuple[int, ...] = PAST,
    held: tuple[int, ...] | None = None,
    *,
    width: int = SIZE,
    table: int = 4,
    dtype: Any = np.float32,
) -> dict[str, Any]:
    """The inputs of both policies; the buffers hold `held` tokens."""
    total, count = sum(lengths), len(lengths)
    state = [(tokens // RATIO, tokens % RATIO) for tokens in past]
    if held is not None:
        state = [(keys, tokens) for (keys, _), tokens in zip(state, held, strict=True)]
    x = {
        "query": drawn(total, HEADS * SIZE),
        "key": drawn(total, width, seed=1),
        "query_norm_weight": drawn(SIZE, seed=2),
        "key_norm_weight": drawn(SIZE, seed=3),
        "cos_cache": drawn(32, table, seed=4),
        "sin_cache": drawn(32, table, seed=5),
        "past_key_state": drawn(count, CAPACITY, SIZE, seed=6),
        "past_kv_buffer": drawn(count, 2 * RATIO - 1, width, seed=7),
    }
    return {
        **{name: value.astype(dtype) for name, value in x.items()},
        "cumulative_sequence_lengths": np.cumsum([0, *lengths]).astype(np.int32),
        "past_sequence_lengths": np.int32(past),
        "past_state_lengths": np.int32(state).reshape(count, 2),
    }


def gated(lengths: tuple[int, ...], past: tuple[int, ...], held: Any, **others: Any) -> Any:
    x = packed(lengths, past, held, width=2 * SIZE, table=2, **others)
    dtype, (total, width), count = x["key"].dtype, x["key"].shape, len(lengths)
    extra = {
        "gate": drawn(total, width, seed=8),
        "position_bias": drawn(RATIO, width, seed=9),
        "head_weights": drawn(total, HEADS, seed=10),
        "past_gate_buffer": drawn(count, 2 * RATIO - 1, width, seed=11),
    }
    places = [tokens + i for n, tokens in zip(lengths, past, strict=True) for i in range(n)]
    x["position_ids"] = np.asarray(places, np.int64)
    return {**x, **{name: value.astype(dtype) for name, value in extra.items()}}


def angles(x: dict[str, Any], request: int, place: int) -> tuple[Any, Any]:
    tables = (x["cos_cache"], x["sin_cache"])
    cos, sin = (table if table.ndim == 2 else table[request] for table in tables)
    place = min(place, len(cos) - 1)
    return cos[place].astype(np.float64), sin[place].astype(np.float64)


class Request:
    """One request's tokens and its state, which the steps of the documentation change."""

    def __init__(self, x: dict[str, Any], number: int) -> None:
        bounds = x["cumulative_sequence_lengths"]
        self.x, self.number = x, number
        self.tokens = range(bounds[number], bounds[number + 1])
        self.entries, self.held = map(int, x["past_state_lengths"][number])
        self.keys = x["past_key_state"][number].copy()
        self.buffers = {
            name: x[source][number].copy()
            for name, source in (("key", "past_kv_buffer"), ("gate", "past_gate_buffer"))
            if source in x
        }

    def rows(self, name: str) -> list[Any]:
        waiting = [row.astype(np.float64) for row in self.buffers[name][: self.held]]
        return waiting + [self.x[name][t].astype(np.float64) for t in self.tokens]

    def place(self, token: int) -> int:
        return int(self.x["past_sequence_lengths"][self.number]) + token - self.tokens.start

    def append(self, pooled: Any, turn: Any) -> None:
        pooled = norm(pooled, self.x["key_norm_weight"].astype(np.float64))
        self.keys[self.entries] = turn(pooled, *angles(self.x, self.number, self.entries * RATIO))
        self.entries += 1

    def keep(self, start: int) -> None:
        """Leave what follows `start` in the buffers."""
        for name, buffer in self.buffers.items():
            rest = self.rows(name)[start:]
            buffer[: len(rest)] = np.reshape(rest, (len(rest), buffer.shape[1]))
        self.held += len(self.tokens) - start

    def scores(self, token: int, place: int, turn: Any, count: int) -> Any:
        queries = self.x["query"][token].reshape(HEADS, SIZE).astype(np.float64)
        weight = self.x["query_norm_weight"].astype(np.float64)
        turned = [turn(norm(q, weight), *angles(self.x, self.number, place)) for q in queries]
        weights = self.x["head_weights"][token] if "head_weights" in self.x else np.ones(HEADS)
        keys = self.keys[:count].astype(np.float64)
        looks = [[max(q @ key, 0) for key in keys] for q in turned]
        return weights.astype(np.float64) @ np.reshape(looks, (HEADS, count))


def by_tokens(x: dict[str, Any], capture: Any = None) -> tuple[Any, ...]:
    total, count = len(x["query"]), len(x["past_sequence_lengths"])
    chosen = np.full((total, BUDGET + RATIO - 1), -1, np.int32)
    numbers = np.zeros(total, np.int32)
    updates = np.zeros((count, 0 if capture is None else 4, SIZE), x["key"].dtype)
    requests = [Request(x, number) for number in range(count)]
    for request in requests:
        rows, old = request.rows("key"), request.held
        blocks = len(rows) // RATIO
        if request.entries + blocks > CAPACITY:
            continue
        for k in range(blocks):
            request.append(np.mean(rows[k * RATIO : (k + 1) * RATIO], axis=0), halves)
        captured = 0 if capture is None else min(capture[request.number], len(request.tokens))
        for t in range(captured):
            ends_block = (old + t + 1) % RATIO == 0
            entry = request.entries - blocks + (old + t) // RATIO
            key = request.keys[entry] if ends_block else x["key"][request.tokens[t]]
            updates[request.number, t] = key
        request.keep(blocks * RATIO)
        for token in request.tokens:
            place = request.place(token)
            visible = (place + 1) // RATIO
            order = np.argsort(-request.scores(token, place, halves, visible), kind="stable")
            found = [t for j in order[: BUDGET // RATIO] for t in range(j * RATIO, (j + 1) * RATIO)]
            found += range(visible * RATIO, place + 1)
            chosen[token, : len(found)], numbers[token] = found, len(found)
    return chosen, numbers, *state_of(requests, "key"), updates


def by_entries(x: dict[str, Any]) -> tuple[Any, ...]:
    total = len(x["query"])
    chosen, numbers = np.full((total, TOP), -1, np.int32), np.zeros(total, np.int32)
    requests = [Request(x, number) for number in range(len(x["past_sequence_lengths"]))]
    bias = x["position_bias"].astype(np.float64)
    for request in requests:
        keys, gates = request.rows("key"), request.rows("gate")
        overlap = RATIO if request.held >= RATIO else 0
        windows = (len(keys) - overlap) // RATIO
        if request.entries + windows > CAPACITY:
            continue
        for start in range(overlap, overlap + windows * RATIO, RATIO):
            slots = [(start + i, i, slice(SIZE, None)) for i in range(RATIO)]
            if start:
                slots += [(start - RATIO + i, i, slice(SIZE)) for i in range(RATIO)]
            weights = np.exp([gates[t][part] + bias[i, part] for t, i, part in slots])
            values = np.asarray([keys[t][part] for t, _, part in slots])
            request.append((weights * values).sum(axis=0) / weights.sum(axis=0), pairs)
        request.keep(overlap + (windows - 1) * RATIO if windows else 0)
        for token in request.tokens:
            place = int(x["position_ids"][token])
            visible = min((place + 1) // RATIO, request.entries)
            order = np.argsort(-request.scores(token, place, pairs, visible), kind="stable")[:TOP]
            chosen[token, : len(order)], numbers[token] = order, len(order)
    return chosen, numbers, *state_of(requests, "key"), state_of(requests, "gate")[1]


def state_of(requests: list[Request], name: str) -> tuple[Any, Any, Any]:
    lengths = np.int32([(each.entries, each.held) for each in requests])
    keys = np.stack([each.keys for each in requests])
    return keys, np.stack([each.buffers[name] for each in requests]), lengths


def agrees(actual: Any, expected: Any) -> None:
    assert actual.dtype == expected.dtype
    bound = 2e-5 if actual.dtype == np.float32 else 5e-3
    np.testing.assert_allclose(actual.astype(float), expected.astype(float), atol=bound, rtol=bound)


# -- blocks of visible tokens ----------------------------------------------------------------------


def check_tokens(xp: Backend, x: dict[str, Any], capture: Any = None, **options: Any) -> None:
    chosen, numbers, keys, buffer, _, lengths, updates = run(xp, x, **QSA, **options)
    expected = by_tokens(x, capture)
    np.testing.assert_array_equal(chosen, expected[0])
    np.testing.assert_array_equal(numbers, expected[1])
    agrees(keys, expected[2])
    np.testing.assert_array_equal(buffer, expected[3])
    np.testing.assert_array_equal(lengths, expected[4])
    agrees(updates, expected[5])


def test_tokens(xp: Backend) -> None:
    check_tokens(xp, packed())


@pytest.mark.parametrize(
    ("lengths", "past"),
    [
        ((1, 1, 1), (0, 5, 14)),
        ((2,), (0,)),
        ((0, 9, 0), (3, 2, 1)),
        ((15,), (0,)),
        ((0, 0), (4, 2)),
    ],
)
def test_tokens_of_other_lengths(xp: Backend, lengths: Any, past: Any) -> None:
    check_tokens(xp, packed(lengths, past))


def test_a_request_without_room_stays_as_it_was(xp: Backend) -> None:
    x = packed((3, 4), (17, 2))
    check_tokens(xp, x)
    chosen, numbers, _, _, _, lengths, _ = run(HOST, x, **QSA)
    assert (chosen[:3] == -1).all()
    assert (chosen[3:, 0] != -1).all()
    np.testing.assert_array_equal(numbers[:3], 0)
    np.testing.assert_array_equal(lengths[0], x["past_state_lengths"][0])


def test_lengths_that_contradict_each_other_change_nothing() -> None:
    x = packed((3, 4), (4, 2))
    x["past_sequence_lengths"] = np.int32([7, 2])
    chosen, _, keys, _, _, lengths, _ = run(HOST, x, **QSA)
    assert (chosen[:3] == -1).all()
    np.testing.assert_array_equal(keys[0], x["past_key_state"][0])
    np.testing.assert_array_equal(lengths[0], x["past_state_lengths"][0])


def test_steps_agree_with_one_call() -> None:
    """The tokens of one call, in three calls that pass the state on."""
    whole = packed((7,), (0,))
    chosen, _, keys, buffer, _, lengths, _ = run(HOST, whole, **QSA)
    state = {name: whole[name] for name in ("past_key_state", "past_kv_buffer")}
    state["past_state_lengths"] = whole["past_state_lengths"]
    rows = []
    for start, end in ((0, 1), (1, 5), (5, 7)):
        x = {**whole, **state, "query": whole["query"][start:end], "key": whole["key"][start:end]}
        x["cumulative_sequence_lengths"] = np.int32([0, end - start])
        x["past_sequence_lengths"] = np.int32([start])
        found = run(HOST, x, **QSA)
        rows.append(found[0])
        names = ("past_key_state", "past_kv_buffer", "past_state_lengths")
        state = dict(zip(names, (found[2], found[3], found[5]), strict=True))
    np.testing.assert_array_equal(np.concatenate(rows), chosen)
    np.testing.assert_array_equal(state["past_state_lengths"], lengths)
    # NumPy may add the numbers of a row in another order where there are more rows.
    np.testing.assert_allclose(state["past_key_state"], keys, rtol=1e-5)
    np.testing.assert_allclose(state["past_kv_buffer"][:, :1], buffer[:, :1], rtol=1e-5)


def test_angles_of_each_request_and_queries_with_keys(xp: Backend) -> None:
    tables = {"cos_cache": drawn(4, 9, 4, seed=4), "sin_cache": drawn(4, 9, 4, seed=5)}
    x = {**packed(), **tables}
    joined = {**x, "query": np.concatenate([x["query"], x["key"]], axis=1), "key": None}
    for found, expected in zip(run(xp, joined, **QSA), run(HOST, x, **QSA), strict=True):
        agrees(found, expected)
    check_tokens(xp, x)


def test_updates_of_first_tokens(xp: Backend) -> None:
    capture = np.int32([4, 3, 2, 3])
    x = {**packed(), "state_update_capture_count": capture}
    check_tokens(xp, x, capture, state_update_capacity=4)
    active = {**x, "state_update_active": np.int32([1])}
    check_tokens(xp, active, capture, state_update_capacity=4)
    idle = {**x, "state_update_active": np.int32([0])}
    assert not run(xp, idle, **QSA, state_update_capacity=4)[6].any()


def test_halves(xp: Backend) -> None:
    needs(xp, np.float16)
    x = packed(dtype=np.float16)
    found = run(xp, x, **QSA)
    assert [each.dtype.name for each in found[2:4]] == ["float16", "float16"]
    agrees(found[2], by_tokens(x)[2])


def test_no_tokens(xp: Backend) -> None:
    x = packed((0, 0), (4, 2))
    chosen, numbers, keys, buffer, _, lengths, _ = run(xp, x, **QSA)
    assert chosen.shape == (0, BUDGET + RATIO - 1)
    assert numbers.shape == (0,)
    for found, name in ((keys, "key_state"), (buffer, "kv_buffer"), (lengths, "state_lengths")):
        np.testing.assert_array_equal(found, x[f"past_{name}"])


# -- entries for several tokens --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lengths", "past", "held"),
    [
        (LENGTHS, PAST, (2, 5, 4, 0)),
        ((1, 1), (5, 8), (2, 5)),
        ((8,), (0,), (0,)),
        ((0, 9, 0), (3, 2, 1), (3, 2, 1)),
        ((2, 3), (15, 6), (5, 3)),
    ],
)
def test_entries(xp: Backend, lengths: Any, past: Any, held: Any) -> None:
    x = gated(lengths, past, held)
    chosen, numbers, keys, buffer, gates, after, updates = run(xp, x, **CSA)
    expected = by_entries(x)
    np.testing.assert_array_equal(chosen, expected[0])
    np.testing.assert_array_equal(numbers, expected[1])
    agrees(keys, expected[2])
    np.testing.assert_array_equal(buffer, expected[3])
    np.testing.assert_array_equal(after, expected[4])
    np.testing.assert_array_equal(gates, expected[5])
    assert updates.shape == (len(lengths), 0, SIZE)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"key": None}, CSA, "and a key"),
        ({"gate": None}, CSA, "needs the inputs gate"),
        ({"position_ids": None}, CSA, "needs the inputs gate"),
        ({"key": drawn(12, 6), "past_kv_buffer": drawn(4, 5, 6)}, QSA, "none of the inputs gate"),
        ({}, {**CSA, "token_budget": 3}, "neither of the others"),
        ({}, {**CSA, "index_topk": 0}, "positive index_topk"),
        ({}, {**CSA, "state_capacity": 4}, "past_key_state has shape"),
        ({"past_kv_buffer": drawn(4, 5, 6)}, CSA, "the buffer of key has shape"),
        ({"past_state_lengths": np.int32([[0, 0]])}, CSA, "past_state_lengths has shape"),
        ({"query": drawn(12, 13)}, CSA, "heads of 6"),
        ({"cumulative_sequence_lengths": np.int32([0, 4, 5, 5, 13])}, CSA, "out of the range"),
    ],
)
def test_bad_inputs(change: Any, options: Any, message: str) -> None:
    x = {**gated(LENGTHS, PAST, (2, 5, 4, 0)), **change}
    with pytest.raises(InvalidInput, match=message):
        run(HOST, x, **options)


def test_a_budget_that_the_ratio_does_not_divide() -> None:
    with pytest.raises(InvalidInput, match="budget that 3 divides"):
        run(HOST, packed(), policy_mode="qsa", token_budget=4)
