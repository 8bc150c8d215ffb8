"""Calls of many rows in pieces: a program for a few rows runs several times.

This is exact where no row depends on another one, nor on how many there are. One program then
serves all numbers of rows without padding, and nothing larger need ever be compiled. The last piece
may begin before the end of the piece in front of it, so that it has as many rows as its program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.padding.axes import Axis, Layout
from sardonyx.graph.buckets.comparing import Comparison
from sardonyx.graph.buckets.plans import (
    PaddedCallPlan,
    Piece,
    PlanFormulas,
    RowPieces,
    Rows,
)
from sardonyx.graph.programs.stages import outputs_of
from sardonyx.graph.values.kinds import Device, Static, Weight
from sardonyx.graph.values.params import Weights
from sardonyx.stopping import stop_if_asked

# Runs a plan, and returns its outputs.
Run = Callable[[PaddedCallPlan, Sequence[Any], Weights], Sequence[Any]]


class SplitPlan(NamedTuple):
    """How a call runs in pieces; which part of the work is in vain, and for how many rows."""

    plan: PaddedCallPlan
    waste: float
    last: int


@dataclass(frozen=True, eq=False, slots=True)
class SplitCalls:
    """Calls that may run in pieces of a certain size, up to a larger one."""

    size: int
    most: int
    # The results of a call, for any size up to the largest one.
    formulas: PlanFormulas
    rows: Rows

    def plan(self, count: int, programs: Mapping[int, PlanFormulas]) -> SplitPlan | None:
        """Return how a call with so many rows runs; None if it does not run in pieces.

        There may be programs for fewer rows than a piece, too, of which the last rows use one.
        """
        is_served = self.size < count <= self.most and self.formulas.hold((count,))
        if not is_served or self.size not in programs:
            return None
        full = programs[self.size].at((self.size,))
        whole, rest = divmod(count, self.size)
        pieces = [Piece(full, self.size, range(0, whole * self.size, self.size))]
        size = rest
        if rest:
            size = min(n for n in programs if rest <= n <= self.size)
            start = count - size
            pieces.append(Piece(programs[size].at((size,)), size, range(start, start + 1)))
        split = RowPieces(self.rows, pieces)
        plan = replace(self.formulas.at((count,)), program=full.program, split=split)
        # There is no program for one row, as a size of one is of another kind.
        return SplitPlan(plan, (size - rest) / (whole * self.size + size), max(rest, 2))


def rows_of(comparison: Comparison, inputs: Sequence[Layout]) -> Rows | None:
    """Return where the arrays of a program have their rows; None if these cannot be kept apart.

    The program was compared with one for fewer rows, by a prover that watches them.
    """
    true = comparison.true
    outputs = true.outputs
    has_host = comparison.read_on_host or any(segment.on_host for segment in true.segments)
    is_plain = all(isinstance(output, (Static, Device)) for output in outputs)
    if has_host or not is_plain or not comparison.prover.keeps_rows:
        return None
    layouts = [
        layout
        for output in outputs
        if (layout := _layout_of(output, comparison, len(inputs))) is not None
    ]
    axes = [[axis for axis in layout if axis.is_padded] for layout in (*inputs, *layouts)]
    sizes = {(axis.true, axis.padded) for layout in inputs for axis in layout if axis.is_padded}
    are_kept = all(len(each) <= 1 and all(map(_begins_with_rows, each)) for each in axes)
    if len(sizes) != 1 or len(layouts) < len(outputs) or not are_kept:
        return None
    return Rows(list(map(_row_axis, inputs)), list(map(_row_axis, layouts)))


def _layout_of(output: Any, comparison: Comparison, inputs: int) -> Layout | None:
    """The layout of an output, if it is known; of one that is there without a program, no axis."""
    if isinstance(output, (Static, Weight)) or output.register < inputs:
        return ()
    _, layout = comparison.counterparts.get(output.register, (None, None))
    return layout


def _begins_with_rows(axis: Axis) -> bool:
    """Whether the elements of a row follow one another."""
    return [part.is_padded for part in axis.parts] == [True]


def _row_axis(layout: Layout) -> int | None:
    return next((i for i, axis in enumerate(layout) if axis.is_padded), None)


def run_in_pieces(
    run: Run, backend: Backend, plan: PaddedCallPlan, inputs: Sequence[Any], weights: Weights
) -> list[Any]:
    """Return the outputs of a call that runs in pieces."""
    assert plan.split is not None
    rows, pieces = plan.split
    is_native = any(map(backend.owns, inputs))
    arrays = [backend.fetch(each) if backend.owns(each) else each for each in inputs]
    registers, _, cuts = plan.computed
    shapes = {register: cut.shape for register, cut in zip(registers, cuts, strict=True)}
    own: dict[int, Any] = {}
    for piece, size, starts in pieces:
        for start in starts:
            stop_if_asked()
            part = [
                each if axis is None else _rows(each, axis, start, size)
                for each, axis in zip(arrays, rows.inputs, strict=True)
            ]
            results = run(piece, part, weights)
            for output, axis, result in zip(plan.outputs, rows.outputs, results, strict=True):
                if not isinstance(output, Device) or output.register not in shapes:
                    continue  # It is an input, a weight or a constant.
                array, register = np.asarray(result), output.register
                if axis is None:
                    own.setdefault(register, array)
                    continue
                if register not in own:
                    own[register] = np.empty(shapes[register], array.dtype)
                whole = own[register]
                _rows(whole, axis, start, size, array.shape[axis] // size)[...] = array
    if is_native:
        own = {register: backend.put(array) for register, array in own.items()}
    return outputs_of(plan.outputs, {**dict(enumerate(inputs)), **own}, weights)


def _rows(array: Any, axis: int, start: int, size: int, length: int = 1) -> Any:
    """The elements of some rows, each of which has `length` positions of the axis."""
    place = slice(start * length, (start + size) * length)
    return array[(*(slice(None),) * axis, place)]
