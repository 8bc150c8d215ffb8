"""What attention does to the scores of queries and keys, said for any part of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from sardonyx.backends.standard import Array


class Tile(NamedTuple):
    """A part of the scores: some queries and some keys."""

    # Places of the queries in the sequence, one below the other, and of the keys, side by side.
    queries: Array
    keys: Array
    # Cuts an array of four axes that broadcasts to all scores to the ones of the tile.
    cut: Callable[[Array], Array]


class Mask(NamedTuple):
    """What is added to the scores of a tile, and which of them count; None changes nothing."""

    bias: Array | None
    allowed: Array | None


MaskOf: TypeAlias = Callable[[Tile], Mask]


class Reach(NamedTuple):
    """The keys that each query sees, where their places alone decide."""

    # Whether the first query sees the first key, the second one two keys, and so on.
    is_causal: bool = False
    # How many keys each sample has, from the first one on; None if all have all.
    lengths: Array | None = None


@dataclass(frozen=True)
class Scoring:
    """How queries (batch, heads, queries, size) weigh their keys.

    The products of queries and keys are scaled, capped, masked, and normalised beside the sink, the
    score of a key without a value.
    """

    scale: float
    softcap: float = 0.0
    mask: MaskOf | None = None
    sink: Array | None = None
    # Whether a query whose scores are all minus infinity gets zeros, and not NaN.
    zeros_without_keys: bool = True
    # Whether a query gets zeros if its values would be NaN.
    zeros_for_nan: bool = False
    # Whether it is certain that the mask allows each query at least one key.
    sees_some: bool = False
    # What the mask does, if that is all of it; None if it adds numbers or is of another kind.
    reach: Reach | None = None


def scoring_with(bias: Array | None, scale: float, *, is_guarded: bool = False) -> Scoring:
    """Return the scoring that adds a bias, if there is one, and forbids no key."""

    def mask(tile: Tile) -> Mask:
        return Mask(None if bias is None else tile.cut(bias), None)

    return Scoring(
        scale,
        mask=mask,
        zeros_without_keys=is_guarded,
        zeros_for_nan=is_guarded,
        reach=Reach() if bias is None else None,
    )
