"""Calls that differ in sizes only: the first ones are planned, and formulas plan all others."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from sardonyx.graph.buckets.expressions import Expression, parse
from sardonyx.graph.buckets.formulas import SizeVector
from sardonyx.graph.buckets.plans import PaddedCallPlan, PlanFormulas
from sardonyx.graph.buckets.row_pieces import SplitCalls
from sardonyx.graph.calls.dimensions import Dimensions, Place, Shapes, Take, dimensions_of
from sardonyx.graph.ir import ValueInfo

# The sizes of a bucket, and the other dimensions of its calls.
BucketKey: TypeAlias = tuple[SizeVector, tuple[int, ...]]


@dataclass(frozen=True, eq=False, slots=True)
class SizePattern:
    """Which dimensions of a call have the padded sizes, and which follow from them."""

    names: tuple[str, ...]
    places: tuple[Place, ...]
    # Dimensions that repeat a size, by its number; and those that are computed from sizes.
    repeated: tuple[tuple[Place, int], ...]
    computed: tuple[tuple[Place, Expression], ...]
    # These, those that repeat one, the ones that they repeat, and all others.
    sizes_of: Take
    repeated_of: Take
    first_of: Take
    others_of: Take

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
        first = [order[number] for _, number in repeated]
        parts = order, [place for place, _ in repeated], first, others
        takes = [Take.at(each, shapes) for each in parts]
        return cls(tuple(names), order, tuple(repeated), tuple(computed), *takes)

    def sizes(self, shapes: Shapes) -> SizeVector | None:
        """Return the sizes of a call; None if its shapes contradict each other."""
        return self._sizes(shapes, dimensions_of(shapes))

    def sizes_and_rest(self, shapes: Shapes) -> CallSizes | None:
        """Return what describes a call; None if its shapes contradict each other."""
        sizes, rest = self.split(shapes)
        return None if sizes is None else CallSizes(sizes, rest, shapes)

    def split(self, shapes: Shapes) -> tuple[SizeVector | None, Dimensions]:
        """Return the sizes of a call, and the dimensions that do not follow from them."""
        dimensions = dimensions_of(shapes)
        return self._sizes(shapes, dimensions), self.others_of(dimensions)

    def _sizes(self, shapes: Shapes, dimensions: Dimensions) -> SizeVector | None:
        if self.repeated and self.repeated_of(dimensions) != self.first_of(dimensions):
            return None
        sizes = self.sizes_of(dimensions)
        if self.computed:
            named = dict(zip(self.names, sizes, strict=True))
            for (array, axis), expression in self.computed:
                if shapes[array][axis] != expression.value(named):
                    return None
        return sizes

    def numbers(self, shapes: Shapes) -> tuple[list[tuple[int, ...]], Dimensions]:
        """Return the number of each dimension, and the distinct ones that follow from no size.

        The sizes have the first numbers, what is computed from them the next, and these the last.
        """
        order = [*self.places, *[place for place, _ in self.computed]]
        found = {**{place: i for i, place in enumerate(order)}, **dict(self.repeated)}
        others: dict[int, int] = {}

        def number(place: Place, size: int) -> int:
            own = found.get(place)
            return others.setdefault(size, len(order) + len(others)) if own is None else own

        numbers = [
            tuple(number(Place(i, axis), size) for axis, size in enumerate(shape))
            for i, shape in enumerate(shapes)
        ]
        return numbers, tuple(others)

    def resized(self, shapes: Shapes, sizes: SizeVector) -> Shapes:
        """Return the shapes with these sizes in place of their own, where none is computed."""
        result = [list(shape) for shape in shapes]
        for (array, axis), number in (*zip(self.places, count()), *self.repeated):
            result[array][axis] = sizes[number]
        return list(map(tuple, result))


class CallSizes(NamedTuple):
    """The sizes of a call, the dimensions that do not follow from them, and its shapes."""

    sizes: SizeVector
    rest: Dimensions
    shapes: Shapes


class SizedPlan(NamedTuple):
    """How a call of certain sizes runs, and which part of its work a smaller bucket would save."""

    plan: PaddedCallPlan
    waste: float
    # The shapes of calls of that bucket.
    saving: Shapes


@dataclass(eq=False, slots=True)
class Family:
    """Calls whose arrays have the same libraries, ranks and dtypes."""

    pattern: SizePattern
    # The sizes of a bucket, for names and sizes of a call.
    bucket_of: Callable[[Sequence[str], SizeVector], SizeVector]
    # How many times as large as its sizes the bucket of a call may be.
    reach: int = 1
    # By the sizes of the bucket and the other dimensions.
    formulas: dict[BucketKey, PlanFormulas] = field(default_factory=dict)
    # How calls run in pieces, by their other dimensions.
    split: Mapping[tuple[int, ...], SplitCalls] = field(default_factory=dict)
    # Seconds that the last program took until it was compiled.
    compile_seconds: float = 0.0
    # Seconds that calls took longer because their bucket has no program, by the bucket.
    wasted: dict[BucketKey, float] = field(default_factory=dict)

    def learn(self, shapes: Shapes, formulas: PlanFormulas) -> None:
        """Remember the formulas for all calls of the bucket of such a call."""
        key = self.key(shapes)
        if key is not None:
            # Replaced as a whole, as other threads go through it.
            self.formulas = {**self.formulas, key: formulas}

    def plan(self, call: CallSizes) -> SizedPlan | None:
        """Return how a call of these sizes runs; None if there are no formulas for it."""
        sizes, rest, shapes = call
        if not self.formulas or min(sizes) < 2:
            return None
        bucket = self.bucket_of(self.pattern.names, sizes)
        if self.split:
            in_pieces = self._in_pieces(call)
            if in_pieces is not None:
                return in_pieces
        formulas = self.formulas.get((bucket, rest))
        if formulas is not None:
            return SizedPlan(formulas.at(sizes), 0.0, shapes)
        larger = [
            (math.prod(wide), each)
            for (wide, others), each in self.formulas.items()
            if others == rest and reaches(wide, sizes, self.reach) and each.hold(sizes)
        ]
        if not larger:
            return None
        work, formulas = min(larger, key=itemgetter(0))
        return SizedPlan(formulas.at(sizes), 1 - math.prod(bucket) / work, shapes)

    def _in_pieces(self, call: CallSizes) -> SizedPlan | None:
        sizes, rest, shapes = call
        calls = self.split.get(rest)
        if calls is None:
            return None
        programs = {b[0]: each for (b, others), each in self.formulas.items() if others == rest}
        found = calls.plan(sizes[0], programs)
        if found is None:
            return None
        return SizedPlan(found.plan, found.waste, self.pattern.resized(shapes, (found.last,)))

    def is_worth_compiling(self, shapes: Shapes, seconds: float) -> bool:
        """Add what a call wasted; return whether all such calls now wasted a compile's time.

        Until then nobody can know that it will pay.
        """
        key = self.key(shapes)
        if key is None:
            return False
        before = self.wasted.get(key, 0.0)
        self.wasted[key] = before + seconds
        return before <= self.compile_seconds < before + seconds

    def key(self, shapes: Shapes) -> BucketKey | None:
        """Return the sizes of a call's bucket, and its other dimensions; None without sizes."""
        sizes, rest = self.pattern.split(shapes)
        return None if sizes is None else (self.bucket_of(self.pattern.names, sizes), rest)


def reaches(bucket: SizeVector, sizes: SizeVector, reach: int) -> bool:
    """Whether a bucket has room for these sizes, and not more than `reach` times as much.

    >>> reaches((8, 8), (4, 7), 2), reaches((8, 8), (4, 9), 2), reaches((8, 8), (4, 7), 4)
    (False, False, True)
    """
    has_room = all(wide >= size for wide, size in zip(bucket, sizes, strict=True))
    return has_room and math.prod(bucket) <= reach * math.prod(sizes)


def _of_sizes(dimension: str, names: Collection[str]) -> Expression | None:
    """Return the expression of a dimension that is computed from sizes with these names alone."""
    expression = parse(dimension)
    used = expression.names if expression else None
    return expression if used and used.issubset(names) else None
