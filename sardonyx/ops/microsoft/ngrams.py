"""n-grams in the generation of text: which would repeat, and which occur in a source."""

from __future__ import annotations

import math

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import Within
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import Host, Unsized, op
from sardonyx.ops.dtypes import INT32, INT64


@op(domain="com.microsoft")
def NGramRepeatBlock(xp: Backend, input_ids: Array, scores: Array, *, ngram_size: int) -> Array:
    """Set the score of each token to -infinity that would complete an n-gram a second time."""
    if input_ids.ndim != 2 or scores.ndim != 2 or input_ids.shape[0] != scores.shape[0]:
        raise ValueError(
            f"input_ids has shape {input_ids.shape} and scores has shape {scores.shape}, but they "
            "must be (batch, length) and (batch, vocabulary)"
        )
    if ngram_size < 1:
        raise ValueError(f"ngram_size is {ngram_size}, but must be positive")
    if not input_ids.shape[0] or input_ids.shape[1] < ngram_size:
        return scores
    xp.require(input_ids, Within("input_ids", 0, scores.shape[1] - 1))
    length = xp.asarray(input_ids.shape[1], dtype=input_ids.dtype)
    blocked = completes_again(xp, input_ids, length, scores.shape[1], ngram_size)
    return xp.where(blocked, xp.asarray(-math.inf, dtype=scores.dtype), scores)


def completes_again(xp: Backend, tokens: Array, length: Array, vocabulary: int, size: int) -> Array:
    """Return, for each row of tokens and each next one, whether an n-gram would repeat.

    Only the first `length` tokens of a row count. Tokens outside of the vocabulary block nothing.
    """
    batch, room = tokens.shape
    count = max(room - size + 1, 0)
    start = xp.arange(count, dtype=length.dtype)
    repeats = xp.broadcast_to(start + size <= length, (batch, count))
    for i in range(size - 1):
        last = xp.reshape(xp.maximum(length - (size - 1) + i, xp.zeros_like(length)), (1,))
        repeats = repeats & xp.equal(tokens[:, i : i + count], xp.take(tokens, last, axis=1))
    return marked(xp, tokens[:, size - 1 :], repeats, vocabulary)


def marked(xp: Backend, tokens: Array, counts: Array, vocabulary: int) -> Array:
    """Return, for each row and each token of the vocabulary, whether it occurs where `counts`."""
    counts = counts & (tokens >= 0) & (tokens < vocabulary)
    row = xp.expand_dims(xp.arange(tokens.shape[0], dtype=tokens.dtype), axis=1)
    zeros = xp.zeros((tokens.shape[0], vocabulary), dtype=xp.dtype(INT32))
    places = (row, xp.where(counts, tokens, xp.zeros_like(tokens)))
    return xp.scatter(zeros, places, xp.astype(counts, zeros.dtype), "add") > 0


@op(domain="com.microsoft")
def BifurcationDetector(
    xp: Backend,
    src_tokens: Array,
    cur_tokens: Array,
    prev_suffix_match_idx: Array,
    pred_tokens: Array | None = None,
    *,
    max_ngram_size: int = 3,
    min_ngram_size: int = 1,
) -> tuple[Unsized, Array]:
    """Append predicted tokens up to the first that the source does not have; find their end in it.

    The second result is where the source goes on after the last n-gram of the tokens, or -1 if that
    n-gram is missing there, or if each that is long enough occurs twice.
    """
    if not 1 <= min_ngram_size <= max_ngram_size:
        raise ValueError(
            f"min_ngram_size {min_ngram_size} and max_ngram_size {max_ngram_size} must be positive "
            "and in order"
        )
    source, tokens = xp.fetch(src_tokens), xp.fetch(cur_tokens)
    if source.ndim != 1 or tokens.ndim != 1 or prev_suffix_match_idx.size != 1:
        raise ValueError(
            f"src_tokens has shape {source.shape}, cur_tokens {tokens.shape} and "
            f"prev_suffix_match_idx {prev_suffix_match_idx.shape}, but they must be two vectors "
            "and one number"
        )
    if pred_tokens is not None:
        start = int(xp.fetch(prev_suffix_match_idx).item())
        tokens = np.concatenate([tokens, _accepted(source, start, xp.fetch(pred_tokens))])
    place = _place_after(source, tokens, range(min_ngram_size, max_ngram_size + 1))
    shape = prev_suffix_match_idx.shape
    return xp.put(tokens), xp.put(np.full(shape, place, INT64))


def _accepted(source: Host, start: int, predicted: Host) -> Host:
    """Return the predicted tokens up to the first that differs from the source, with that one."""
    if not 0 <= start <= len(source) or predicted.shape != (len(source) + 1 - start,):
        raise ValueError(
            f"prev_suffix_match_idx is {start} and pred_tokens has shape {predicted.shape}, but "
            f"the source has {len(source)} tokens, and each from there on needs one, and the next"
        )
    differs = np.flatnonzero(predicted[:-1] != source[start:])
    return predicted[: (differs[0] if differs.size else len(predicted) - 1) + 1]


def _place_after(source: Host, tokens: Host, sizes: range) -> int:
    place = -1
    for size in sizes:
        if size > min(len(tokens), len(source)):
            break
        windows = np.lib.stride_tricks.sliding_window_view(source, size)
        starts = np.flatnonzero(np.all(windows == tokens[len(tokens) - size :], axis=1))
        if not starts.size:
            break
        place = int(starts[0]) + size if starts.size == 1 else -1
        if int(starts[0]) + size >= len(source):
            break
    return place
