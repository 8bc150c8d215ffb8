"""How calls run in a bucket: for sizes that were traced, and by formulas for all others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from sardonyx.backends.padding.axes import Cut
from sardonyx.graph.buckets.formulas import Formula, SizeVector, determine_formulas, terms
from sardonyx.graph.buckets.wide_inputs import WideInput
from sardonyx.graph.programs.program import Program
from sardonyx.graph.values.kinds import Device, Static, Value, Weight, leaves, static
from sardonyx.ops.definition import Map, MapRows

Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(eq=False, slots=True)
class PaddedProgram:
    """The program for all calls of a bucket that differ in their runtime arguments only."""

    shown: Program
    # The registers of the runtime arguments.
    runtime_args: Sequence[int]
    draws: bool
    # Inputs that the program takes in the shape of a result.
    widened: Mapping[int, WideInput]
    # The least seconds that a call took. The first one does not count, as it prepares weights.
    fastest: float = math.inf
    has_run: bool = False

    def note_run(self, seconds: float) -> None:
        """Remember how long a call took."""
        if self.has_run:
            self.fastest = min(self.fastest, seconds)
        self.has_run = True

    @property
    def is_compiled(self) -> bool:
        """Whether calls need not wait for a compiler."""
        stages = self.shown.stages
        return all(s.is_compiled or s.segment is None or s.segment.host for s in stages)


class ComputedValues(NamedTuple):
    """The computed values in outputs: their registers, those of the padded arrays, and cuts."""

    registers: Sequence[int]
    padded: Sequence[int]
    cuts: Sequence[Cut]


class Rows(NamedTuple):
    """The axis of each input and output that has its rows; None where an array has none."""

    inputs: Sequence[int | None]
    outputs: Sequence[int | None]


class Piece(NamedTuple):
    """Runs for so many rows each, from certain rows on."""

    plan: PaddedCallPlan
    size: int
    starts: range


class RowPieces(NamedTuple):
    """The runs that compute all rows of a call, a few at a time."""

    rows: Rows
    pieces: Sequence[Piece]

    @property
    def runs(self) -> int:
        """The number of all runs."""
        return sum(len(piece.starts) for piece in self.pieces)


@dataclass(eq=False, slots=True)  # Not frozen: that takes longer to make, at each new size.
class PaddedCallPlan:
    """How calls with certain sizes run: a bucket's program, its runtime arguments, its outputs."""

    program: PaddedProgram
    runtime_args: Sequence[Array]
    outputs: tuple[Value, ...]
    computed: ComputedValues
    # If smaller programs compute a few rows at a time: the first of them is `program`.
    split: RowPieces | None = None

    @property
    def runs(self) -> int:
        """How often programs run in such a call."""
        return 1 if self.split is None else self.split.runs

    def with_programs(self, change: Callable[[PaddedProgram], PaddedProgram]) -> PaddedCallPlan:
        """Return the plan with each of its programs changed."""
        split = self.split
        if split is not None:
            changed = [
                piece._replace(plan=piece.plan.with_programs(change)) for piece in split.pieces
            ]
            split = split._replace(pieces=changed)
        return replace(self, program=change(self.program), split=split)

    @property
    def form(self) -> Any:
        """Equal for plans that differ in numbers only."""
        values = zip(*self.computed, strict=True)
        padded = {register: (padded, cut.split) for register, padded, cut in values}
        return self.program, [_form(leaf, padded) for leaf in self.leaves]

    @property
    def leaves(self) -> Iterator[Static | Device]:
        return (leaf for output in self.outputs for leaf in leaves(output))


def _form(leaf: Static | Device, padded: Mapping[int, Any]) -> Any:
    if isinstance(leaf, Static):
        return leaf.dtype, leaf.shape
    return leaf.name if isinstance(leaf, Weight) else padded.get(leaf.register, leaf.register)


class CutPlace(NamedTuple):
    """How a cut splits axes, and where its numbers begin and end among those of all cuts."""

    split: tuple[int, ...]
    start: int
    middle: int
    stop: int


