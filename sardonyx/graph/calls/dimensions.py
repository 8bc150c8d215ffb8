"""The dimensions of all arrays of a call, one after the other: looked at together, for speed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain
from operator import itemgetter
from typing import NamedTuple, TypeAlias, TypeVar

from sardonyx.graph.ir import ValueInfo

Shapes: TypeAlias = Sequence[tuple[int, ...]]
Dimensions: TypeAlias = tuple[int, ...]
T = TypeVar("T")


class Place(NamedTuple):
    """One dimension of a call's arrays."""

    array: int
    axis: int


def dimensions_of(shapes: Shapes) -> Dimensions:
    """Return the dimensions of all arrays.

    >>> dimensions_of([(2, 3), (), (4,)])
    (2, 3, 4)
    """
    return tuple(chain.from_iterable(shapes))


class Take:
    """Takes what has certain numbers out of a sequence.

    >>> Take([2, 1])((2, 3, 4, 5))
    (4, 3)
    """

    def __init__(self, numbers: Sequence[int]) -> None:
        self._first = numbers[0] if len(numbers) == 1 else None
        self._all = itemgetter(*numbers) if len(numbers) > 1 else None

    @classmethod
    def at(cls, places: Sequence[Place], shapes: Shapes) -> Take:
        """Return what takes the dimensions at some places, for arrays of the same ranks.

        >>> Take.at([Place(1, 0), Place(0, 1)], [(2, 3), (4, 5)])((2, 3, 4, 5))
        (4, 3)
        """
        starts = list(accumulate(map(len, shapes), initial=0))
        return cls([starts[array] + axis for array, axis in places])

    def __call__(self, values: Sequence[T]) -> tuple[T, ...]:
        if self._all is not None:
            found: tuple[T, ...] = self._all(values)
            return found
        return () if self._first is None else (values[self._first],)


class DeclaredSizes:
    """What the declared shapes of inputs say of dimensions, for arrays of the same ranks."""

    def __init__(self, infos: Sequence[ValueInfo], shapes: Shapes) -> None:
        numbers: list[tuple[Place, int]] = []
        first: dict[str, Place] = {}
        repeated: list[tuple[Place, Place]] = []
        for i, info in enumerate(infos):
            for axis, declared in enumerate(info.shape or ()):
                if isinstance(declared, int):
                    numbers.append((Place(i, axis), declared))
                elif declared is not None:
                    place = first.setdefault(declared, Place(i, axis))
                    repeated.append((Place(i, axis), place))
        self._numbers = tuple(number for _, number in numbers)
        self._fixed = Take.at([place for place, _ in numbers], shapes)
        self._later = Take.at([place for place, _ in repeated], shapes)
        self._first = Take.at([place for _, place in repeated], shapes)

    def agree(self, dimensions: Dimensions) -> bool:
        """Whether these have the declared sizes, and the same one wherever a name is the same."""
        return self._fixed(dimensions) == self._numbers and (
            self._later(dimensions) == self._first(dimensions)
        )
