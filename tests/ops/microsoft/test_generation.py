"""GreedySearch with a small decoder of one layer, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.errors import InvalidInput, LimitExceeded
from tests.ops.microsoft.search_graphs import EOS, PAD, VOCABULARY, gpt, one, search


def model(inputs: dict[str, Any], **attributes: Any) -> bytes:
    return search("GreedySearch", inputs, ("sequences",), **{"decoder": gpt(), **attributes})


def prompt(length: int = 4, **others: Any) -> dict[str, Any]:
    tokens = np.random.default_rng(1).integers(0, EOS, (3, length)).astype(np.int32)
    arrays = {name: np.asarray(value, dtype) for name, (value, dtype) in others.items()}
    return {"input_ids": tokens, "max_length": np.asarray([12], np.int32), **arrays}


def assert_agrees(xp: Backend, inputs: dict[str, Any], **attributes: Any) -> None:
    content = model(inputs, **attributes)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, inputs)
    found = np.asarray(sardonyx.load(content, backend=xp)(**inputs))
    assert found.dtype == expected.dtype
    # Once all texts have ended, onnxruntime leaves the rest of its memory as it was.
    start = inputs["input_ids"].shape[1]
    paddings = np.flatnonzero(np.all(found[:, start:] == PAD, axis=0))
    end = start + paddings[0] + 1 if paddings.size else found.shape[1]
    assert np.all(found[:, end:] == PAD)
    np.testing.assert_array_equal(found[:, :end], expected[:, :end])


MASK = [1, 0, 1, 1, 0, 1, 1, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("others", "attributes"),
    [
        ({}, {}),
        ({}, {"no_repeat_ngram_size": 2}),
        ({"min_length": ([9], np.int32)}, {"eos_token_id": 1}),
        ({"repetition_penalty": ([1.7], np.float32)}, {}),
        ({"vocab_mask": (MASK, np.int32)}, {}),
        ({"prefix_vocab_mask": ([MASK] * 3, np.int32)}, {}),
        ({"attention_mask": ([[0, 0, 1, 1], [1, 1, 1, 1], [0, 1, 1, 1]], np.int32)}, {}),
    ],
    ids=str,
)
def test_texts(xp: Backend, others: Any, attributes: Any) -> None:
    assert_agrees(xp, prompt(**others), **attributes)


@pytest.mark.parametrize("eos", range(EOS))
def test_texts_that_end(eos: int) -> None:
    assert_agrees(HOST, prompt(), eos_token_id=eos)


def test_padded_prompts() -> None:
    inputs = prompt()
    inputs["input_ids"][0, :2] = PAD
    assert_agrees(HOST, inputs)


def test_the_first_decoder_may_be_another() -> None:
    assert_agrees(HOST, prompt(), init_decoder=gpt(2.0))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(24))
def test_drawn_prompts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batch, length = rng.integers(1, 5, 2)
    inputs = prompt()
    inputs["input_ids"] = rng.integers(0, PAD + 1, (batch, length)).astype(np.int32)
    # A padding is never chosen, so that one shows where a text has ended.
    inputs["vocab_mask"] = (np.arange(VOCABULARY) != PAD).astype(np.int32)
    inputs["repetition_penalty"] = one(rng.uniform(0.5, 2), np.float32)
    if seed % 2:
        # A token that the mask hides keeps its place; a padding that it shows has none.
        inputs["attention_mask"] = rng.integers(0, 2, (batch, length)).astype(np.int32)
    size = int(rng.integers(3))
    assert_agrees(HOST, inputs, decoder=gpt(0.3), no_repeat_ngram_size=size)


def test_a_decoder_that_reads_no_mask_gets_no_hidden_tokens(xp: Backend) -> None:
    assert_agrees(xp, prompt(), decoder=gpt(reads_mask=False))


def steps_of(inputs: dict[str, Any], **attributes: Any) -> int:
    """The number of nodes that a call traces one by one, as far as one limit tells."""
    for nodes in (2**k for k in range(4, 20)):
        limits = sardonyx.Limits(traced_nodes=nodes)
        try:
            sardonyx.load(model(inputs, **attributes), backend="numpy", limits=limits)(**inputs)
        except LimitExceeded:
            continue
        return nodes
    raise AssertionError


def test_longer_texts_trace_no_more() -> None:
    short, long = ({**prompt(), "max_length": one(n)} for n in (8, 300))
    attributes = {"decoder": gpt(places=300), "eos_token_id": PAD + 1}
    assert steps_of(short, **attributes) == steps_of(long, **attributes)


def test_the_loop_ends_when_all_texts_have_ended() -> None:
    """The decoder has no place for the last tokens, but does not come so far."""
    inputs = {**prompt(), "max_length": one(4000)}
    found = sardonyx.load(model(inputs, eos_token_id=1), backend="numpy")(**inputs)
    assert found.shape == (3, 4000)
    assert np.all(found[:, 40:] == PAD)


def test_more_tokens_than_the_limit() -> None:
    inputs = {**prompt(), "max_length": one(5000)}
    with pytest.raises(LimitExceeded, match="4,996 more tokens"):
        sardonyx.load(model(inputs), backend="numpy")(**inputs)


def test_no_token_is_asked_for() -> None:
    inputs = {**prompt(), "max_length": np.asarray([4], np.int32)}
    found = sardonyx.load(model(inputs))(**inputs)
    np.testing.assert_array_equal(found, inputs["input_ids"])


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"vocab_mask": (MASK[1:], np.int32)}, "vocab_mask has shape"),
        ({"prefix_vocab_mask": ([MASK], np.int32)}, "prefix_vocab_mask has shape"),
        ({"attention_mask": ([[1, 1, 1, 1]], np.int32)}, "attention_mask has shape"),
        ({"min_length": ([1, 2], np.int32)}, "min_length has shape"),
    ],
)
def test_the_inputs_are_checked(others: Any, message: str) -> None:
    inputs = prompt(**others)
    with pytest.raises(InvalidInput, match=message):
        sardonyx.load(model(inputs))(**inputs)


def test_encoders_are_refused() -> None:
    with pytest.raises(InvalidInput, match="only decoders"):
        sardonyx.load(model(prompt(), model_type=1))(**prompt())
