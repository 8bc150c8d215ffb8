"""GreedySearch and Sampling: text, token by token, from a decoder that is a subgraph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from sardonyx.backends import random
from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.activation import Softmax
from sardonyx.ops.definition import Body, Outputs, Value, Walk, op
from sardonyx.ops.dtypes import BOOL, FLOAT32, INT32
from sardonyx.ops.microsoft.masked_decoder import searched
from sardonyx.ops.microsoft.searching import (
    Choice,
    Search,
    check_number_of_tokens,
    read_number,
    with_next,
    with_room,
)
from sardonyx.ops.microsoft.token_scores import Rules, adjusted, last_scores
from sardonyx.ops.random import Multinomial

UINT32 = np.dtype(np.uint32)


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
    longest = _longest(walk, input_ids, max_length, model_type, encoder)
    if longest <= input_ids.shape[1]:
        return (input_ids,)
    search = Search.of(
        greedy_step,
        Rules(eos_token_id, pad_token_id, no_repeat_ngram_size, vocab_size),
        longest,
        repetition_penalty=repetition_penalty,
        vocab_mask=vocab_mask,
        prefix_vocab_mask=prefix_vocab_mask,
        min_length=min_length,
    )
    state = _first_state(walk, input_ids, longest, pad_token_id)
    return searched(walk, search, state, input_ids, attention_mask, decoder, init_decoder)[:1]


@op(domain="com.microsoft")
def Sampling(
    walk: Walk,
    input_ids: Value,
    max_length: Value,
    min_length: Value = None,
    repetition_penalty: Value = None,
    vocab_mask: Value = None,
    prefix_vocab_mask: Value = None,
    attention_mask: Value = None,
    presence_mask: Value = None,
    seed: Value = None,
    *,
    custom: int = 0,
    decoder: Body,
    decoder_start_token_id: int = -1,
    encoder: Body | None = None,
    eos_token_id: int,
    filter_value: float = -1e20,
    init_decoder: Body | None = None,
    min_tokens_to_keep: int = 0,
    model_type: int = 0,
    no_repeat_ngram_size: int = 0,
    pad_token_id: int,
    presence_penalty: float = 0.0,
    temperature: float = 1.0,
    top_p: float = 0.0,
    vocab_size: int = -1,
    outputs: Outputs,
) -> Value:
    """Append tokens drawn from the most probable ones; also return the last filtered scores.

    Equal seeds draw equal tokens, and no seed is the seed 0, as in onnxruntime. The tokens are
    not those of onnxruntime, whose generator differs between its builds.
    """
    longest = _longest(walk, input_ids, max_length, model_type, encoder)
    if longest <= input_ids.shape[1]:
        raise ValueError(
            f"max_length is {longest}, but must exceed the {input_ids.shape[1]} tokens"
        )
    search = Search.of(
        sampling_step,
        Rules(
            *(eos_token_id, pad_token_id, no_repeat_ngram_size, vocab_size, presence_penalty),
            filter=(top_p, filter_value, min_tokens_to_keep, bool(custom)),
        ),
        longest,
        repetition_penalty=repetition_penalty,
        vocab_mask=vocab_mask,
        prefix_vocab_mask=prefix_vocab_mask,
        min_length=min_length,
        temperature=np.asarray(temperature, FLOAT32),
        presence_mask=presence_mask,
        seed=np.zeros(1, INT32) if seed is None else seed,
    )
    state = _first_state(walk, input_ids, longest, pad_token_id)
    sequences, _, scores = searched(
        walk, search, state, input_ids, attention_mask, decoder, init_decoder
    )
    return (sequences, scores)[:outputs]


def _longest(
    walk: Walk, input_ids: Value, max_length: Value, model_type: int, encoder: Body | None
) -> int:
    """Check what all searches with one decoder need, and return the length of the texts."""
    if model_type or encoder is not None:
        raise ValueError(
            f"model_type is {model_type}, but only decoders such as GPT-2 are supported: 0, and "
            "without an encoder"
        )
    if len(input_ids.shape) != 2 or not all(input_ids.shape):
        raise ValueError(
            f"input_ids has shape {tuple(input_ids.shape)}, but must be (batch, length), with at "
            "least one token"
        )
    longest = read_number(walk, "max_length", max_length)
    check_number_of_tokens(longest - input_ids.shape[1])
    return longest


def _first_state(
    walk: Walk, input_ids: Value, longest: int, pad_token_id: int
) -> tuple[Value, Value]:
    """Return the prompts with room for all tokens, and which texts have ended."""
    (sequences,) = walk.apply(with_room, input_ids, longest=longest, pad_token_id=pad_token_id)
    return sequences, np.zeros(input_ids.shape[0], BOOL)


def greedy_step(
    xp: Backend,
    logits: Array,
    length: Array,
    state: Sequence[Array],
    arrays: Mapping[str, Array],
    rules: Rules,
    *,
    is_first: bool,
) -> Choice:
    """Choose the token of the highest score."""
    scores = last_scores(xp, logits, rules)
    scores = adjusted(xp, scores, state[0], length, rules, arrays, is_first=is_first)
    return _continued(xp, xp.argmax(scores, axis=1), length, state, rules)


def sampling_step(
    xp: Backend,
    logits: Array,
    length: Array,
    state: Sequence[Array],
    arrays: Mapping[str, Array],
    rules: Rules,
    *,
    is_first: bool,
) -> Choice:
    """Draw a token by the scores that are left."""
    scores = last_scores(xp, logits, rules)
    scores = adjusted(xp, scores, state[0], length, rules, arrays, is_first=is_first)
    scores = _filtered(xp, scores, Filter(*rules.filter))
    low = xp.astype(xp.reshape(arrays["seed"], (1,)), xp.dtype(UINT32))
    key = random.fold_in(xp, xp.concat([xp.zeros_like(low), low]), length)
    drawn = Multinomial(xp, scores, key=key)[:, 0]
    choice = _continued(xp, drawn, length, state, rules)
    return choice._replace(state=(*choice.state, scores))


def _continued(
    xp: Backend, chosen: Array, length: Array, state: Sequence[Array], rules: Rules
) -> Choice:
    """Append the chosen tokens, or paddings where the text has ended."""
    sequences, finished = state[:2]
    tokens = xp.astype(chosen, sequences.dtype)
    finished = finished | xp.equal(tokens, rules.eos_token_id)
    pad = xp.asarray(rules.pad_token_id, dtype=tokens.dtype)
    tokens = xp.expand_dims(xp.where(finished, pad, tokens), axis=1)
    sequences = with_next(xp, sequences, tokens, length)
    return Choice(tokens, xp.all(finished), None, (sequences, finished))


class Filter(NamedTuple):
    """Which tokens Sampling may draw."""

    top_p: float
    value: float
    least: int
    custom: bool


def _filtered(xp: Backend, scores: Array, which: Filter) -> Array:
    """Set the scores of improbable tokens to the value of the filter, as onnxruntime does.

    Tokens are dropped from the least probable one on while they sum to 1 - top_p at most, but one
    that is the only or the least one to keep is dropped all the same if it is the first of them.
    `custom` drops from the most probable one on those after a sum of more than top_p.
    """
    size = scores.shape[1]
    if not 0 <= which.least <= size:
        raise ValueError(f"min_tokens_to_keep is {which.least}, but must be at most {size}")
    order = xp.top_k(scores, size, axis=1, largest=which.custom)
    sums = xp.cumulative_sum(Softmax(xp, xp.take_along_axis(scores, order, axis=1)), axis=1)
    place = xp.arange(size)
    if which.custom:
        dropped = (sums > which.top_p)[:, :-1]
        dropped = xp.concat([xp.zeros_like(dropped[:, :1]), dropped], axis=1)
    else:
        bound = float(np.float32(1) - np.float32(which.top_p))
        dropped = (sums <= bound) & ((place < size - which.least) | xp.equal(place, 0))
    dropped = xp.take_along_axis(dropped, xp.argsort(order, axis=1), axis=1)
    return xp.where(dropped, xp.asarray(which.value, dtype=scores.dtype), scores)
