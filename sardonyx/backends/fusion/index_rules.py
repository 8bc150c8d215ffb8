"""From the place of an element in a result to its place in the operand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from sardonyx.backends.fusion.index_text import (
    Digits,
    IndexNames,
    as_digits,
    broadcast_digits,
    digits_of,
)
from sardonyx.backends.standard import Shape


class Reader(IndexNames, Protocol):
    """Names index expressions, and reads computed indices."""

    def element(self, operand: int, digits: Digits, size: int) -> str:
        """Return an index from an operand, moved into an axis of this size."""


class Rule(Protocol):
    """Where the elements of a result come from."""

    # Whether the result can be a view of the operand.
    is_view: ClassVar[bool]

    def digits(self, digits: Digits, shape: Shape, source: Shape, reader: Reader) -> Digits:
        """Return the digits in the source of the element at these digits in the result."""

    def view(self, xp: Any, array: Any, shape: Shape) -> Any:
        """Return the view of an array, if there is one."""


@dataclass(frozen=True, slots=True)
class Reshape:
    is_view: ClassVar[bool] = True

    def digits(self, digits: Digits, shape: Shape, source: Shape, reader: Reader) -> Digits:
        return digits

    def view(self, xp: Any, array: Any, shape: Shape) -> Any:
        return xp.reshape(array, shape)


@dataclass(frozen=True, slots=True)
class Permute:
    axes: tuple[int, ...]
    is_view: ClassVar[bool] = True

    def digits(self, digits: Digits, shape: Shape, source: Shape, reader: Reader) -> Digits:
        own = digits_of(digits, shape, reader)
        expressions = [""] * len(shape)
        for axis, expression in zip(self.axes, own, strict=True):
            expressions[axis] = expression
        return as_digits(expressions, source)

    def view(self, xp: Any, array: Any, shape: Shape) -> Any:
        return xp.permute_dims(array, self.axes)


@dataclass(frozen=True, slots=True)
class Broadcast:
    is_view: ClassVar[bool] = True

    def digits(self, digits: Digits, shape: Shape, source: Shape, reader: Reader) -> Digits:
        return broadcast_digits(digits, source, shape, reader)

    def view(self, xp: Any, array: Any, shape: Shape) -> Any:
        return xp.broadcast_to(array, shape)


@dataclass(frozen=True, slots=True)
class Sliced:
    """`x[key]` with integers, slices and None; the key names every axis."""

    key: tuple[Any, ...]
    is_view: ClassVar[bool] = True

    def digits(self, digits: Digits, shape: Shape, source: Shape, reader: Reader) -> Digits:
        own = iter(digits_of(digits, shape, reader))
        sizes = iter(source)
        expressions = []
        for part in self.key:
            if part is None:
                next(own)
                continue
            size = next(sizes)
            if isinstance(part, slice):
                start, _, step = part.indices(size)
                expressions.append(_moved(next(own), start, step, reader))
            else:
                expressions.append(str(int(part) % size))
        return as_digits(expressions, source)

    def view(self, xp: Any, array: Any, shape: Shape) -> Any:
        return array[self.key]


@dataclass(frozen=True, slots=True)
class Take:
    """Along an axis at the indices of the second operand, which has `rank` axes."""

    axis: int
    rank: int
    is_view: ClassVar[bool] = False

    def digits(self, digits: Digits, shape: Shape, source: Shape, reader: Reader) -> Digits:
        own = digits_of(digits, shape, reader)
        end = self.axis + self.rank
        indices = as_digits(own[self.axis : end], shape[self.axis : end])
        place = reader.element(1, indices, source[self.axis])
        return as_digits([*own[: self.axis], place, *own[end:]], source)

    view: ClassVar[Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class TakeAlong:
    """Along an axis, at indices for each element."""

    axis: int
    is_view: ClassVar[bool] = False

    def digits(self, digits: Digits, shape: Shape, source: Shape, reader: Reader) -> Digits:
        own = digits_of(digits, shape, reader)
        place = reader.element(1, digits, source[self.axis])
        return as_digits([*own[: self.axis], place, *own[self.axis + 1 :]], source)

    view: ClassVar[Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Gather:
    """`x[places[0], places[1], ...]`; the places are the other operands, of `rank` axes each."""

    places: int
    rank: int
    is_view: ClassVar[bool] = False

    def digits(self, digits: Digits, shape: Shape, source: Shape, reader: Reader) -> Digits:
        own = digits_of(digits, shape, reader)
        indices = as_digits(own[: self.rank], shape[: self.rank])
        places = [reader.element(i + 1, indices, source[i]) for i in range(self.places)]
        return as_digits([*places, *own[self.rank :]], source)

    view: ClassVar[Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows over the last axes: axes for the place in a window, and for the window.

    Those for the window come first, unless `is_kernel_first`.
    """

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    is_kernel_first: bool
    is_view: ClassVar[bool] = False

    def digits(self, digits: Digits, shape: Shape, source: Shape, reader: Reader) -> Digits:
        own, count = digits_of(digits, shape, reader), len(self.strides)
        places, inner = own[-2 * count : -count], own[-count:]
        if self.is_kernel_first:
            places, inner = inner, places
        parts = zip(places, self.strides, inner, self.dilations, strict=True)
        expressions = [
            reader.index(f"{place} * {stride} + {within} * {dilation}")
            for place, stride, within, dilation in parts
        ]
        return as_digits([*own[: -2 * count], *expressions], source)

    view: ClassVar[Callable[..., Any]]


def _moved(expression: str, start: int, step: int, names: IndexNames) -> str:
    scaled = expression if step == 1 else f"{expression} * {step}"
    if not start:
        return scaled if step == 1 else names.index(scaled)
    return names.index(f"{start} + {scaled}")
