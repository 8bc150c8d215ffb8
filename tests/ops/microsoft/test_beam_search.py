"""BeamSearch with small decoders in the layouts of GPT-2 and T5, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.errors import InvalidInput
from tests.ops.microsoft.search_graphs import (
    EOS,
    PAD,
    START,
    VOCABULARY,
    decoder,
    encoder,
    fused_gpt,
    gpt,
    one,
    search,
)

OUTPUTS = ("sequences", "sequences_scores", "scores")


def assert_agrees(xp: Backend, inputs: dict[str, Any], **attributes: Any) -> None:
    """Require onnxruntime's texts and scores; scores of steps after the end are zeros."""
    content = search("BeamSearch", inputs, OUTPUTS, **attributes)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    texts, scores, steps = session.run(None, inputs)
    results = sardonyx.load(content, backend=xp)(**inputs)
    found_texts, found_scores, found_steps = map(np.asarray, results)
    np.testing.assert_array_equal(found_texts, texts)
    np.testing.assert_allclose(found_scores, scores, rtol=1e-4, atol=1e-5)
    assert found_steps.shape == steps.shape
    ran = np.any(found_steps, axis=(1, 2, 3))
    assert ran[0]
    np.testing.assert_allclose(found_steps[ran], steps[ran], rtol=1e-4, atol=1e-4)


def inputs_of(batch: int = 2, length: int = 3, **others: Any) -> dict[str, Any]:
    tokens = np.random.default_rng(1).integers(0, EOS, (batch, length)).astype(np.int32)
    numbers = {"max_length": 9, "min_length": 0, "num_beams": 3, "num_return_sequences": 2}
    arrays = {name: one(number) for name, number in numbers.items()}
    penalties = {name: one(1.0, np.float32) for name in ("length_penalty", "repetition_penalty")}
    return {"input_ids": tokens, **arrays, **penalties, **others}


