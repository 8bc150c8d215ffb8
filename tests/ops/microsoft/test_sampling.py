"""Sampling: which tokens it may draw, and how often; onnxruntime draws with another generator."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.errors import InvalidInput
from tests.ops.microsoft.search_graphs import PAD, VOCABULARY, gpt, one, search

ROWS = 2000


def inputs_of(rows: int = ROWS, length: int = 5, **others: Any) -> dict[str, Any]:
    """Equal prompts, so that one call draws often."""
    tokens = np.tile(np.asarray([[4, 4, 6, 8]], np.int32), (rows, 1))
    return {"input_ids": tokens, "max_length": one(length), "seed": one(3), **others}


def model(inputs: dict[str, Any], outputs: Any = ("sequences", "scores"), **others: Any) -> bytes:
    return search("Sampling", inputs, outputs, **{"decoder": gpt(), "temperature": 25.0, **others})


def counts(texts: Any) -> Any:
    return np.bincount(np.asarray(texts)[:, 4], minlength=VOCABULARY)


FILTERS = [
    {"top_p": 0.6},
    {"top_p": 0.6, "custom": 1},
    {"top_p": 0.3, "min_tokens_to_keep": 4},
    {"top_p": 0.7, "custom": 1, "filter_value": -1.0},
    {"top_p": 0.0},
    {"top_p": 1.0},
    {"top_p": 0.01, "custom": 1},
]


@pytest.mark.parametrize("attributes", FILTERS, ids=str)
def test_tokens_are_drawn_as_often_as_in_onnxruntime(attributes: Any) -> None:
    inputs = inputs_of()
    content = model(inputs, **attributes)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    theirs = counts(session.run(["sequences"], inputs)[0])
    texts, scores = sardonyx.load(content, backend="numpy")(**inputs)
    ours = counts(texts)
    # Five standard deviations of a difference of two counts.
    assert np.all(np.abs(ours - theirs) <= 5 * np.sqrt(ours + theirs + 1))
    dropped = scores[0] == np.float32(attributes.get("filter_value", -1e20))
    if not dropped.all() and "filter_value" not in attributes:
        assert not np.any(ours[dropped])


def test_texts_on_every_backend(xp: Backend) -> None:
    """The least share leaves one token, so that nothing is left to the draw."""
    inputs = inputs_of(3, 12)
    attributes = {"top_p": 0.001, "custom": 1, "eos_token_id": 1}
    content = model(inputs, **attributes, decoder=gpt(0.3))
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (expected,) = session.run(["sequences"], inputs)
    found = np.asarray(sardonyx.load(content, backend=xp)(**inputs)[0])
    ends = np.argmax(np.all(found == PAD, axis=0)) or found.shape[1]
    np.testing.assert_array_equal(found[:, :ends], expected[:, :ends])


def test_a_seed_gives_the_same_tokens_on_every_backend(xp: Backend) -> None:
    inputs = inputs_of(20, 8)
    content = model(inputs, ("sequences",), top_p=0.9)
    expected = sardonyx.load(content, backend="numpy")(**inputs)
    np.testing.assert_array_equal(sardonyx.load(content, backend=xp)(**inputs), expected)


def test_seeds_and_steps_differ() -> None:
    inputs = inputs_of(200, 7)
    loaded = sardonyx.load(model(inputs, ("sequences",), top_p=1.0), backend="numpy")
    one_text, other = loaded(**inputs), loaded(**{**inputs, "seed": one(4)})
    assert np.any(one_text != other)
    assert np.any(one_text[:, 4] != one_text[:, 5])
    unseeded = {name: x for name, x in inputs.items() if name != "seed"}
    first = sardonyx.load(model(unseeded, ("sequences",), top_p=1.0), backend="numpy")(**unseeded)
    zero = loaded(**{**inputs, "seed": one(0)})
    np.testing.assert_array_equal(first, zero)


def test_penalties_for_present_tokens() -> None:
    """As documented; onnxruntime's CPU kernel ignores them."""
    mask = np.zeros((5, VOCABULARY), np.int32)
    mask[:, 1] = 1
    inputs = inputs_of(5, presence_mask=mask)
    attributes = {"top_p": 1.0, "presence_penalty": 1.5}
    _, scores = sardonyx.load(model(inputs, **attributes), backend="numpy")(**inputs)
    plain = inputs_of(5)
    _, expected = sardonyx.load(model(plain, top_p=1.0), backend="numpy")(**plain)
    np.testing.assert_allclose(scores, expected - 1.5 * mask, rtol=1e-6)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"min_tokens_to_keep": 12}, "min_tokens_to_keep is 12"),
        ({"model_type": 1}, "only decoders"),
    ],
)
def test_what_is_refused(attributes: Any, message: str) -> None:
    inputs = inputs_of(1)
    with pytest.raises(InvalidInput, match=message):
        sardonyx.load(model(inputs, **attributes), backend="numpy")(**inputs)


def test_the_texts_must_be_longer_than_the_prompts() -> None:
    inputs = inputs_of(1, 4)
    with pytest.raises(InvalidInput, match="must exceed the 4 tokens"):
        sardonyx.load(model(inputs), backend="numpy")(**inputs)
