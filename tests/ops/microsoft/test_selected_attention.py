"""Attention to selected keys, which only CUDA has, against the documentation in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.errors import InvalidInput
from tests.ops.microsoft.comparison import results
from tests.ops.microsoft.small_node import Small

HEADS, KV_HEADS, SIZE = 4, 2, 16
MODES = {"num_heads": HEADS, "kv_num_heads": KV_HEADS}
LOCAL = {
    "attention_mode": "local_plus_selected",
    "selected_kv_source": "auxiliary",
    "local_window_size": 2,
}


def drawn(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def mixed(query: Any, keys: Any, values: Any, scale: float, sink: float | None) -> Any:
    """One query's attention to a list of keys; zeros if there is nothing to attend to."""
    scores = np.asarray([scale * (query @ key) for key in keys])
    if sink is not None:
        scores = np.append(scores, sink)
    if not scores.size:
        return np.zeros(SIZE)
    weights = np.exp(scores - scores.max())
    weights /= weights.sum()
    return sum((w * v for w, v in zip(weights, values, strict=False)), np.zeros(SIZE))


def selections(rows: list[list[int]], most: int = 4) -> tuple[Any, Any]:
    indices = np.full((len(rows), most), -1, np.int32)
    for i, row in enumerate(rows):
        indices[i, : len(row)] = row
    return indices, np.asarray([len(row) for row in rows], np.int32)


# -- a cache in one piece --------------------------------------------------------------------------

PAST, NEW = 5, 2
TOTALS = (7, 6)
MAIN = [[0, 3, 5], [6, 2], [1], []]
AUXILIARY = [[2, 0], [1], [], [2, 1, 0]]
DENSE = ["query", "key", "value", "past_key", "past_value", "auxiliary_key", "auxiliary_value"]
DENSE += ["selected_indices", "selected_counts", "seqlens_k", "total_sequence_length", "cos_cache"]
DENSE += ["sin_cache", "position_ids", "q_norm_weight", "k_norm_weight", "head_sink"]


def dense(rows: list[list[int]]) -> dict[str, Any]:
    indices, counts = selections(rows)
    return {
        "query": drawn(2, NEW, HEADS * SIZE),
        "key": drawn(2, NEW, KV_HEADS * SIZE, seed=1),
        "value": drawn(2, NEW, KV_HEADS * SIZE, seed=2),
        "past_key": drawn(2, KV_HEADS, PAST, SIZE, seed=3),
        "past_value": drawn(2, KV_HEADS, PAST, SIZE, seed=4),
        "selected_indices": indices,
        "selected_counts": counts,
        "seqlens_k": np.asarray(TOTALS, np.int32) - 1,
        "total_sequence_length": np.asarray([7], np.int32),
    }


def caches(x: dict[str, Any]) -> list[Any]:
    """Past keys and values, each sample with its new ones after its own past."""
    present = []
    for name in ("key", "value"):
        cache = np.concatenate(
            [x[f"past_{name}"], np.zeros((2, KV_HEADS, NEW, SIZE), np.float32)], axis=2
        )
        new = x[name].reshape(2, NEW, KV_HEADS, SIZE).swapaxes(1, 2)
        for sample, total in enumerate(TOTALS):
            cache[sample, :, total - NEW : total] = new[sample]
        present.append(cache)
    return present


def documented(x: dict[str, Any], rows: list[list[int]], window: int, sink: Any) -> Any:
    keys, values = caches(x)
    out = np.zeros((2, NEW, HEADS, SIZE))
    for sample, total in enumerate(TOTALS):
        for t in range(NEW):
            place = total - NEW + t
            selected = rows[sample * NEW + t]
            for head in range(HEADS):
                kv = head * KV_HEADS // HEADS
                if window:
                    near = range(max(place - window + 1, 0), place + 1)
                    own = [*keys[sample, kv, near], *x["auxiliary_key"][sample, kv, selected]]
                    mine = [*values[sample, kv, near], *x["auxiliary_value"][sample, kv, selected]]
                else:
                    seen = [s for s in selected if s <= place]
                    own, mine = list(keys[sample, kv, seen]), list(values[sample, kv, seen])
                query = x["query"][sample, t].reshape(HEADS, SIZE)[head]
                level = None if sink is None else sink[head]
                out[sample, t, head] = mixed(query, own, mine, SIZE**-0.5, level)
    return out.reshape(2, NEW, HEADS * SIZE)


def run_dense(xp: Backend, x: dict[str, Any], outputs: int = 3, **options: Any) -> Any:
    inputs = [x.get(name) for name in DENSE]
    while inputs[-1] is None:
        inputs.pop()
    return results(xp, "DynamicSparseAttention", *inputs, outputs=outputs, **MODES, **options)


