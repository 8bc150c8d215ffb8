"""Hashes of n-grams of tokens, which are rows of tables of embeddings.

Each token has one n-gram that it ends for each n. A reset between two tokens, as at the end of a
text, hides all tokens before it: blank ones take their places.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import Within
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import op
from sardonyx.ops.dtypes import BOOL, INT32
from sardonyx.ops.microsoft.packed_requests import Requests


class _Hashes(NamedTuple):
    """The arrays that turn n-grams into hashes."""

    multipliers: Array
    vocab_sizes: Array
    head_offsets: Array | None
    # The largest n, and how many hashes each n-gram has.
    longest: int
    heads: int

    def check(self, xp: Backend) -> None:
        if self.longest < 2 or self.heads < 1:
            raise ValueError(
                f"max_ngram_size is {self.longest} and n_head_per_ngram is {self.heads}, but they "
                "must be at least 2 and 1"
            )
        if self.multipliers.ndim != 1 or self.multipliers.shape[0] < self.longest:
            raise ValueError(
                f"multipliers has shape {self.multipliers.shape}, but must have at least "
                f"{self.longest} elements along one axis"
            )
        count = ((self.longest - 1) * self.heads,)
        require_shape("vocab_sizes", self.vocab_sizes, count)
        largest = np.iinfo(xp.numpy_dtype(self.vocab_sizes.dtype)).max
        xp.require(self.vocab_sizes, Within("vocab_sizes", 1, largest))
        if self.head_offsets is not None:
            require_shape("head_offsets", self.head_offsets, count)

    def of(self, xp: Backend, token_before: Callable[[int], Array]) -> Array:
        """Return the hashes on a new last axis, from each token's k-th predecessor."""
        mixed = token_before(0) * self.multipliers[:1]
        hashes = []
        for k in range(1, self.longest):
            mixed = mixed ^ (token_before(k) * self.multipliers[k : k + 1])
            sizes = self.vocab_sizes[(k - 1) * self.heads : k * self.heads]
            hashes.append(xp.remainder(xp.expand_dims(mixed, axis=-1), sizes))
        joined = xp.concat(hashes, axis=-1)
        return joined if self.head_offsets is None else joined + self.head_offsets


@op(domain="com.microsoft")
def NGramHashMapping(
    xp: Backend,
    input_ids: Array,
    multipliers: Array,
    vocab_sizes: Array,
    past_ids: Array | None = None,
    head_offsets: Array | None = None,
    eos_token_id: Array | None = None,
    segment_ids: Array | None = None,
    *,
    max_ngram_size: int,
    n_head_per_ngram: int,
    pad_id: int,
    reset_on_eos: int = 0,
) -> tuple[Array, Array]:
    """Return the hashes at each token of a batch, and the last tokens for the next call."""
    hashes = _Hashes(multipliers, vocab_sizes, head_offsets, max_ngram_size, n_head_per_ngram)
    hashes.check(xp)
    if input_ids.ndim != 2:
        raise ValueError(f"input_ids has shape {input_ids.shape}, but must be (batch, length)")
    batch, length = input_ids.shape
    past = max_ngram_size - 1
    blank = _blank(xp, input_ids, eos_token_id, pad_id)
    if past_ids is None:
        past_ids = xp.broadcast_to(blank, (batch, past))
    require_shape("past_ids", past_ids, (batch, past))
    tokens = xp.concat([past_ids, input_ids], axis=1)
    # Whether a reset comes after a token.
    resets = xp.zeros(tokens.shape, dtype=xp.dtype(BOOL))
    if reset_on_eos and eos_token_id is not None:
        resets = xp.equal(tokens, blank)
    if segment_ids is not None:
        require_shape("segment_ids", segment_ids, input_ids.shape)
        differs = xp.not_equal(segment_ids[:, 1:], segment_ids[:, :-1])
        resets = resets | xp.pad(differs, [(0, 0), (past, 1)], False)[:, : past + length]

    def shifted(x: Array, k: int) -> Array:
        return x[:, past - k : past - k + length]

    def token_before(k: int) -> Array:
        is_hidden = xp.zeros(input_ids.shape, dtype=xp.dtype(BOOL))
        for between in range(1, k + 1):
            is_hidden = is_hidden | shifted(resets, between)
        return xp.where(is_hidden, blank, shifted(tokens, k))

    return hashes.of(xp, token_before), tokens[:, length:]


