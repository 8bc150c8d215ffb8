"""GreedySearch: text, token by token, from a decoder that is a subgraph."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.errors import LimitExceeded
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import Body, Value, Walk, op
from sardonyx.ops.dtypes import BOOL, FLOAT32, INT32
from sardonyx.ops.loops import single
from sardonyx.ops.microsoft.ngrams import completes_again

# Maximum number of tokens to generate: each is traced by itself, as the decoder's state grows.
MOST_TOKENS = 2**12
# The decoder's inputs before its past states.
LEADING = 3


@op(domain="com.microsoft")
def GreedySearch(
    walk: Walk,
    input_ids: Value,
    max_length: Value,
    min_length: Value = None,
    repetition_penalty: Value = None,
    vocab_mask: Value = None,
    prefix_vocab_mask: Value = None,
    attention_mask: Value = None,
    *,
    decoder: Body,
    decoder_start_token_id: int = -1,
    encoder: Body | None = None,
    eos_token_id: int,
    init_decoder: Body | None = None,
    model_type: int = 0,
    no_repeat_ngram_size: int = 0,
    pad_token_id: int,
    vocab_size: int = -1,
) -> Value:
    """Append the token of the highest score until `max_length`; after the end come paddings."""
    if model_type or encoder is not None:
        raise ValueError(
            f"model_type is {model_type}, but only decoders such as GPT-2 are supported: 0, and "
            "without an encoder"
        )
    if len(input_ids.shape) != 2:
        raise ValueError(f"input_ids has shape {tuple(input_ids.shape)}, but must have two axes")
    batch, length = input_ids.shape
    longest, shortest = _number(walk, "max_length", max_length), 0
    if min_length is not None:
        shortest = _number(walk, "min_length", min_length)
    if longest - length > MOST_TOKENS:
        raise LimitExceeded(f"max_length {longest} asks for more than {MOST_TOKENS:,} tokens")
    if attention_mask is not None:
        require_shape("attention_mask", attention_mask, (batch, length))
    past = _empty_past(decoder, batch)
    mask, positions = walk.apply(
        _first_inputs, *_present(input_ids, attention_mask), pad_token_id=pad_token_id
    )
    tokens: Value = input_ids
    sequences: Value = input_ids
    finished: Value = np.zeros(batch, BOOL)
    for size in range(length, longest):
        run = init_decoder if init_decoder is not None and size == length else decoder
        logits, *past = run(tokens, positions, mask, *past)
        prefix_mask = prefix_vocab_mask if size == length else None
        rules = _Rules(
            repetition_penalty is not None,
            vocab_mask is not None,
            prefix_mask is not None,
            no_repeat_ngram_size,
            eos_token_id,
            pad_token_id,
            may_end=size >= shortest,
        )
        masks = _present(repetition_penalty, vocab_mask, prefix_mask)
        sequences, tokens, finished = walk.apply(
            _with_next, sequences, logits, finished, *masks, rules=rules
        )
        mask, positions = walk.apply(_next_inputs, mask, positions)
    return (sequences,)


def _present(*values: Value) -> list[Value]:
    return [value for value in values if value is not None]


def _number(walk: Walk, name: str, value: Value) -> int:
    single(name, value)
    return int(walk.read(value).item())


def _empty_past(decoder: Body, batch: int) -> list[Value]:
    """Return states of no tokens, of the sizes that the decoder declares."""
    states = decoder.inputs[LEADING:]
    if len(states) != decoder.outputs - 1:
        raise ValueError(
            f"the decoder has {len(decoder.inputs)} inputs and {decoder.outputs} outputs, but "
            "needs one present state for each past state"
        )
    past: list[Value] = []
    for state in states:
        heads, features = (state.shape[2], state.shape[4]) if len(state.shape) == 5 else (None,) * 2
        if not isinstance(heads, int) or not isinstance(features, int):
            raise ValueError(
                f"a past state of the decoder has shape {list(state.shape)}, but must be declared "
                "as [2, batch, heads, length, features] with a number of heads and of features"
            )
        past.append(np.zeros((2, batch, heads, 0, features), state.dtype))
    return past


def _first_inputs(
    xp: Backend, input_ids: Array, attention_mask: Any = None, *, pad_token_id: int
) -> tuple[Array, Array]:
    """Return the mask of the prompt, and the position of each token among those not padded."""
    if attention_mask is None:
        attention_mask = xp.not_equal(input_ids, pad_token_id)
    mask = xp.astype(attention_mask, xp.dtype(INT32))
    positions = xp.cumulative_sum(mask, axis=1) - 1
    positions = xp.where(mask > 0, positions, xp.zeros_like(positions))
    return mask, xp.astype(positions, xp.dtype(INT32))


def _next_inputs(xp: Backend, mask: Array, positions: Array) -> tuple[Array, Array]:
    one = xp.ones((mask.shape[0], 1), dtype=mask.dtype)
    following = xp.max(positions, axis=1, keepdims=True) + 1
    return xp.concat([mask, one], axis=1), following


class _Rules(NamedTuple):
    """What decides on the next token besides its score."""

    has_penalty: bool
    has_mask: bool
    has_prefix_mask: bool
    ngram_size: int
    eos_token_id: int
    pad_token_id: int
    may_end: bool


def _with_next(
    xp: Backend, sequences: Array, logits: Array, finished: Array, *masks: Array, rules: _Rules
) -> tuple[Array, Array, Array]:
    """Return the sequences with one more token, that token, and which sequences have ended."""
    scores = xp.astype(logits[:, -1, :], xp.dtype(FLOAT32))
    least = xp.asarray(np.finfo(FLOAT32).min)
    arrays = iter(masks)
    if rules.has_penalty:
        scores = _penalized(xp, scores, sequences, next(arrays))
    if 0 < rules.ngram_size <= sequences.shape[1]:
        blocked = completes_again(xp, sequences, scores.shape[1], rules.ngram_size)
        scores = xp.where(blocked, least, scores)
    if rules.has_mask:
        mask = next(arrays)
        require_shape("vocab_mask", mask, scores.shape[1:])
        scores = xp.where(xp.equal(mask, 0), least, scores)
    if rules.has_prefix_mask:
        mask = next(arrays)
        require_shape("prefix_vocab_mask", mask, scores.shape)
        scores = xp.where(xp.equal(mask, 0), least, scores)
    if not rules.may_end:
        is_end = xp.equal(xp.arange(scores.shape[1]), rules.eos_token_id)
        scores = xp.where(is_end, least, scores)
    token = xp.astype(xp.argmax(scores, axis=1), sequences.dtype)
    finished = finished | xp.equal(token, rules.eos_token_id)
    pad = xp.asarray(rules.pad_token_id, dtype=token.dtype)
    token = xp.expand_dims(xp.where(finished, pad, token), axis=1)
    return xp.concat([sequences, token], axis=1), token, finished


def _penalized(xp: Backend, scores: Array, sequences: Array, penalty: Array) -> Array:
    """Lower the scores of tokens that occur already."""
    penalty = xp.reshape(penalty, ())
    row = xp.expand_dims(xp.arange(sequences.shape[0], dtype=sequences.dtype), axis=1)
    ones = xp.ones(sequences.shape, dtype=xp.dtype(INT32))
    zeros = xp.zeros(scores.shape, dtype=ones.dtype)
    occurs = xp.scatter(zeros, (row, sequences), ones, "add") > 0
    lower = xp.where(scores < 0, scores * penalty, scores / penalty)
    return xp.where(occurs, lower, scores)