@pytest.mark.parametrize("sink", [None, drawn(HEADS)], ids=["no sink", "sink"])
def test_selected_tokens_of_the_cache(xp: Backend, sink: Any) -> None:
    x = dense(MAIN)
    y, *present = run_dense(xp, x if sink is None else {**x, "head_sink": sink})
    np.testing.assert_allclose(y, documented(x, MAIN, 0, sink), rtol=1e-4, atol=1e-5)
    for found, expected in zip(present, caches(x), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("is_shared", [0, 1])
def test_the_last_tokens_and_selected_auxiliary_ones(xp: Backend, is_shared: int) -> None:
    x = dense(AUXILIARY)
    x["auxiliary_key"] = x["auxiliary_value"] = drawn(2, KV_HEADS, 3, SIZE, seed=6)
    if not is_shared:
        x["auxiliary_value"] = drawn(2, KV_HEADS, 3, SIZE, seed=7)
    expected = documented(x, AUXILIARY, 2, None)
    if is_shared:
        x["auxiliary_value"] = None
    y, *_ = run_dense(xp, x, auxiliary_kv_shared=is_shared, **LOCAL)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def test_a_smooth_softmax_is_a_sink_of_zero() -> None:
    x = dense(MAIN)
    y, *_ = run_dense(HOST, x, smooth_softmax=1)
    expected = documented(x, MAIN, 0, np.zeros(HEADS))
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def test_all_tokens_selected_is_grouped_query_attention() -> None:
    """With norms and rotation from an element on, and queries, keys and values in one array."""
    every = [[*range(6)], [*range(7)], [*range(5)], [*range(6)]]
    x = dense([])
    x["selected_indices"], x["selected_counts"] = selections(every, 7)
    x["cos_cache"], x["sin_cache"] = drawn(16, 4, seed=8), drawn(16, 4, seed=9)
    x["q_norm_weight"], x["k_norm_weight"] = drawn(SIZE, seed=10), drawn(SIZE, seed=11)
    y, *present = run_dense(HOST, x, do_rotary=1, rotary_offset=8)
    packed = np.concatenate([x["query"], x["key"], x["value"]], axis=2)
    joined = {**x, "query": packed, "key": None, "value": None}
    z, *_ = run_dense(HOST, joined, do_rotary=1, rotary_offset=8)
    np.testing.assert_allclose(z, y, rtol=1e-5)

    def prepared(name: str, weight: str, heads: int) -> Any:
        rows = x[name].reshape(2, NEW, heads, SIZE).astype(np.float64)
        rows = rows / np.sqrt(np.mean(rows**2, axis=-1, keepdims=True) + 1e-6) * x[weight]
        for sample, total in enumerate(TOTALS):
            for t in range(NEW):
                place = total - NEW + t
                cos, sin = x["cos_cache"][place], x["sin_cache"][place]
                one, two = rows[sample, t, :, 8:12].copy(), rows[sample, t, :, 12:].copy()
                rows[sample, t, :, 8:12] = one * cos - two * sin
                rows[sample, t, :, 12:] = two * cos + one * sin
        return rows.reshape(2, NEW, heads * SIZE)

    x["query"] = prepared("query", "q_norm_weight", HEADS)
    x["key"] = prepared("key", "k_norm_weight", KV_HEADS)
    np.testing.assert_allclose(y, documented(x, every, 0, None), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(present[0], caches(x)[0], rtol=1e-4, atol=1e-5)


def test_a_first_call_without_a_past() -> None:
    x = dense([[0], [0, 1], [0], [1]])
    alone = {**x, "past_key": None, "past_value": None, "seqlens_k": np.asarray([1, 1], np.int32)}
    alone["total_sequence_length"] = np.asarray([2], np.int32)
    y, keys, _ = run_dense(HOST, alone)
    assert keys.shape == (2, KV_HEADS, NEW, SIZE)
    value = x["value"][0, 0].reshape(KV_HEADS, SIZE)
    np.testing.assert_allclose(y[0, 0].reshape(HEADS, SIZE), value.repeat(2, 0), rtol=1e-6)


@pytest.mark.parametrize(
    ("others", "options", "message"),
    [
        ({}, {"selected_kv_source": "auxiliary"}, "must be 'selected_only' and 'main'"),
        ({}, {"is_causal": 0}, "is_causal must be 1"),
        ({}, {**LOCAL, "local_window_size": 0}, "the window positive"),
        ({}, LOCAL, "auxiliary_key or auxiliary_value is missing"),
        ({"selected_counts": np.zeros(3, np.int32)}, {}, "selected_counts has shape"),
        ({"selected_indices": np.zeros((3, 4), np.int32)}, {}, "a row for each of 4 tokens"),
        ({"past_key": drawn(2, 1, PAST, SIZE)}, {}, "a past state has shape"),
        ({}, {"do_rotary": 1}, "cos_cache and sin_cache"),
    ],
    ids=str,
)
def test_what_is_refused(others: Any, options: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        run_dense(HOST, {**dense(MAIN), **others}, **options)


# -- a cache in pages ------------------------------------------------------------------------------

ROWS = 4
PAGED_PAST, PAGED_NEW = (5, 0, 9), (1, 3, 1)
TABLE = np.int32([[3, 1, 7], [6, -1, -1], [0, 5, 2]])
ENDS = np.int32([0, 1, 4, 5])
SAMPLE = (0, 1, 1, 1, 2)
PAGED_MAIN = [[0, 5], [0], [1, 0], [], [9, 3, 7]]
PAGED_AUXILIARY = [[1], [0, 2], [], [2], [0]]


def paged(rows: list[list[int]], **others: Any) -> list[Any]:
    tokens = [drawn(5, heads * SIZE, seed=i) for i, heads in enumerate((HEADS, KV_HEADS, KV_HEADS))]
    pages = [drawn(8, ROWS, KV_HEADS, SIZE, seed=i) for i in (3, 4)]
    names = ("auxiliary_key", "auxiliary_value", "auxiliary_lengths")
    auxiliary = [others.get(name) for name in names]
    past = np.int32(PAGED_PAST)
    return [*tokens, *pages, ENDS, past, TABLE, None, *selections(rows), *auxiliary]


def run_paged(xp: Backend, inputs: list[Any], **options: Any) -> list[Any]:
    """In float32, which shows the definition better than the schema's floats of 16 bits."""
    node = Small("SparsePagedAttention", inputs, {**MODES, **options}, outputs=3)
    model = sardonyx.load(node.model(), backend=xp, strict=False)
    return [np.asarray(result) for result in model.run(None, node.feeds)]


@pytest.mark.parametrize("mode", ["selected_only", "local_plus_selected"])
@pytest.mark.parametrize("source", ["main", "auxiliary"])
def test_selected_tokens_of_pages(xp: Backend, mode: str, source: str) -> None:
    is_main, window = source == "main", 2
    rows = PAGED_MAIN if is_main else PAGED_AUXILIARY
    auxiliary = {
        "auxiliary_key": drawn(3, 3, 1, SIZE, seed=6),
        "auxiliary_value": drawn(3, 3, 1, SIZE, seed=7),
        # The third auxiliary key of the second sample is not there.
        "auxiliary_lengths": np.int32([3, 2, 3]),
    }
    inputs = paged(rows, **({} if is_main else auxiliary))
    options = {"attention_mode": mode, "selected_kv_source": source, "local_window_size": window}
    y, *found = run_paged(xp, inputs, **options)
    keys, values = found
    for t, sample in enumerate(SAMPLE):
        place = PAGED_PAST[sample] + t - ENDS[sample]
        near = range(max(place - window + 1, 0), place + 1) if mode != "selected_only" else ()
        seen = {*near, *(row for row in rows[t] if is_main and row <= place)}
        slots = [(TABLE[sample][row // ROWS], row % ROWS) for row in sorted(seen)]
        others = (
            [] if is_main else [r for r in rows[t] if r < auxiliary["auxiliary_lengths"][sample]]
        )
        for head in range(HEADS):
            kv = head * KV_HEADS // HEADS
            own = [keys[page, row, kv].astype(np.float64) for page, row in slots]
            mine = [values[page, row, kv].astype(np.float64) for page, row in slots]
            own += [auxiliary["auxiliary_key"][sample, row, 0].astype(np.float64) for row in others]
            mine += [auxiliary["auxiliary_value"][sample, row, 0] for row in others]
            query = inputs[0][t].reshape(HEADS, SIZE)[head].astype(np.float64)
            expected = mixed(query, own, mine, SIZE**-0.5, None)
            actual = y[t].reshape(HEADS, SIZE)[head]
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
        page, row = TABLE[sample][place // ROWS], place % ROWS
        np.testing.assert_array_equal(keys[page, row].ravel(), inputs[1][t])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attention_mode": "all"}, "attention_mode"),
        ({"selected_kv_source": "auxiliary"}, "auxiliary_key or auxiliary_value is missing"),
        ({"k_quant_type": "PER_TENSOR"}, "a quantized cache is not supported"),
        ({"auxiliary_cache_layout": "paged"}, "auxiliary_cache_layout"),
    ],
)
def test_what_pages_refuse(options: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        run_paged(HOST, paged(PAGED_MAIN), **options)
