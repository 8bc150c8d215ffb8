from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.errors import InvalidInput
from tests.ops.microsoft.comparison import assert_agrees, results

DTYPES = [np.int32, np.int64]
SIZES = {"max_ngram_size": 3, "n_head_per_ngram": 2}
EOS = 2


def constants(dtype: Any) -> list[Any]:
    """Multipliers whose products overflow, and the size of each head's table."""
    top = np.iinfo(dtype).max
    return [np.asarray([top - 4, -11, top // 3], dtype), np.asarray([7, 11, 13, 101], dtype)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("has_past", [False, True])
@pytest.mark.parametrize("has_eos", [False, True])
@pytest.mark.parametrize("has_segments", [False, True])
@pytest.mark.parametrize("length", [1, 9])
def test_hashes(
    xp: Backend, dtype: Any, has_past: bool, has_eos: bool, has_segments: bool, length: int
) -> None:
    rng = np.random.default_rng(length)
    tokens = rng.integers(0, 5, (3, length)).astype(dtype)
    past = rng.integers(0, 5, (3, 2)).astype(dtype) if has_past else None
    eos = np.asarray(EOS, dtype) if has_eos else None
    segments = np.sort(rng.integers(0, 3, tokens.shape).astype(np.int32)) if has_segments else None
    offsets = np.asarray([0, 7, 18, 31], dtype)
    inputs = [tokens, *constants(dtype), past, offsets if has_eos else None, eos, segments]
    for reset in (0, 1) if has_eos and xp is HOST else (1,):
        options = {**SIZES, "pad_id": 1, "reset_on_eos": reset}
        assert_agrees(xp, "NGramHashMapping", *inputs, outputs=2, **options)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("has_past", [False, True])
@pytest.mark.parametrize("has_eos", [False, True])
@pytest.mark.parametrize("segments", ["none", "now", "past"])
def test_hashes_of_packed_requests(
    xp: Backend, dtype: Any, has_past: bool, has_eos: bool, segments: str
) -> None:
    rng = np.random.default_rng(0)
    bounds = np.asarray([0, 4, 5, 12], np.int32)
    tokens = rng.integers(0, 5, 12).astype(dtype)
    past = rng.integers(0, 5, (3, 2)).astype(dtype) if has_past else None
    eos = np.asarray(EOS, dtype) if has_eos else None
    now = None if segments == "none" else np.sort(rng.integers(0, 4, 12)).astype(np.int32)
    before = rng.integers(0, 2, (3, 2)).astype(np.int32) if segments == "past" else None
    offsets = np.asarray([0, 7, 18, 31], dtype) if has_eos else None
    inputs = [tokens, *constants(dtype), bounds, past, offsets, eos, now, before]
    for reset in (0, 1) if has_eos and xp is HOST else (1,):
        options = {**SIZES, "pad_id": 1, "reset_on_eos": reset}
        outputs = 2 if now is None else 3
        assert_agrees(xp, "VarlenNGramHashMapping", *inputs, outputs=outputs, **options)


@pytest.mark.parametrize("has_past", [False, True])
def test_states_of_first_tokens(xp: Backend, has_past: bool) -> None:
    tokens = np.arange(3, 15, dtype=np.int64)
    bounds = np.asarray([0, 4, 5, 12], np.int32)
    past = -np.arange(6, dtype=np.int64).reshape(3, 2) if has_past else None
    captured = np.asarray([2, 3, 5], np.int32)
    segments = np.zeros(12, np.int32)
    inputs = [tokens, *constants(np.int64), bounds, past, None, None, segments, None, captured]
    options = {**SIZES, "pad_id": 1, "state_update_capacity": 4}
    assert_agrees(xp, "VarlenNGramHashMapping", *inputs, outputs=4, **options)


def test_chunks_hash_as_the_whole(xp: Backend) -> None:
    tokens = np.random.default_rng(0).integers(0, 5, (2, 7))
    options = {**SIZES, "pad_id": 1}
    whole, _ = results(xp, "NGramHashMapping", tokens, *constants(np.int64), outputs=2, **options)
    past, parts = None, []
    for chunk in (tokens[:, :1], tokens[:, 1:4], tokens[:, 4:]):
        inputs = [chunk, *constants(np.int64), past]
        part, past = results(xp, "NGramHashMapping", *inputs, outputs=2, **options)
        parts.append(part)
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({0: np.zeros(3, np.int64)}, {}, "input_ids has shape"),
        ({1: np.zeros(2, np.int64)}, {}, "multipliers has shape"),
        ({2: np.ones(3, np.int64)}, {}, "vocab_sizes has shape"),
        ({2: np.zeros(4, np.int64)}, {}, "'vocab_sizes' holds 0"),
        ({3: np.zeros((2, 3), np.int64)}, {}, "past_ids has shape"),
        ({}, {"max_ngram_size": 1}, "max_ngram_size is 1"),
    ],
)
def test_hashes_check_their_inputs(change: Any, options: Any, message: str) -> None:
    inputs = [np.zeros((2, 3), np.int64), *constants(np.int64), None]
    for place, value in change.items():
        inputs[place] = value
    with pytest.raises(InvalidInput, match=message):
        results(HOST, "NGramHashMapping", *inputs, **{**SIZES, "pad_id": 0, **options})


@pytest.mark.parametrize(
    ("bounds", "options", "message"),
    [
        ([0], {}, "cumulative_sequence_length has shape"),
        ([0, 1, 2, 3, 4, 5], {}, "too few for 5 requests"),
        ([1, 4], {}, "holds 1"),
        ([0, 3], {}, "holds 3"),
        ([0, 4], {"state_update_capacity": 2}, "state_update_capacity is 2"),
    ],
)
def test_packed_requests_are_checked(bounds: Any, options: Any, message: str) -> None:
    inputs = [np.zeros(4, np.int64), *constants(np.int64), np.asarray(bounds, np.int32)]
    with pytest.raises(InvalidInput, match=message):
        results(HOST, "VarlenNGramHashMapping", *inputs, **{**SIZES, "pad_id": 0, **options})