def drawn(seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs and attributes of a search at random."""
    rng = np.random.default_rng(seed)
    batch, length, beams = (int(n) for n in rng.integers(1, 5, 3))
    inputs = inputs_of(
        batch,
        length,
        input_ids=rng.integers(0, VOCABULARY, (batch, length)).astype(np.int32),
        max_length=one(length + rng.integers(2, 8)),
        min_length=one(rng.integers(0, 6)),
        num_beams=one(beams),
        num_return_sequences=one(rng.integers(1, beams + 1)),
        length_penalty=one(rng.uniform(-1, 2), np.float32),
        repetition_penalty=one(rng.uniform(0.5, 2), np.float32),
    )
    if rng.random() < 0.3:
        inputs["vocab_mask"] = (rng.random(VOCABULARY) < 0.8).astype(np.int32)
    if rng.random() < 0.3:
        inputs["prefix_vocab_mask"] = (rng.random((batch, VOCABULARY)) < 0.8).astype(np.int32)
    if rng.random() < 0.3:
        mask = rng.random((batch, length)) < 0.7
        mask[:, 0] = True
        inputs["attention_mask"] = mask.astype(np.int32)
    return inputs, {
        "eos_token_id": int(rng.integers(VOCABULARY)),
        # onnxruntime ends rows by the scores of others unless it stops early.
        "early_stopping": int(batch > 1 or rng.integers(2)),
        "no_repeat_ngram_size": int(rng.integers(3)),
    }


def t5(form: str) -> dict[str, Any]:
    subgraphs = {
        "decodes": {"encoder": encoder(), "decoder": decoder()},
        "encodes": {"encoder": encoder(decodes=False), "decoder": decoder()},
        "hidden": {"encoder": encoder(), "decoder": decoder(takes_hidden=True)},
        "all tokens": {"encoder": encoder(), "decoder": decoder(length="length")},
    }
    tokens = {"pad_token_id": 0, "decoder_start_token_id": START, "model_type": 1}
    return {**subgraphs[form], **tokens}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(40))
def test_drawn_searches_with_one_decoder(seed: int) -> None:
    inputs, attributes = drawn(seed)
    assert_agrees(HOST, inputs, decoder=gpt(0.3), **attributes)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(20))
def test_drawn_searches_with_fused_attention(seed: int) -> None:
    inputs, attributes = drawn(seed)
    assert_agrees(HOST, inputs, decoder=fused_gpt(), **attributes)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(40))
def test_drawn_searches_with_an_encoder(seed: int) -> None:
    inputs, attributes = drawn(seed)
    form = ("decodes", "encodes", "hidden", "all tokens")[seed % 4]
    if form == "all tokens":  # Which are appended to the past again and again.
        inputs["max_length"] = one(6)
    assert_agrees(HOST, inputs, **{**t5(form), **attributes})


@pytest.mark.parametrize("early_stopping", [0, 1])
def test_every_backend(xp: Backend, early_stopping: int) -> None:
    inputs = inputs_of(1 if not early_stopping else 2)
    attributes = {"early_stopping": early_stopping, "eos_token_id": 2, "no_repeat_ngram_size": 2}
    assert_agrees(xp, inputs, decoder=gpt(0.3), **attributes)


@pytest.mark.parametrize("form", ["decodes", "encodes"])
def test_an_encoder_on_every_backend(xp: Backend, form: str) -> None:
    assert_agrees(xp, inputs_of(max_length=one(6)), **t5(form), early_stopping=1)


def test_a_decoder_that_reads_no_mask_gets_no_hidden_tokens() -> None:
    inputs = inputs_of(1)
    assert_agrees(HOST, inputs, decoder=gpt(0.3, reads_mask=False), eos_token_id=2)


def test_one_beam_and_one_more_token() -> None:
    inputs = inputs_of(num_beams=one(1), num_return_sequences=one(1), max_length=one(4))
    assert_agrees(HOST, inputs, decoder=gpt(0.3), early_stopping=1)


@pytest.mark.parametrize("form", ["gpt", "t5"])
def test_under_a_transformation(form: str) -> None:
    """There nobody can see that all texts have ended; the texts are the same."""
    jax = pytest.importorskip("jax")
    inputs = inputs_of(2, max_length=one(5), num_beams=one(2))
    subgraphs = {"decoder": gpt(0.3)} if form == "gpt" else t5("decodes")
    content = search("BeamSearch", inputs, OUTPUTS[:1], **subgraphs, early_stopping=1)
    expected = sardonyx.load(content, backend="numpy")(**inputs)
    function, params = sardonyx.to_jax(content)

    def texts(tokens: Any) -> Any:
        return function(params, **{**inputs, "input_ids": tokens})

    np.testing.assert_array_equal(jax.jit(texts)(inputs["input_ids"]), expected)


def test_rows_do_not_depend_on_each_other() -> None:
    """In onnxruntime they do unless it stops early: it ends a row by the scores of another."""
    inputs = inputs_of(4)
    attributes = {"decoder": gpt(0.3), "eos_token_id": 2}
    content = search("BeamSearch", inputs, OUTPUTS, **attributes)
    together, scores, _ = sardonyx.load(content, backend="numpy")(**inputs)
    for row in range(4):
        alone = {**inputs, "input_ids": inputs["input_ids"][row : row + 1]}
        content = search("BeamSearch", alone, OUTPUTS, **attributes)
        text, score, _ = sardonyx.load(content, backend="numpy")(**alone)
        np.testing.assert_array_equal(text[0], together[row])
        np.testing.assert_allclose(score[0], scores[row], rtol=1e-5, atol=1e-6)
        assert_agrees(HOST, alone, **attributes)


def test_the_vocabulary_may_be_smaller_than_the_logits() -> None:
    inputs = inputs_of(1, num_beams=one(2), num_return_sequences=one(1))
    content = search("BeamSearch", inputs, OUTPUTS, decoder=gpt(0.3), vocab_size=7)
    texts, _, steps = sardonyx.load(content, backend="numpy")(**inputs)
    assert steps.shape[-1] == 7
    assert np.all((texts[..., 3:] < 7) | (texts[..., 3:] == PAD))


@pytest.mark.parametrize(
    ("others", "attributes", "message"),
    [
        ({"num_beams": one(1)}, {}, "num_return_sequences is 2 and num_beams is 1"),
        ({"num_beams": one(129)}, {}, "at most 128"),
        ({"max_length": one(3)}, {}, "must exceed the 3 first tokens"),
        ({"attention_mask": np.ones((1, 3), np.int32)}, {}, "attention_mask has shape"),
        ({"vocab_mask": np.ones(3, np.int32)}, {}, "vocab_mask has shape"),
        ({"prefix_vocab_mask": np.ones((3, 3), np.int32)}, {}, "prefix_vocab_mask has shape"),
        ({"input_ids": np.ones((2, 0), np.int32)}, {}, "none of size 0"),
        ({}, {"model_type": 3}, "model_type is 3"),
        ({}, {"model_type": 1, "decoder_start_token_id": 1}, "'encoder' is missing"),
        ({}, {"model_type": 1}, "decoder_start_token_id is -1"),
        ({}, {**t5("decodes"), "decoder": decoder(is_whisper=True)}, "the decoder has 5 inputs"),
        ({}, {**t5("decodes"), "decoder": gpt()}, "the encoder returns 6 values"),
    ],
    ids=str,
)
def test_what_is_refused(others: Any, attributes: Any, message: str) -> None:
    inputs = inputs_of(**others)
    content = search("BeamSearch", inputs, OUTPUTS, **{"decoder": gpt(), **attributes})
    with pytest.raises(InvalidInput, match=message):
        sardonyx.load(content, backend="numpy")(**inputs)
