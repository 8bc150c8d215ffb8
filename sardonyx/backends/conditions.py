"""Conditions on data, which ONNX demands and shapes and dtypes cannot show.

An index is within its axis, and an integer divisor is not zero. Ops state a condition on an input
with `xp.require`; the backend decides whether it reads the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np

from sardonyx.backends.standard import Array, Standard


class BadData(ValueError):  # noqa: N818  (the word that messages use)
    """An element of an input does not meet the condition that the operator sets."""


class Condition(Protocol):
    """A condition that each element of a part of an array must meet."""

    @property
    def part(self) -> Any:
        """The index of that part."""

    def holds(self, x: Any) -> Any:
        """A boolean array: whether each element of that part meets the condition."""

    def reason(self, value: object) -> str:
        """The reason why this value of an element is an error."""


@dataclass(frozen=True, slots=True)
class Within:
    """Each element lies from `low` to `high`, or is `exempt`.

    >>> Within("indices", -3, 2).reason(7)
    "'indices' holds 7, out of the range from -3 to 2"
    """

    name: str
    low: float
    high: float
    part: Any = ...
    exempt: int | None = None
    # Whether the op indexes an array with the elements, which NumPy refuses by itself.
    is_of_index: bool = False

    def holds(self, x: Any) -> Any:
        within = (x >= self.low) & (x <= self.high)
        return within if self.exempt is None else within | (x == self.exempt)

    def reason(self, value: object) -> str:
        other = "" if self.exempt is None else f", or {self.exempt}"
        return (
            f"'{self.name}' holds {value}, out of the range from {self.low} to {self.high}{other}"
        )


@dataclass(frozen=True, slots=True)
class NonZero:
    """No element is zero, because integers are divided by it."""

    name: str
    part: ClassVar[Any] = ...

    def holds(self, x: Any) -> Any:
        return x != 0

    def reason(self, value: object) -> str:
        return f"'{self.name}' holds {value}, by which integers cannot be divided"


@dataclass(frozen=True, slots=True)
class Listed:
    """No element is the number that stands for categories outside of the model's list."""

    name: str
    unlisted: int
    part: ClassVar[Any] = ...

    def holds(self, x: Any) -> Any:
        return x != self.unlisted

    def reason(self, value: object) -> str:
        return f"'{self.name}' holds a category that is not listed, and zeros is 0"


@dataclass(frozen=True, slots=True)
class Constants:
    """The arguments of an op that are constants, by `id`, and the arguments with conditions.

    A constant is read by a function, since few have conditions, and some are not in memory.
    """

    values: Mapping[int, Callable[[], np.ndarray[Any, Any]]]
    with_conditions: set[int] = field(default_factory=set)


class Conditions(Standard):
    """A library's treatment of conditions. By default it reads the data and raises at once."""

    # Whether compiled programs report the step with bad data, by the name from `at`.
    reports: bool = False

    def require(self, x: Array, condition: Condition) -> None:
        """State a condition that `x`, an input of the op as it came, must meet."""
        if not bool(self.all(condition.holds(x[condition.part]))):
            refuse(self.fetch(x), condition)

    def fetch(self, value: Array) -> np.ndarray[Any, Any]:
        """`value` on the host, without a copy where the library allows it."""
        return np.asarray(value)

    def with_constants(self, constants: Constants) -> Any:
        """The same backend for one call of a trace, which checks the conditions on constants."""
        return self

    def at(self, place: str) -> Any:
        """The same backend for one step, whose name in messages is `place`."""
        return self

    def begin_step(self) -> None:
        """Do what comes before each step; an interpreter may stop here."""

    def with_checks(self) -> Any:
        """The same backend with all conditions checked, as on libraries that read data at once."""
        return self


def refuse(host: np.ndarray[Any, Any], condition: Condition) -> None:
    """Raise `BadData` if an element of an array on the host does not meet the condition."""
    elements = np.asarray(host)[condition.part]
    wrong = elements[np.logical_not(condition.holds(elements))]
    if wrong.size:
        raise BadData(condition.reason(wrong.reshape(-1)[0].item()))
