"""Beams: the most probable beginnings of each text, and the texts that have ended."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.activation import LogSoftmax
from sardonyx.ops.definition import DType
from sardonyx.ops.dtypes import BOOL, FLOAT32, INT32
from sardonyx.ops.microsoft.searching import Choice, with_next
from sardonyx.ops.microsoft.token_scores import Rules, adjusted, last_scores, repeated

# The score of all beams but the first, so that equal beams do not choose the same tokens.
UNLIKELY = -1e9


class Ended(NamedTuple):
    """For each prompt the best texts that have ended, in order, and how many there are."""

    # (batch, beams, longest)
    texts: Array
    # (batch, beams)
    scores: Array
    # (batch,)
    counts: Array


class State(NamedTuple):
    """The state of a beam search."""

    # (batch, beams, longest): tokens, followed by paddings.
    sequences: Array
    # (batch, beams): the sum of the logarithms of each beam's probabilities.
    scores: Array
    texts: Array
    text_scores: Array
    text_counts: Array
    # (batch,): whether no beam can become better than the texts that have ended.
    done: Array
    # (steps, batch, beams, vocabulary), if they are a result.
    all_scores: Array | None = None

    @property
    def ended(self) -> Ended:
        return Ended(self.texts, self.text_scores, self.text_counts)


def beam_step(
    xp: Backend,
    logits: Array,
    length: Array,
    state: Sequence[Array],
    arrays: Mapping[str, Array],
    rules: Rules,
    *,
    is_first: bool,
) -> Choice:
    """Continue the beams by the best tokens, of which those that end a text leave the beams.

    The first step gets the beams without their scores.
    """
    sequences = state[0]
    batch, beams, longest = sequences.shape
    rows = batch * beams
    scores = LogSoftmax(xp, last_scores(xp, logits, rules))
    scores = repeated(xp, scores, rows // scores.shape[0])
    tokens = xp.reshape(sequences, (rows, longest))
    scores = adjusted(xp, scores, tokens, length, rules, arrays, is_first=is_first)
    vocabulary = scores.shape[1]
    scores = xp.reshape(scores, (batch, beams, vocabulary))
    now = _first_state(xp, sequences, scores, rules, arrays) if is_first else State(*state)
    scores = scores + now.scores[:, :, None]
    if now.all_scores is not None:
        place = length - (longest - rules.steps)
        now = now._replace(all_scores=xp.scatter(now.all_scores, (place,), scores))
    flat = xp.reshape(scores, (batch, beams * vocabulary))
    places = xp.astype(xp.top_k(flat, 2 * beams, axis=1, largest=True), xp.dtype(INT32))
    best = xp.take_along_axis(flat, places, axis=1)
    return _chosen(xp, now, best, places, vocabulary, length, arrays, rules)


def _first_state(
    xp: Backend, sequences: Array, scores: Array, rules: Rules, arrays: Mapping[str, Array]
) -> State:
    batch, beams, longest = sequences.shape
    first = xp.asarray([0.0] + [UNLIKELY] * (beams - 1), dtype=scores.dtype)
    all_scores = None
    if rules.steps:
        all_scores = xp.zeros((rules.steps, *scores.shape), dtype=scores.dtype)
    return State(
        sequences,
        xp.broadcast_to(first, (batch, beams)),
        xp.full((batch, beams, longest), rules.pad_token_id, dtype=sequences.dtype),
        xp.zeros((batch, beams), dtype=scores.dtype),
        xp.zeros((batch,), dtype=xp.dtype(INT32)),
        xp.zeros((batch,), dtype=xp.dtype(BOOL)),
        all_scores,
    )


def _chosen(
    xp: Backend,
    now: State,
    best: Array,
    places: Array,
    vocabulary: int,
    length: Array,
    arrays: Mapping[str, Array],
    rules: Rules,
) -> Choice:
    """Divide the best tokens of a prompt, twice as many as beams, into ends and next beams."""
    batch, beams, longest = now.sequences.shape
    token, beam = places % vocabulary, places // vocabulary
    is_end = xp.equal(token, rules.eos_token_id)
    done = xp.expand_dims(now.done, axis=1)
    # An end counts only among as many tokens as there are beams.
    from_beams = xp.take_along_axis(now.sequences, beam[:, :beams, None], axis=1)
    measure = _measure(xp, length, arrays)
    ended = _with_texts(
        xp, now.ended, from_beams, best[:, :beams] / measure, is_end[:, :beams] & ~done
    )
    first_others = xp.top_k(xp.astype(~is_end, xp.dtype(INT32)), beams, axis=1, largest=True)
    scores, token, beam = (xp.take_along_axis(x, first_others, axis=1) for x in (best, token, beam))
    row = beam + xp.expand_dims(xp.arange(batch, dtype=beam.dtype), axis=1) * beams
    # What onnxruntime goes on with where a prompt is done; it shows in the scores alone.
    zero = xp.zeros_like(row)
    order = xp.reshape(xp.where(done, zero, row), (batch * beams,))
    token = xp.where(done, zero + rules.pad_token_id, token)
    scores = xp.where(done, xp.zeros_like(scores), scores)

    is_full = ended.counts >= beams
    if not rules.early_stopping:
        is_full = is_full & (ended.scores[:, -1] >= xp.max(best, axis=1) / measure)
    tokens = xp.reshape(xp.astype(token, now.sequences.dtype), (batch * beams, 1))
    sequences = xp.take(xp.reshape(now.sequences, (batch * beams, longest)), order, axis=0)
    sequences = xp.reshape(with_next(xp, sequences, tokens, length), now.sequences.shape)
    state = State(sequences, scores, *ended, now.done | is_full, now.all_scores)
    arrays_of_state = state if state.all_scores is not None else state[:-1]
    return Choice(tokens, xp.all(state.done), order if beams > 1 else None, tuple(arrays_of_state))


def _measure(xp: Backend, length: Any, arrays: Mapping[str, Array]) -> Array:
    """Return what the score of a text of this length is divided by."""
    size = xp.astype(xp.asarray(length), xp.dtype(FLOAT32))
    if "length_penalty" not in arrays:
        return size
    return size ** xp.astype(xp.reshape(arrays["length_penalty"], ()), size.dtype)


def _with_texts(xp: Backend, ended: Ended, texts: Array, scores: Array, is_new: Array) -> Ended:
    """Return the best of the texts that have ended and of new ones; equal ones in this order."""
    beams = texts.shape[1]
    is_there = xp.arange(beams, dtype=ended.counts.dtype) < ended.counts[:, None]
    is_there = xp.concat([is_there, is_new], axis=1)
    scores = xp.concat([ended.scores, scores], axis=1)
    texts = xp.concat([ended.texts, texts], axis=1)
    # A text of probability zero is better than none.
    least = xp.asarray(np.finfo(FLOAT32).min)
    lowest = xp.asarray(-math.inf, dtype=scores.dtype)
    ranks = xp.where(is_there, xp.maximum(scores, least), lowest)
    order = xp.top_k(ranks, beams, axis=1, largest=True)
    counts = ended.counts + xp.sum(xp.astype(is_new, ended.counts.dtype), axis=1)
    return Ended(
        xp.take_along_axis(texts, order[:, :, None], axis=1),
        xp.take_along_axis(scores, order, axis=1),
        xp.astype(xp.minimum(counts, xp.full_like(counts, beams)), ended.counts.dtype),
    )


def best_texts(
    xp: Backend, *values: Array, rules: tuple[Any, ...], count: int, dtype: DType
) -> tuple[Array, ...]:
    """Return the best texts and their scores; beams that go on count as texts.

    The scores of all tokens in each step follow if they are a result.
    """
    known = Rules(*rules)
    arrays = dict(zip(known.names, values, strict=False))
    state = State(*values[len(arrays) :])
    scores = state.scores / _measure(xp, state.sequences.shape[2], arrays)
    goes_on = xp.broadcast_to(xp.expand_dims(~state.done, axis=1), scores.shape)
    ended = _with_texts(xp, state.ended, state.sequences, scores, goes_on)
    results = [ended.scores[:, :count]]
    if state.all_scores is not None:
        results.append(state.all_scores)
    return ended.texts[:, :count, :], *(xp.astype(x, xp.dtype(dtype)) for x in results)
