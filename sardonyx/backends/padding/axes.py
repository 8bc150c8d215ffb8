"""Which positions along a padded axis are true, that is: hold elements of the unpadded array.

A position is a number with one digit per `Part`, the most significant first. It is true if every
digit is below the true size of its part. An axis that is padded at its end has one part. A batch of
3, padded to 8, merged with a sequence of 5, padded to 16, has two parts: (8, 3) and (16, 5).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple, TypeAlias


class Different(Exception):  # noqa: N818  (a finding, not a fault)
    """Programs for different sizes differ in more than sizes, constants and parameters."""


class Unpaddable(Exception):  # noqa: N818  (a finding, not a fault)
    """There is no proof that padding does not change the result."""


class Slot(NamedTuple):
    """Which runtime argument: a number in the stack of scalars of a dtype, or among the arrays."""

    dtype: str | None
    number: int


@dataclass(frozen=True, slots=True)
class Part:
    """One digit of a position: its base, how many of its values are true, and if it is padded.

    `is_padded` holds for all calls that share a program, even those that fill the padded size.
    """

    padded: int
    true: int
    is_padded: bool


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a value. Along a `uniform` axis all elements are equal, padding included."""

    parts: tuple[Part, ...]
    uniform: bool = False

    @classmethod
    def of(cls, padded: int, true: int, *, is_padded: bool, uniform: bool = False) -> Axis:
        if not is_padded:
            return unpadded(padded)
        if true > padded:
            raise Unpaddable(f"an axis grows from {padded} to {true} when other sizes shrink")
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
        """Whether the true positions are the first ones, so that a size describes them."""
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


def padded_form(layout: Layout) -> tuple[Any, ...]:
    """Return what a layout has in common with those of other sizes in the same bucket."""
    return tuple(
        (axis.uniform, tuple((part.padded, part.is_padded) for part in axis.parts))
        for axis in layout
    )


def has_padding(layout: Layout) -> bool:
    return any(axis.is_padded for axis in layout)


class Cut(NamedTuple):
    """How to take the true elements out of a padded array: split its axes, cut them, and join."""

    split: tuple[int, ...]
    true: tuple[int, ...]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, layout: Layout) -> Cut:
        parts = [part for axis in layout for part in axis.parts]
        return cls(
            tuple(part.padded for part in parts),
            tuple(part.true for part in parts),
            tuple(axis.true for axis in layout),
        )

    def is_corner(self, whole: Any) -> bool:
        """Whether no axis is split, so that the true elements begin at the first one."""
        return self.split == tuple([size for size in whole.shape if size != 1])

    def applied(self, whole: Any) -> Any:
        """The true elements of an array of any library; a view, if the library makes views."""
        if self.split == self.true:
            return whole
        if self.is_corner(whole):
            return whole[tuple(map(slice, self.shape))]
        return whole.reshape(self.split)[tuple(map(slice, self.true))].reshape(self.shape)


def joined(axes: Sequence[Axis]) -> Axis:
    """The axis of an element-wise result, from the same axis of its operands."""
    return reduce(_joined, axes)


def _joined(a: Axis, b: Axis) -> Axis:
    if (a.padded, a.true) != (b.padded, b.true):
        raise Different(f"sizes {a.true} and {b.true} became {a.padded} and {b.padded}")
    if a.uniform or not a.is_padded:
        return b
    if b.uniform or not b.is_padded:
        return a
    if a.parts != b.parts:
        raise Unpaddable(
            "it combines axes whose padding lies in different places, such as an axis merged from "
            "two and one that never was two"
        )
    return a


def merged(parts: Iterable[Part]) -> Axis:
    """The axis whose positions have these digits, in as few parts as possible."""
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
    """The layout of the same elements in a new shape, which must not split a padded part."""
    whole = [axis for axis in layout if axis.padded != 1]
    if [axis.padded for axis in whole] == [size for size in shape if size != 1]:
        rest = iter(whole)
        return tuple(unpadded(1) if size == 1 else next(rest) for size in shape)
    if 0 in shape:
        raise Unpaddable("it changes the shape of an array without elements")
    digits = [part for axis in layout for part in axis.parts]
    axes = []
    for size in reversed(shape):
        parts: list[Part] = []
        missing = size
        while missing > 1:
            part = digits.pop()
            if missing % part.padded == 0:
                missing //= part.padded
            else:
                major, part = _split(part, missing)
                digits.append(major)
                missing = 1
            parts.insert(0, part)
        axes.append(merged(parts))
    return tuple(reversed(axes))


def _split(part: Part, size: int) -> tuple[Part, Part]:
    """Split a digit in two; the minor one has `size` values, all of them true."""
    if part.padded % size or part.true % size:
        raise Unpaddable(
            f"it divides an axis of {part.true} elements, padded to {part.padded}, into pieces "
            "that padding would shift"
        )
    return (
        Part(part.padded // size, part.true // size, part.is_padded),
        Part(size, size, is_padded=False),
    )
