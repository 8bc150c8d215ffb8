"""What changes the scores of the next tokens before a search chooses: penalties, masks, rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import require_shape
from sardonyx.ops.dtypes import BOOL, FLOAT32
from sardonyx.ops.microsoft.ngrams import completes_again, marked
from sardonyx.ops.microsoft.timestamps import with_timestamp_rules


class Rules(NamedTuple):
    """What decides on the next token besides its score, known while tracing."""

    eos_token_id: int
    pad_token_id: int
    ngram_size: int = 0
    # The number of tokens that may be chosen; all that the decoder scores if it is not positive.
    vocabulary: int = -1
    presence_penalty: float = 0.0
    # The special tokens of Whisper, if its rules on timestamps hold.
    timestamps: tuple[int, ...] = ()
    # What Sampling may draw.
    filter: tuple[Any, ...] = ()
    # The number of rows that continue each text.
    beams: int = 1
    early_stopping: bool = False
    # The number of steps if the scores of all tokens in each step are a result, and 0 otherwise.
    steps: int = 0
    # The names of the arrays that also decide.
    names: tuple[str, ...] = ()


def last_scores(xp: Backend, logits: Array, rules: Rules) -> Array:
    """Return the scores after the last token, of the tokens that may be chosen."""
    if logits.ndim != 3 or not logits.shape[1]:
        raise ValueError(
            f"the logits of the decoder have shape {logits.shape}, but must be [batch, length, "
            "vocabulary] with at least one token"
        )
    last = xp.astype(logits[:, -1, :], xp.dtype(FLOAT32))
    return last[:, : rules.vocabulary] if 0 < rules.vocabulary < last.shape[1] else last


def adjusted(
    xp: Backend,
    scores: Array,
    tokens: Array,
    length: Array,
    rules: Rules,
    arrays: Mapping[str, Array],
    *,
    is_first: bool,
) -> Array:
    """Return the scores after all rules, in onnxruntime's order.

    `tokens` has the rows of `scores`, and `length` tokens so far in each.
    """
    vocabulary = scores.shape[1]
    least = xp.asarray(np.finfo(FLOAT32).min)
    if "repetition_penalty" in arrays:
        scores = _penalized(xp, scores, tokens, length, arrays["repetition_penalty"])
    if rules.ngram_size > 0:
        blocked = completes_again(xp, tokens, length, vocabulary, rules.ngram_size)
        scores = xp.where(blocked, least, scores)
    if "vocab_mask" in arrays:
        mask = arrays["vocab_mask"]
        require_shape("vocab_mask", mask, (vocabulary,))
        scores = xp.where(xp.equal(mask, 0), least, scores)
    if "prefix_vocab_mask" in arrays and is_first:
        mask = _by_row(xp, "prefix_vocab_mask", arrays, scores, rules)
        scores = xp.where(xp.equal(mask, 0), least, scores)
    if "min_length" in arrays:
        is_end = xp.equal(xp.arange(vocabulary), rules.eos_token_id)
        is_early = length < xp.reshape(arrays["min_length"], ())
        scores = xp.where(is_end & is_early, least, scores)
    if "temperature" in arrays:
        divisor = xp.astype(xp.reshape(arrays["temperature"], ()), scores.dtype)
        scores = scores / xp.where(divisor > 0, divisor, xp.ones_like(divisor))
    if "presence_mask" in arrays and rules.presence_penalty:
        mask = _by_row(xp, "presence_mask", arrays, scores, rules)
        scores = scores - xp.astype(mask, scores.dtype) * rules.presence_penalty
    if rules.timestamps:
        scores = with_timestamp_rules(xp, scores, tokens, length, rules.timestamps)
    return scores


def repeated(xp: Backend, x: Array, count: int, axis: int = 0) -> Array:
    """Return `x` with each element of an axis `count` times, side by side."""
    return x if count == 1 else xp.repeat(x, count, axis=axis)


def _by_row(
    xp: Backend, name: str, arrays: Mapping[str, Array], scores: Array, rules: Rules
) -> Array:
    """Return an array of (batch, vocabulary) for the rows of scores."""
    rows, vocabulary = scores.shape
    require_shape(name, arrays[name], (rows // rules.beams, vocabulary))
    return repeated(xp, arrays[name], rules.beams)


def _penalized(xp: Backend, scores: Array, tokens: Array, length: Array, penalty: Any) -> Array:
    """Lower the scores of tokens that occur already."""
    penalty = xp.astype(xp.reshape(penalty, ()), scores.dtype)
    is_token = xp.arange(tokens.shape[1], dtype=length.dtype) < length
    counts = xp.astype(xp.broadcast_to(is_token, tokens.shape), xp.dtype(BOOL))
    lower = xp.where(scores < 0, scores * penalty, scores / penalty)
    return xp.where(marked(xp, tokens, counts, scores.shape[1]), lower, scores)
