"""Sets of characters, as ranges that can be compared."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

Range: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Characters:
    """A set of characters: ranges of code points in ascending order, with gaps between them."""

    ranges: tuple[Range, ...]

    @classmethod
    def of(cls, bounds: str) -> Characters:
        """Return the set of the ranges between each two characters of `bounds`.

        >>> Characters.of("amnz") == Characters.of("az")
        True
        """
        codes = list(map(ord, bounds))
        return cls(_merged(zip(codes[::2], codes[1::2], strict=True)))

    def __call__(self, char: str) -> bool:
        """Whether the set has this character; "" stands for none."""
        return char != "" and any(low <= ord(char) <= high for low, high in self.ranges)

    def __or__(self, other: Characters) -> Characters:
        return Characters(_merged((*self.ranges, *other.ranges)))

    def __invert__(self) -> Characters:
        starts = [0, *(high + 1 for _, high in self.ranges)]
        ends = [*(low - 1 for low, _ in self.ranges), sys.maxunicode]
        return Characters(_merged(zip(starts, ends, strict=True)))

    def meets(self, other: Characters) -> bool:
        """Return whether some character is in both sets."""
        return any(a <= d and c <= b for a, b in self.ranges for c, d in other.ranges)

    @property
    def pattern(self) -> str:
        """The set in the syntax of Python's regular expressions."""
        if not self.ranges:
            return r"[^\s\S]"
        return "[" + "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in self.ranges) + "]"


def _merged(ranges: Iterable[Range]) -> tuple[Range, ...]:
    merged: list[Range] = []
    for low, high in sorted(each for each in ranges if each[0] <= each[1]):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(high, merged[-1][1])
        else:
            merged.append((low, high))
    return tuple(merged)
