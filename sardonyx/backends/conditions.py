"""Conditions on data: what the standard calls an error and only the data can show.

An index is within its axis, an integer divisor is not zero. Ops state a condition of an input with
`xp.require`; the backend decides whether it looks at the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np

from sardonyx.backends.standard import Array, Standard


class BadData(ValueError):  # noqa: N818  (the word that messages use)
    """An element of an input does not meet the condition that the operator sets."""


class Condition(Protocol):
    """What must hold of each element of a part of an array."""

    @property
    def part(self) -> Any:
        """The index of the elements that it concerns."""

    def holds(self, x: Any) -> Any:
        """For each element of that part, whether the condition holds."""

    def reason(self, value: object) -> str:
        """Why this value of an element is an error."""


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
    """No element is zero: integers are divided by it."""

    name: str
    part: ClassVar[Any] = ...

    def holds(self, x: Any) -> Any:
        return x != 0

    def reason(self, value: object) -> str:
        return f"'{self.name}' holds {value}, by which integers cannot be divided"


@dataclass(frozen=True, slots=True)
class Listed:
    """No element is the number that stands for a category that is not listed."""

    name: str
    unlisted: int
    part: ClassVar[Any] = ...

    def holds(self, x: Any) -> Any:
        return x != self.unlisted

    def reason(self, value: object) -> str:
        return f"'{self.name}' holds a category that is not listed, and zeros is 0"


@dataclass(frozen=True, slots=True)
class Known:
    """The values of a call's arrays that tracing knows, by `id`, and which arrays it asks for."""

    values: Mapping[int, np.ndarray[Any, Any]]
    asked: set[int] = field(default_factory=set)


class Conditions(Standard):
    """What a library does about conditions. Here it looks at the data at once, and refuses."""

    # Whether compiled programs report the step whose data are bad; see `at`.
    reports: bool = False

    def require(self, x: Array, condition: Condition) -> None:
        """State a condition that `x`, an input of the op as it came, must meet."""
        if not bool(self.all(condition.holds(x[condition.part]))):
            refuse(self.fetch(x), condition)

    def fetch(self, value: Array) -> np.ndarray[Any, Any]:
        """`value` on the host, without a copy where the library allows it."""
        return np.asarray(value)

    def knowing(self, known: Known) -> Any:
        """The same backend for one call while tracing, which refuses constants that are bad."""
        return self

    def at(self, place: str) -> Any:
        """The same backend for one step, which this text names in messages."""
        return self

    def with_checks(self) -> Any:
        """The same, looking at data; libraries that have them at hand always do."""
        return self


def refuse(host: np.ndarray[Any, Any], condition: Condition) -> None:
    """Raise `BadData` if an element does not meet the condition."""
    elements = np.asarray(host)[condition.part]
    wrong = elements[np.logical_not(condition.holds(elements))]
    if wrong.size:
        raise BadData(condition.reason(wrong.reshape(-1)[0].item()))
