"""Whisper's rules on timestamps: they come in pairs, never decrease, and begin early."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.dtypes import FLOAT32

# The first timestamp lies at most this many steps after the beginning.
LATEST_FIRST = 50


class SpecialTokens(NamedTuple):
    """The tokens of Whisper's vocabulary that are no text."""

    end: int
    start: int
    translate: int
    transcribe: int
    start_of_lm: int
    no_timestamps: int
    # All tokens from this one on are timestamps.
    first_timestamp: int


def with_timestamp_rules(
    xp: Backend, scores: Array, tokens: Array, length: Array, ids: tuple[int, ...]
) -> Array:
    """Return the scores, with those of all tokens that the rules forbid at the least float."""
    special = SpecialTokens(*ids)
    least = xp.asarray(np.finfo(FLOAT32).min)
    token = xp.arange(scores.shape[1], dtype=length.dtype)
    is_time = token >= special.first_timestamp
    forbidden = _forbidden(xp, tokens, length, token, special)
    scores = xp.where(forbidden, least, scores)
    # If all timestamps together are more likely than any text, one of them comes next.
    times = xp.where(is_time & (scores > least), scores, least)
    highest = xp.max(times, axis=1, keepdims=True)
    shares = xp.where(times > least, xp.exp(times - highest), xp.zeros_like(times))
    total = xp.sum(shares, axis=1, keepdims=True)
    some = total > 0
    logarithm = xp.log(xp.where(some, total, xp.ones_like(total))) + highest
    best_text = xp.max(xp.where(is_time, least, scores), axis=1, keepdims=True)
    prefers_time = some & (logarithm > best_text)
    return xp.where(prefers_time & ~is_time, least, scores)


def _forbidden(
    xp: Backend, tokens: Array, length: Array, token: Array, special: SpecialTokens
) -> Array:
    """Return, for each row and each next token, whether the tokens so far forbid it."""
    place = xp.arange(tokens.shape[1], dtype=length.dtype)
    was_time = (place < length) & (tokens >= special.first_timestamp)
    occurs = xp.any(was_time, axis=1, keepdims=True)
    first = xp.argmax(xp.astype(was_time, place.dtype), axis=1, keepdims=True)
    first = xp.astype(first, length.dtype)
    # The number of tokens up to the first timestamp, or of all if there is none.
    begin = xp.where(occurs, first + 1, length)
    last_time = _at(xp, was_time, length - 1)
    time_before = (length <= begin) | _at(xp, was_time, length - 2)

    is_time = token >= special.first_timestamp
    forbidden = _is_one_of(xp, token, special.no_timestamps, special.start_of_lm)
    tasks = _is_one_of(xp, token, special.start, special.translate, special.transcribe)
    forbidden = forbidden | ((length > begin) & tasks)
    forbidden = forbidden | (last_time & time_before & is_time)
    forbidden = forbidden | (last_time & ~time_before & (token < special.end))
    latest = _latest_time(xp, tokens, was_time, place)
    minimum = xp.where(last_time & ~time_before, latest, latest + 1)
    forbidden = forbidden | (occurs & is_time & (token < minimum))
    is_late = token > special.first_timestamp + LATEST_FIRST
    return forbidden | (xp.equal(begin, length) & is_late)


def _at(xp: Backend, x: Array, place: Array) -> Array:
    """Return one element of each row, as a column."""
    place = xp.maximum(place, xp.zeros_like(place))
    return xp.take(x, xp.reshape(place, (1,)), axis=1)


def _latest_time(xp: Backend, tokens: Array, was_time: Array, place: Array) -> Array:
    """Return the last timestamp of each row, as a column."""
    last = xp.max(xp.where(was_time, place, xp.zeros_like(place)), axis=1, keepdims=True)
    return xp.take_along_axis(tokens, last, axis=1)


def _is_one_of(xp: Backend, token: Array, *ids: int) -> Array:
    same = xp.equal(token, ids[0])
    for number in ids[1:]:
        same = same | xp.equal(token, number)
    return same
