"""Which positions along a padded axis are true, as a number system.

A position is written in digits, one for each `Part`, the most significant first. It is true where
every digit is below the true size of its part. An axis that was padded at its end has one part; the
merger of a batch of 3 (of 8) and a sequence of 5 (of 16) has two, (8, 3) and (16, 5).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from sardonyx.backends.jax.lockstep import Different


class Unpaddable(Exception):  # noqa: N818  (a finding, not a fault)
    """Padding would change the result, or cannot be shown not to."""


class Slot(NamedTuple):
    """Where a value stands among those that differ between calls: scalars by dtype, and arrays."""

    dtype: str | None
    number: int


@dataclass(frozen=True, slots=True)
class Part:
    """One digit of a position: its base, how many of its values are true, and if it is padded.

    A part can be padded by nothing, since it stands for all calls that share a program.
    """

    padded: int
    true: int
    is_padded: bool


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a value. Along an `even` one all elements are equal, padding included."""

    parts: tuple[Part, ...]
    uniform: bool = False

    @classmethod
    def of(cls, padded: int, true: int, *, is_padded: bool, uniform: bool = False) -> Axis:
        if not is_padded:
            return unpadded(padded)
        if true > padded:
            raise Unpaddable(f"an axis grows from {padded} to {true} where sizes become smaller")
        return cls((Part(padded, true, is_padded=True),), uniform)

    @property
    def padded(self) -> int:
        return math.prod(part.padded for part in self.parts)

    @property
    def true(self) -> int:
        return math.prod(part.true for part in self.parts)

    @property
    def is_padded(self) -> bool:
        return any(part.is_padded for part in self.parts)

    @property
    def is_prefix(self) -> bool:
        """Whether the true positions are the first ones, so that a size says which they are."""
        return len(self.parts) <= 1

    @property
    def nonuniform(self) -> Axis:
        return replace(self, uniform=False)


Layout: TypeAlias = tuple[Axis, ...]


def unpadded(size: int) -> Axis:
    """An axis without padding."""
    return Axis(() if size == 1 else (Part(size, size, is_padded=False),))


def unpadded_layout(shape: Iterable[int]) -> Layout:
    return tuple(unpadded(size) for size in shape)


def has_padding(layout: Layout) -> bool:
    return any(axis.is_padded for axis in layout)


def joined(axes: Sequence[Axis]) -> Axis:
    """The one axis that several operands of an element-wise operation have in common."""
    result = axes[0]
    for axis in axes[1:]:
        result = _joined(result, axis)
    return result


def _joined(a: Axis, b: Axis) -> Axis:
    if (a.padded, a.true) != (b.padded, b.true):
        raise Different(f"sizes {a.true} and {b.true} became {a.padded} and {b.padded}")
    if a.uniform or not a.is_padded:
        return b
    if b.uniform or not b.is_padded:
        return a
    if a.parts != b.parts:
        raise Unpaddable(
            "it combines axes in which the padding lies in different places, as in one axis made "
            "of two and one that was always one"
        )
    return a


def merged(parts: Iterable[Part]) -> Axis:
    """The axis whose positions have these digits, with as few of them as can be."""
    result: list[Part] = []
    for part in parts:
        if part.padded == 1 and not part.is_padded:
            continue
        if result and not part.is_padded:
            last = result.pop()
            size = part.padded
            result.append(Part(last.padded * size, last.true * size, last.is_padded))
        else:
            result.append(part)
    return Axis(tuple(result))


def reshaped(layout: Layout, shape: Sequence[int]) -> Layout:
    """The layout of the same elements in a new shape; it must keep padded axes whole."""
    whole = [axis for axis in layout if axis.padded != 1]
    if [axis.padded for axis in whole] == [size for size in shape if size != 1]:
        kept = iter(whole)
        return tuple(unpadded(1) if size == 1 else next(kept) for size in shape)
    digits = [part for axis in layout for part in axis.parts]
    axes = []
    for size in reversed(shape):
        taken: list[Part] = []
        missing = size
        while missing > 1:
            part = digits.pop()
            if missing % part.padded == 0:
                missing //= part.padded
            else:
                major, part = _split(part, missing)
                digits.append(major)
                missing = 1
            taken.insert(0, part)
        axes.append(merged(taken))
    return tuple(reversed(axes))


def _split(part: Part, size: int) -> tuple[Part, Part]:
    """A digit as two, the lesser of which has `size` values, all of them true."""
    if part.padded % size or part.true % size:
        raise Unpaddable(
            f"it divides an axis of {part.true} elements, padded to {part.padded}, into pieces "
            f"that padding would shift"
        )
    return (
        Part(part.padded // size, part.true // size, part.is_padded),
        Part(size, size, is_padded=False),
    )
