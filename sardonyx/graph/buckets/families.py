"""Calls that differ in sizes only: the first ones are planned, and formulas plan all others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from sardonyx.graph.buckets.expressions import Expression, parse
from sardonyx.graph.buckets.formulas import SizeVector
from sardonyx.graph.buckets.plans import PaddedCallPlan, PlanFormulas
from sardonyx.graph.ir import ValueInfo

Shapes: TypeAlias = Sequence[tuple[int, ...]]


class Place(NamedTuple):
    """One dimension of a call's arrays."""

    array: int
    axis: int


@dataclass(frozen=True, eq=False, slots=True)
class SizePattern:
    """Which dimensions of a call have the padded sizes, and which follow from them."""

    names: tuple[str, ...]
    places: tuple[Place, ...]
    # Dimensions that repeat a size, by its number; and those that are computed from sizes.
    repeated: tuple[tuple[Place, int], ...]
    computed: tuple[tuple[Place, Expression], ...]
    others: tuple[Place, ...]

    @classmethod
    def of(cls, infos: Sequence[ValueInfo], shapes: Shapes, names: Sequence[str]) -> SizePattern:
        """Return the pattern of arrays like these; the dimensions with these names are padded."""
        numbers = {name: i for i, name in enumerate(names)}
        places: dict[str, Place] = {}
        repeated, computed, others = [], [], []
        for i, (info, shape) in enumerate(zip(infos, shapes, strict=True)):
            for axis, declared in enumerate(info.shape or (None,) * len(shape)):
                place = Place(i, axis)
                if declared in numbers and declared not in places:
                    places[str(declared)] = place
                elif declared in numbers:
                    repeated.append((place, numbers[str(declared)]))
                elif isinstance(declared, str) and (expression := _of_sizes(declared, names)):
                    computed.append((place, expression))
                else:
                    others.append(place)
        order = tuple(places[name] for name in names)
        return cls(tuple(names), order, tuple(repeated), tuple(computed), tuple(others))

    def sizes(self, shapes: Shapes) -> SizeVector | None:
        """Return the sizes of a call; None if its shapes contradict each other."""
        sizes = tuple([shapes[array][axis] for array, axis in self.places])
        for (array, axis), number in self.repeated:
            if shapes[array][axis] != sizes[number]:
                return None
        if self.computed:
            named = dict(zip(self.names, sizes, strict=True))
            for (array, axis), expression in self.computed:
                if shapes[array][axis] != expression.value(named):
                    return None
        return sizes

    def rest(self, shapes: Shapes) -> tuple[int, ...]:
        """Return the dimensions that do not follow from the sizes."""
        return tuple([shapes[array][axis] for array, axis in self.others])


@dataclass(eq=False, slots=True)
class Family:
    """Calls whose arrays have the same libraries, ranks and dtypes."""

    pattern: SizePattern
    padded: Callable[[Mapping[str, int]], Mapping[str, int]]
    # By the sizes of the bucket and the other dimensions.
    formulas: dict[Any, PlanFormulas] = field(default_factory=dict)

    def learn(self, shapes: Shapes, formulas: PlanFormulas) -> None:
        """Remember the formulas for all calls of the bucket of such a call."""
        sizes = self.pattern.sizes(shapes)
        if sizes is not None:
            self.formulas[self._key(sizes, shapes)] = formulas

    def plan(self, shapes: Shapes) -> PaddedCallPlan | None:
        """Return how a call with these shapes runs; None if there are no formulas for it."""
        sizes = self.pattern.sizes(shapes) if self.formulas else None
        if sizes is None or min(sizes) < 2:
            return None
        formulas = self.formulas.get(self._key(sizes, shapes))
        return None if formulas is None else formulas.at(sizes)

    def _key(self, sizes: SizeVector, shapes: Shapes) -> Any:
        padded = self.padded(dict(zip(self.pattern.names, sizes, strict=True)))
        return tuple(padded.values()), self.pattern.rest(shapes)


def _of_sizes(dimension: str, names: Collection[str]) -> Expression | None:
    """Return the expression of a dimension that is computed from sizes with these names alone."""
    expression = parse(dimension)
    used = expression.names if expression else None
    return expression if used and used.issubset(names) else None