@dataclass(frozen=True, eq=False, slots=True)
class CutFormulas:
    """The cuts for all sizes. Many values have the same one, as the caches of a decoder do."""

    numbers: Formula
    places: Sequence[CutPlace]
    # Which cut each value has.
    of_values: Sequence[int]

    @classmethod
    def fitted(
        cls, sampled: Sequence[SizeVector], sampled_cuts: Sequence[Sequence[Cut]]
    ) -> CutFormulas | None:
        """Return formulas for these cuts at these sizes; None if there are none."""
        columns = list(zip(*sampled_cuts, strict=True))
        distinct = {cuts: i for i, cuts in enumerate(dict.fromkeys(columns))}
        rows = [
            [n for cuts in distinct for n in (*cuts[i].true, *cuts[i].shape)]
            for i in range(len(sampled))
        ]
        numbers = Formula.fitted(sampled, [np.asarray(row, np.int64) for row in rows])
        if numbers is None:
            return None
        places = list(_places([cuts[0] for cuts in distinct]))
        return cls(numbers, places, [distinct[cuts] for cuts in columns])

    def at(self, of_sizes: Sequence[int]) -> list[Cut]:
        """Return the cut of each value, for the terms of the sizes."""
        numbers = tuple(self.numbers.numbers(of_sizes))
        cuts = [
            Cut(split, numbers[start:middle], numbers[middle:stop])
            for split, start, middle, stop in self.places
        ]
        return [cuts[i] for i in self.of_values]


def _places(cuts: Sequence[Cut]) -> Iterator[CutPlace]:
    edges = accumulate((len(cut.true) + len(cut.shape) for cut in cuts), initial=0)
    for (start, stop), cut in zip(pairwise(edges), cuts, strict=True):
        yield CutPlace(cut.split, start, start + len(cut.true), stop)


@dataclass(frozen=True, eq=False, slots=True)
class PlanFormulas:
    """The plans for all sizes of a bucket, from a few of them."""

    sample: PaddedCallPlan
    runtime_args: Sequence[Formula]
    statics: Sequence[Formula]
    cuts: CutFormulas
    # The smallest sizes that they were proved for.
    smallest: SizeVector

    @classmethod
    def fitted(
        cls, sampled: Sequence[SizeVector], plans: Sequence[PaddedCallPlan]
    ) -> PlanFormulas | None:
        """Return formulas for these plans at these sizes; None if there are none."""
        first = plans[0]
        if not determine_formulas(sampled) or any(plan.form != first.form for plan in plans):
            return None

        def fitted(values: Callable[[PaddedCallPlan], Sequence[Array]]) -> list[Formula | None]:
            columns = zip(*map(values, plans), strict=True)
            return [Formula.fitted(sampled, column) for column in columns]

        formulas = fitted(lambda plan: [*plan.runtime_args, *_statics(plan)])
        cuts = CutFormulas.fitted(sampled, [plan.computed.cuts for plan in plans])
        complete = [formula for formula in formulas if formula is not None]
        if cuts is None or len(complete) < len(formulas):
            return None
        count = len(first.runtime_args)
        smallest = tuple(map(min, zip(*sampled, strict=True)))
        return cls(first, complete[:count], complete[count:], cuts, smallest)

    def hold(self, sizes: SizeVector) -> bool:
        """Whether they were proved for sizes as small as these."""
        return all(n >= least for n, least in zip(sizes, self.smallest, strict=True))

    def at(self, sizes: SizeVector) -> PaddedCallPlan:
        """Return the plan for these sizes."""
        of_sizes = terms(sizes)
        registers, padded, _ = self.sample.computed
        computed = ComputedValues(registers, padded, self.cuts.at(of_sizes))
        runtime_args = [formula.at(of_sizes) for formula in self.runtime_args]
        outputs = self.sample.outputs
        if self.statics:
            arrays = iter([static(formula.at(of_sizes)) for formula in self.statics])
            outputs = tuple(_with_statics(output, arrays) for output in outputs)
        return PaddedCallPlan(self.sample.program, runtime_args, outputs, computed)


def _statics(plan: PaddedCallPlan) -> list[Array]:
    return [leaf.value for leaf in plan.leaves if isinstance(leaf, Static)]


def _with_statics(value: Value, arrays: Iterator[Static]) -> Value:
    if isinstance(value, list):
        return [_with_statics(one, arrays) for one in value]
    if isinstance(value, (Map, MapRows)):
        return replace(value, values=_with_statics(value.values, arrays))
    return next(arrays) if isinstance(value, Static) else value