def _blank(xp: Backend, input_ids: Array, eos_token_id: Array | None, pad_id: int) -> Array:
    """Return the token, of shape (1,), that stands where there is none."""
    if eos_token_id is None:
        return xp.full((1,), pad_id, dtype=input_ids.dtype)
    if eos_token_id.size != 1:
        raise ValueError(f"eos_token_id has shape {eos_token_id.shape}, but must be one token")
    return xp.reshape(eos_token_id, (1,))


# -- requests one after the other -----------------------------------------------------------------


@op(domain="com.microsoft")
def VarlenNGramHashMapping(
    xp: Backend,
    input_ids: Array,
    multipliers: Array,
    vocab_sizes: Array,
    cumulative_sequence_length: Array,
    past_ids: Array | None = None,
    head_offsets: Array | None = None,
    eos_token_id: Array | None = None,
    segment_ids: Array | None = None,
    past_segment_ids: Array | None = None,
    capture_count: Array | None = None,
    *,
    max_ngram_size: int,
    n_head_per_ngram: int,
    pad_id: int,
    reset_on_eos: int = 0,
    state_update_capacity: int = 0,
) -> tuple[Array, Array, Array, Array]:
    """Do the same for requests of any lengths in one vector, which see none of each other's tokens.

    Return the hashes, the last tokens of each request and their segments, and the last tokens as
    of each of the request's first tokens, for as many of these as `capture_count` says.
    """
    hashes = _Hashes(multipliers, vocab_sizes, head_offsets, max_ngram_size, n_head_per_ngram)
    hashes.check(xp)
    if input_ids.ndim != 1:
        raise ValueError(f"input_ids has shape {input_ids.shape}, but must be a vector of tokens")
    total, past = input_ids.shape[0], max_ngram_size - 1
    requests = Requests.of(xp, total, cumulative_sequence_length, past)
    blank = _blank(xp, input_ids, eos_token_id, pad_id)
    shape = (requests.count, requests.past)
    if past_ids is None:
        past_ids = xp.broadcast_to(blank, shape)
    require_shape("past_ids", past_ids, shape)
    if segment_ids is None:
        segment_ids = xp.zeros(input_ids.shape, dtype=xp.dtype(INT32))
    require_shape("segment_ids", segment_ids, input_ids.shape)
    if past_segment_ids is None:
        first = xp.take(segment_ids, requests.starts, axis=0)
        past_segment_ids = xp.broadcast_to(xp.expand_dims(first, axis=1), shape)
    require_shape("past_segment_ids", past_segment_ids, shape)
    request, at = requests.places(xp)

    def token_before(k: int) -> Array:
        is_hidden = xp.zeros(input_ids.shape, dtype=xp.dtype(BOOL))
        segment = segment_ids
        for between in range(1, k + 1):
            earlier = requests.at(xp, segment_ids, past_segment_ids, request, at - between)
            is_hidden = is_hidden | xp.not_equal(earlier, segment)
            segment = earlier
            if reset_on_eos and eos_token_id is not None:
                token = requests.at(xp, input_ids, past_ids, request, at - between)
                is_hidden = is_hidden | xp.equal(token, blank)
        return xp.where(is_hidden, blank, requests.at(xp, input_ids, past_ids, request, at - k))

    last = requests.last_places(xp)
    captured = requests.first_places(xp, capture_count, state_update_capacity)
    row, place, is_captured = (xp.expand_dims(x, axis=2) for x in captured)
    place = place + 1 + requests.window(xp)
    states = requests.at(xp, input_ids, past_ids, xp.broadcast_to(row, place.shape), place)
    padding = xp.asarray(np.asarray(pad_id), dtype=states.dtype)
    return (
        hashes.of(xp, token_before),
        requests.at(xp, input_ids, past_ids, *last),
        requests.at(xp, segment_ids, past_segment_ids, *last),
        xp.where(is_captured, states, padding),
    )
