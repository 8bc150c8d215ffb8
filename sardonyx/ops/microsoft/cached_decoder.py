"""Decoders such as those of T5, BART and Whisper: their past grows, and nothing hides parts of it.

So the tokens of a search are traced one by one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import Body, Value, Walk
from sardonyx.ops.microsoft.searching import Choice, Search, walked
from sardonyx.ops.microsoft.token_scores import repeated


@dataclass(frozen=True)
class Encoded:
    """What an encoder returns."""

    # The logits after the first tokens of the decoder; None if the encoder does not decode them.
    logits: Value
    # None if the decoder does not get them.
    hidden: Value
    # The keys and values of the first tokens.
    past: tuple[Value, ...]
    # The keys and values of the encoder's own states.
    cross: tuple[Value, ...]

    @classmethod
    def of(cls, results: tuple[Value, ...], decoder: Body, decodes: bool) -> Encoded:
        """Divide the results of an encoder by the number of the decoder's layers."""
        states = decoder.outputs - 1
        expected = 2 + 2 * states if decodes else states
        if len(results) != expected or states < 2 or states % 2:
            raise ValueError(
                f"the encoder returns {len(results)} values and the decoder {decoder.outputs}, "
                "but each layer needs a key and a value of its own, and two of the encoder"
            )
        if not decodes:
            return cls(None, None, (), results)
        return cls(results[0], results[1], results[2 : 2 + states], results[2 + states :])


@dataclass(frozen=True)
class CachedDecoder:
    """A decoder with the keys and values of its tokens, and those of the encoder."""

    body: Body
    # The mask of the encoder's tokens and its last states, as far as the decoder has them.
    context: tuple[Value, ...]
    past: tuple[Value, ...]
    cross: tuple[Value, ...]

    def decoded(self, walk: Walk, choice: Choice, length: int) -> tuple[Value, CachedDecoder]:
        past = self.past
        if choice.order is not None:
            past = walk.apply(_reordered, choice.order, *past)
        tokens = choice.tokens
        # A decoder that is not declared for single tokens gets all of them.
        if self.body.inputs[0].shape[1:2] != (1,):
            (tokens,) = walk.apply(_tokens_so_far, choice.state[0], length=length)
        return self.run(tokens, past)

    def run(self, tokens: Value, past: tuple[Value, ...]) -> tuple[Value, CachedDecoder]:
        logits, *rest = self.body(tokens, *self.context, *past, *self.cross)
        return logits, replace(self, past=tuple(rest[: len(past)]))

    def by_beam(self, walk: Walk, beams: int) -> CachedDecoder:
        """Return the decoder with rows for all beams of a text."""
        values = (*self.context, *self.past, *self.cross)
        rows = iter(walk.apply(_by_beam, *values, beams=beams))
        groups = (self.context, self.past, self.cross)
        context, past, cross = (tuple(next(rows) for _ in group) for group in groups)
        return CachedDecoder(self.body, context, past, cross)


def searched(
    walk: Walk,
    search: Search,
    state: tuple[Value, ...],
    first_tokens: Value,
    encoded: Encoded,
    masks: tuple[Value, ...],
    body: Body,
) -> tuple[Value, ...]:
    """Search for the texts after the decoder's first tokens, and return the last state."""
    length = first_tokens.shape[1]
    layers = (body.outputs - 1) // 2
    others = len(body.inputs) - 1 - len(masks) - 4 * layers
    if others not in (0, 1) or (others == 1 and encoded.hidden is None):
        raise ValueError(
            f"the decoder has {len(body.inputs)} inputs and {body.outputs} outputs, but needs the "
            "tokens, the states of the encoder, and four keys and values for each layer"
        )
    context = (*masks, *([encoded.hidden] if others else []))
    decoder = CachedDecoder(body, context, encoded.past, encoded.cross)
    logits = encoded.logits
    if logits is None:
        past = _empty_past(body, 1 + len(context), first_tokens.shape[0])
        logits, decoder = decoder.run(first_tokens, past)
    choice = search.choice(walk, logits, length, state, is_first=True)
    if search.longest == length + 1:
        return choice.state
    return walked(walk, search, decoder.by_beam(walk, search.rules.beams), choice, length + 1)


def _empty_past(body: Body, start: int, batch: int) -> tuple[Value, ...]:
    """Return keys and values of no tokens, of the sizes that the decoder declares."""
    past: list[Value] = []
    for state in body.inputs[start : start + body.outputs - 1]:
        sizes = tuple(state.shape or ())
        heads, features = (sizes[1], sizes[3]) if len(sizes) == 4 else (None, None)
        if not isinstance(heads, int) or not isinstance(features, int):
            raise ValueError(
                f"a past state of the decoder has shape {list(sizes)}, but must be declared as "
                "[batch, heads, length, features] with a number of heads and of features"
            )
        past.append(np.zeros((batch, heads, 0, features), state.dtype))
    return tuple(past)


def _reordered(xp: Backend, order: Array, *past: Array) -> tuple[Array, ...]:
    return tuple(xp.take(x, order, axis=0) for x in past)


def _by_beam(xp: Backend, *values: Array, beams: int) -> tuple[Array, ...]:
    return tuple(repeated(xp, x, beams) for x in values)


def _tokens_so_far(xp: Backend, sequences: Array, *, length: int) -> Array:
    batch, beams, longest = sequences.shape
    return xp.reshape(sequences, (batch * beams, longest))[:, :length]
