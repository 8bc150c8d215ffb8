"""Decoders such as GPT-2: a past state per layer, positions, and a mask of the tokens to see.

A search with such a decoder runs as one loop on the device: the past has the same size in each
iteration, with hidden tokens in front. If the decoder does not read the mask and the positions,
hidden tokens would count; then the past grows, and the tokens are traced one by one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import Body, NeedsHost, Value, Walk
from sardonyx.ops.dtypes import INT32
from sardonyx.ops.microsoft.searching import Choice, Search, Step, walked
from sardonyx.ops.microsoft.token_scores import Rules, repeated

# The number of the decoder's inputs before its past states.
LEADING = 3


def searched(
    walk: Walk,
    search: Search,
    state: tuple[Value, ...],
    input_ids: Value,
    attention_mask: Value,
    decoder: Body,
    init_decoder: Body | None,
) -> tuple[Value, ...]:
    """Search for the texts that follow the prompts, and return the last state."""
    batch, length = input_ids.shape
    if attention_mask is not None:
        require_shape("attention_mask", attention_mask, (batch, length))
    masks = () if attention_mask is None else (attention_mask,)
    mask, positions, following = walk.apply(
        _first_inputs, input_ids, *masks, pad_token_id=search.rules.pad_token_id
    )
    logits, *past = (init_decoder or decoder)(
        input_ids, positions, mask, *_empty_past(decoder, batch)
    )
    mask, positions, *past = walk.apply(
        _first_states, mask, following, *past, beams=search.rules.beams
    )
    choice = search.choice(walk, logits, length, state, is_first=True)
    if search.longest == length + 1:
        return choice.state
    first = MaskedDecoder(decoder, mask, positions, tuple(past))
    looped = first.looped(walk, search, choice, length)
    return walked(walk, search, first, choice, length + 1) if looped is None else looped


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
) -> tuple[Array, Array, Array]:
    """Return the mask of the prompt, the position of each token, and that of the next token.

    Paddings have no position. A token that `attention_mask` hides has one, as in onnxruntime.
    """
    is_token = xp.astype(xp.not_equal(input_ids, pad_token_id), xp.dtype(INT32))
    counts = xp.astype(xp.cumulative_sum(is_token, axis=1), is_token.dtype)
    positions = xp.where(is_token > 0, counts - 1, xp.zeros_like(counts))
    mask = is_token if attention_mask is None else xp.astype(attention_mask, is_token.dtype)
    return mask, positions, counts[:, -1:]


def _first_states(
    xp: Backend, mask: Array, positions: Array, *past: Array, beams: int
) -> tuple[Array, ...]:
    """Return the decoder's next inputs, with a row for each beam."""
    one = xp.ones((mask.shape[0], 1), dtype=mask.dtype)
    rows = (repeated(xp, x, beams) for x in (xp.concat([mask, one], axis=1), positions))
    return (*rows, *(repeated(xp, x, beams, axis=1) for x in past))


@dataclass(frozen=True)
class MaskedDecoder:
    """A decoder with one past state per layer, as GPT-2, and a mask of the tokens to attend to."""

    body: Body
    mask: Value
    positions: Value
    past: tuple[Value, ...]

    def decoded(self, walk: Walk, choice: Choice, length: int) -> tuple[Value, MaskedDecoder]:
        past = self.past
        if choice.order is not None:
            past = walk.apply(_reordered, choice.order, *past)
        logits, *present = self.body(choice.tokens, self.positions, self.mask, *past)
        mask, positions = walk.apply(_with_one_more, self.mask, self.positions)
        return logits, replace(self, mask=mask, positions=positions, past=tuple(present))

    def looped(
        self, walk: Walk, search: Search, choice: Choice, length: int
    ) -> tuple[Value, ...] | None:
        """Record one loop and return the last state; None if the decoder cannot run in one."""
        if not (self.body.reads(1) and self.body.reads(2)):
            return None
        past = self.past
        try:
            if choice.order is not None:
                past = walk.apply(_reordered, choice.order, *past)
            results = walk.with_body(
                _loop,
                *(choice.tokens, choice.ended, self.positions, self.mask),
                *(*search.arrays, *choice.state, *past),
                decoder=self.body,
                step=search.step,
                rules=tuple(search.rules),
                states=len(choice.state),
                # The last token of a text is not decoded.
                widths=(length, search.longest - 2),
            )
        except NeedsHost:
            return None
        return tuple(results)


def _reordered(xp: Backend, order: Array, *past: Array) -> tuple[Array, ...]:
    return tuple(xp.take(x, order, axis=1) for x in past)


def _with_one_more(xp: Backend, mask: Array, positions: Array) -> tuple[Array, Array]:
    one = xp.ones((mask.shape[0], 1), dtype=mask.dtype)
    return xp.concat([mask, one], axis=1), positions + 1


def _loop(
    xp: Backend,
    tokens: Array,
    ended: Array,
    positions: Array,
    mask: Array,
    *values: Array,
    decoder: Body,
    step: Step,
    rules: tuple[Any, ...],
    states: int,
    widths: tuple[int, int],
) -> tuple[Array, ...]:
    """Decode and choose until all rows have ended, or the last token is chosen.

    The past has `widths[0]` tokens, and gets room for `widths[1]`. Tokens in front that are not
    there yet are zeros, which the mask hides.
    """
    known = Rules(*rules)
    arrays = dict(zip(known.names, values, strict=False))
    length, room = widths
    missing = room - length
    state, past = values[len(arrays) :][:states], values[len(arrays) + states :]
    past = tuple(_padded(xp, x, missing, axis=3) for x in past)
    mask = _padded(xp, mask, missing, axis=1)
    start = xp.asarray(length + 1, dtype=xp.dtype(INT32))

    def goes_on(size: Array, ended: Array, *_: Array) -> Array:
        return (size < room + 2) & ~ended

    def iterate(
        size: Array, ended: Array, tokens: Array, positions: Array, mask: Array, *carried: Array
    ) -> tuple[Array, ...]:
        state, past = carried[:states], carried[states:]
        logits, *present = decoder(tokens, positions, mask, *past, iteration=size)
        choice = step(xp, logits, size, state, arrays, known, is_first=False)
        present = [_without_first(x, y) for x, y in zip(present, past, strict=True)]
        if choice.order is not None:
            present = list(_reordered(xp, choice.order, *present))
        mask, positions = _with_one_more(xp, mask[:, 1:], positions)
        return (size + 1, choice.ended, choice.tokens, positions, mask, *choice.state, *present)

    carry = (start, ended, tokens, positions, mask, *state, *past)
    return tuple(xp.loop(goes_on, iterate, carry)[5 : 5 + states])


def _padded(xp: Backend, x: Array, count: int, axis: int) -> Array:
    widths = [(count if i == axis else 0, 0) for i in range(x.ndim)]
    return xp.pad(x, widths, 0) if count else x


def _without_first(present: Array, past: Array) -> Array:
    """Return the state of as many tokens as before, without the first."""
    *rows, length, features = past.shape
    if present.shape != (*rows, length + 1, features):
        raise ValueError(
            f"a present state of the decoder has shape {present.shape}, but must have one more "
            f"token than the past state of shape {past.shape}"
        )
    return present[:, :, :, 1:, :]
