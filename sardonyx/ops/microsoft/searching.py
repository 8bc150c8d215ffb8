"""What all searches share: decode the last tokens, choose the next ones, and so on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.errors import InvalidInput, LimitExceeded
from sardonyx.ops.definition import Value, Walk
from sardonyx.ops.dtypes import INT32
from sardonyx.ops.loops import single
from sardonyx.ops.microsoft.token_scores import Rules

# Maximum number of tokens to generate.
MOST_TOKENS = 2**12
# The arrays of a search that are not single numbers.
MASKS = {"vocab_mask", "prefix_vocab_mask", "presence_mask"}


class Choice(NamedTuple):
    """The result of a step: what the next one needs."""

    # One token of each row, as a column.
    tokens: Any
    # Whether all rows have ended.
    ended: Any
    # The row that each row continues; None if each continues itself.
    order: Any
    state: tuple[Any, ...]


class Step(Protocol):
    """Chooses the next tokens from the logits of the last ones.

    A search may have fewer rows of logits than of tokens in its first step, where its beams are
    still equal.
    """

    def __call__(
        self,
        xp: Backend,
        logits: Array,
        length: Array,
        state: Sequence[Array],
        arrays: Mapping[str, Array],
        rules: Rules,
        *,
        is_first: bool,
    ) -> Choice: ...


@dataclass(frozen=True)
class Search:
    """A way to choose tokens, and what it reads besides logits and state."""

    step: Step
    rules: Rules
    # By the names of `rules`.
    arrays: tuple[Value, ...]
    longest: int

    @classmethod
    def of(cls, step: Step, rules: Rules, longest: int, **arrays: Value) -> Search:
        """Return a search with those of the arrays that the node has."""
        present = {name: value for name, value in arrays.items() if value is not None}
        for name in present.keys() - MASKS:
            single(name, present[name])
        rules = rules._replace(names=tuple(present))
        return cls(step, rules, tuple(present.values()), longest)

    def choice(
        self,
        walk: Walk,
        logits: Value,
        length: int,
        state: Sequence[Value],
        *,
        is_first: bool = False,
    ) -> Choice:
        """Record one step."""
        tokens, ended, *rest = walk.apply(
            _step,
            *(logits, np.asarray(length, INT32), *self.arrays, *state),
            step=self.step,
            rules=tuple(self.rules),
            is_first=is_first,
        )
        order = rest.pop(0) if self.rules.beams > 1 else None
        return Choice(tokens, ended, order, tuple(rest))


class Decoder(Protocol):
    """A decoder after some tokens: its subgraph and the states of these tokens."""

    def decoded(self, walk: Walk, choice: Choice, length: int) -> tuple[Value, Decoder]:
        """Return the logits after the chosen tokens, and the decoder with their states."""


def walked(
    walk: Walk, search: Search, decoder: Decoder, choice: Choice, length: int
) -> tuple[Value, ...]:
    """Trace one token after the other until all rows have ended, and return the last state."""
    for size in range(length, search.longest):
        if _has_ended(walk, choice):
            break
        logits, decoder = decoder.decoded(walk, choice, size)
        choice = search.choice(walk, logits, size, choice.state)
    return choice.state


def _has_ended(walk: Walk, choice: Choice) -> bool:
    """Return whether all rows have ended; False under a transformation, where nobody can know."""
    try:
        return bool(walk.read(choice.ended).item())
    except InvalidInput:
        return False


def read_number(walk: Walk, name: str, value: Value) -> int:
    """Return an input of one number; the program is valid for this number alone."""
    single(name, value)
    return int(walk.read(value).item())


def check_number_of_tokens(count: int) -> None:
    if count > MOST_TOKENS:
        raise LimitExceeded(
            f"max_length asks for {count:,} more tokens, but at most {MOST_TOKENS:,} are allowed"
        )


def _step(
    xp: Backend,
    logits: Array,
    length: Array,
    *values: Array,
    step: Step,
    rules: tuple[Any, ...],
    is_first: bool,
) -> tuple[Array, ...]:
    known = Rules(*rules)
    arrays = dict(zip(known.names, values, strict=False))
    state = values[len(arrays) :]
    choice = step(xp, logits, length, state, arrays, known, is_first=is_first)
    order = () if choice.order is None else (choice.order,)
    return choice.tokens, choice.ended, *order, *choice.state


def with_room(xp: Backend, tokens: Array, *, longest: int, pad_token_id: int) -> Array:
    """Return rows of tokens, with paddings up to the longest length."""
    return xp.pad(tokens, [(0, 0), (0, longest - tokens.shape[1])], pad_token_id)


def with_next(xp: Backend, sequences: Array, tokens: Array, length: Array) -> Array:
    """Return the sequences with the tokens of one column after the first `length` of each row."""
    place = xp.arange(sequences.shape[-1], dtype=length.dtype)
    return xp.where(xp.equal(place, length), tokens, sequences)
