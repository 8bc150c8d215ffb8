"""WhisperBeamSearch with a small encoder and decoder, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.errors import InvalidInput
from tests.ops.microsoft.search_graphs import SIZE, VOCABULARY, decoder, encoder, one, search

OUTPUTS = ("sequences", "sequences_scores", "scores")
TIMESTAMPS = {
    "eos_token_id": 3,
    "translate_token_id": 4,
    "transcribe_token_id": 5,
    "start_of_lm_token_id": 6,
    "no_timestamps_token_id": 2,
    "beginning_timestamp_token_id": 7,
}


def inputs_of(batch: int = 2, **others: Any) -> dict[str, Any]:
    sounds = np.random.default_rng(1).normal(size=(batch, SIZE, 4)).astype(np.float32)
    numbers = {"max_length": 8, "min_length": 0, "num_beams": 3, "num_return_sequences": 2}
    arrays = {name: one(number) for name, number in numbers.items()}
    penalties = {name: one(1.0, np.float32) for name in ("length_penalty", "repetition_penalty")}
    return {"input_ids": sounds, **arrays, **penalties, **others}


def model(inputs: dict[str, Any], outputs: Any = OUTPUTS, **attributes: Any) -> bytes:
    subgraphs = {"encoder": encoder(is_whisper=True), "decoder": decoder(is_whisper=True)}
    fixed = {"decoder_start_token_id": 1, "early_stopping": 1, "pad_token_id": 0, "model_type": 2}
    return search("WhisperBeamSearch", inputs, outputs, **{**fixed, **subgraphs, **attributes})


def assert_agrees(xp: Backend, inputs: dict[str, Any], **attributes: Any) -> None:
    content = model(inputs, **attributes)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    texts, scores, steps = session.run(None, inputs)
    results = sardonyx.load(content, backend=xp)(**inputs)
    found_texts, found_scores, found_steps = map(np.asarray, results)
    np.testing.assert_array_equal(found_texts, texts)
    np.testing.assert_allclose(found_scores, scores, rtol=1e-4, atol=1e-5)
    ran = np.any(found_steps, axis=(1, 2, 3))
    np.testing.assert_allclose(found_steps[ran], steps[ran], rtol=1e-4, atol=1e-4)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(40))
def test_drawn_searches(seed: int) -> None:
    rng = np.random.default_rng(seed)
    inputs = inputs_of(int(rng.integers(1, 4)))
    batch = len(inputs["input_ids"])
    if seed % 3:
        first = rng.integers(0, VOCABULARY, (batch, rng.integers(1, 5)))
        inputs["decoder_input_ids"] = first.astype(np.int32)
    if seed % 4 == 0:
        inputs["temperature"] = one(1.7, np.float32)
    attributes: dict[str, Any] = {"eos_token_id": int(rng.integers(VOCABULARY))}
    if seed % 2:
        inputs["logits_processor"] = one(1)
        begin = int(rng.integers(5, 10))
        attributes = {**TIMESTAMPS, "beginning_timestamp_token_id": begin}
    hidden = decoder(is_whisper=True, takes_hidden=True)
    assert_agrees(HOST, inputs, **attributes, **({"decoder": hidden} if seed % 5 == 0 else {}))


@pytest.mark.parametrize("rules", [0, 1])
def test_every_backend(xp: Backend, rules: int) -> None:
    inputs = inputs_of(max_length=one(5), logits_processor=one(rules))
    assert_agrees(xp, inputs, **TIMESTAMPS)


def test_the_probability_of_silence() -> None:
    """onnxruntime's CPU kernel leaves it unset; it follows from the scores of the first step."""
    inputs = inputs_of(num_beams=one(1), num_return_sequences=one(1))
    outputs = (*OUTPUTS, "", "silence")
    results = sardonyx.load(
        model(inputs, outputs, eos_token_id=3, no_speech_token_id=2), backend="numpy"
    )(**inputs)
    steps, silence = np.asarray(results[2]), np.asarray(results[-1])
    np.testing.assert_allclose(silence, np.exp(steps[0, :, 0, 2]), rtol=1e-5)


@pytest.mark.parametrize(
    ("others", "attributes", "message"),
    [
        ({"logits_processor": one(1)}, {}, "the tokens translate, transcribe"),
        ({}, {"decoder_output_cross_qk": 1}, "products of queries and keys"),
        ({}, {"model_type": 1}, "model_type is 1"),
        ({"decoder_input_ids": np.ones((1, 1), np.int32)}, {}, "decoder_input_ids has shape"),
    ],
    ids=str,
)
def test_what_is_refused(others: Any, attributes: Any, message: str) -> None:
    inputs = inputs_of(**others)
    content = model(inputs, **{"eos_token_id": 3, **attributes})
    with pytest.raises(InvalidInput, match=message):
        sardonyx.load(content, backend="numpy")(**inputs)


def test_beam_search_has_no_attributes_for_timestamps() -> None:
    inputs = inputs_of(logits_processor=one(1))
    subgraphs = {"encoder": encoder(is_whisper=True), "decoder": decoder(is_whisper=True)}
    content = search(
        "BeamSearch", inputs, OUTPUTS, model_type=2, decoder_start_token_id=1, **subgraphs
    )
    with pytest.raises(InvalidInput, match="only WhisperBeamSearch"):
        sardonyx.load(content, backend="numpy")(**inputs)
    plain = {**inputs, "logits_processor": one(0)}
    texts, *_ = sardonyx.load(content, backend="numpy")(**plain)
    assert texts.shape == (2, 2, 8)
