"""The steps of calls whose sizes change, written out once as a function of these sizes.

Steps that run one by one cost some 10 us each beside what they compute, and those of a new size
have to be made. So the steps of a few sizes are noted as calls of NumPy, and merged: numbers that
differ become variables of one Python function, which serves all sizes between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.executable import CallPlans, Replay, Spec, WrittenOut
from sardonyx.backends.numpy import HOST
from sardonyx.backends.written_out.noted_steps import NotedSteps, noted_steps
from sardonyx.backends.written_out.program import written
from sardonyx.graph.buckets.formulas import SizeVector
from sardonyx.graph.buckets.merged_calls import MergedCalls
from sardonyx.graph.buckets.merging import Irregular, Merger, Numbers, Part
from sardonyx.graph.buckets.sized_binding import SizedBinding
from sardonyx.graph.calls.dimensions import Take
from sardonyx.graph.programs.background import give_way
from sardonyx.graph.programs.interpretation import can_be_interpreted
from sardonyx.graph.programs.stages import Stage
from sardonyx.graph.programs.weight_preparation import Binding
from sardonyx.graph.programs.written_segment import kernel_of
from sardonyx.graph.tracing.steps import Frame
from sardonyx.graph.values.params import Weights


class Registers(NamedTuple):
    """The registers that the function reads and writes, and those of the model's outputs."""

    inputs: tuple[int, ...]
    results: tuple[int, ...]
    outputs: tuple[int, ...]


class Decided(NamedTuple):
    """What certain sizes decide: the function's variables, constants, and the specs of results."""

    variables: Sequence[Any]
    constants: Sequence[Any]
    expected: Sequence[Spec]


@dataclass(frozen=True, eq=False, slots=True)
class WrittenSizes:
    """A program as a function of NumPy's arrays and of sizes."""

    backend: Backend
    written: WrittenOut
    registers: Registers
    # The weights and constants that are the same for all sizes.
    binding: Binding
    # What the sizes decide: the function's variables, constants, and the distinct specs of results.
    numbers: Callable[[SizeVector], Numbers]
    variables: Sequence[Part]
    constants: Sequence[Part]
    expected: Part
    # Which of these specs each result has.
    of_results: Take
    # What was decided for sizes before they came.
    _decided: dict[SizeVector, Decided] = field(default_factory=dict)
    # A version of the weights, and what was computed of them ahead of all calls.
    _ahead: list[tuple[int, Sequence[Any]]] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        sampled: Sequence[SizeVector],
        stages: Sequence[Sequence[Stage]],
        weights: Weights,
        *,
        joins: bool,
    ) -> WrittenSizes | None:
        """Return the function for the stages of calls of these sizes; None if there is none.

        It joins kernels of calls whose sizes come again.
        """
        xp = weights.backend.steps_on_numpy()
        alone = [each[0] for each in stages if len(each) == 1]
        if xp is None or len(alone) < len(stages) or not all(map(_can_be_written, alone)):
            return None
        # Where calls run on kernels, this is the faster form of them, and they wait less for it.
        pause = give_way if weights.backend.steps_without_kernels else _nothing
        # Weights are packed once for all sizes.
        merger = Merger(sampled, keeps_looked_up=True)
        binding = SizedBinding.of(merger, [stage.binding for stage in alone], weights)
        if binding is None:
            return None
        noted = []
        for stage in alone:
            replay, arguments = binding.replay(stage), binding.arguments(stage)
            steps = noted_steps(replay, xp, arguments, kernel_of, pause, are_of_sizes=True)
            if steps is None:
                return None
            noted.append(steps)
        try:
            library = xp if joins else None
            return _merged(merger, alone, noted, binding, weights.backend, library)
        except Irregular:
            return None

    @property
    def seconds(self) -> float:
        """How long a call of the largest sizes takes, about, beside products and other kernels."""
        return self.written.price * 1e-6

    def function(self, sizes: SizeVector, weights: Weights) -> SizedFunction | None:
        """Return the function for these sizes, which lie between those of the samples.

        None if a kernel has no form for just these sizes, or the weights cannot be prepared.
        """
        try:
            decided = self._decided.get(sizes) or self._at(sizes)
            ahead = self._values_ahead(weights)
        except Exception:  # The stages will say what is wrong, if anything is.
            return None
        arguments = *ahead, *decided.variables, CallPlans(sizes)
        run = partial(self.written.run, self.backend.watches, _nothing, *arguments)
        return SizedFunction(run, decided.constants, decided.expected)

    def decide_ahead(self, sizes: SizeVector) -> None:
        """Decide what depends on sizes before a call waits for it."""
        with suppress(Exception):  # As above.
            self._decided[sizes] = self._at(sizes)

    def outputs_of(self, inputs: Sequence[Any], results: Sequence[Any]) -> Sequence[Any]:
        """Return the model's outputs; some of them may be inputs."""
        registers = self.registers
        if registers.outputs == registers.results:
            return results
        frame: Frame = dict(enumerate(inputs))
        frame.update(zip(registers.results, results, strict=True))
        return [frame[register] for register in registers.outputs]

    def _at(self, sizes: SizeVector) -> Decided:
        numbers = self.numbers(sizes)
        variables = [part.at(numbers) for part in self.variables]
        constants = [part.at(numbers) for part in self.constants]
        expected: Any = self.expected.at(numbers)
        return Decided(variables, constants, self.of_results(expected))

    def _values_ahead(self, weights: Weights) -> Sequence[Any]:
        for version, values in self._ahead:
            if version == weights.version:
                return values
        arrays = self.binding.arrays(weights)
        with HOST.scope():
            values = self.written.ahead(*map(np.asarray, arrays))
        # Replaced as a whole, as other threads read it.
        self._ahead[:] = [(weights.version, values)]
        return values


@dataclass(frozen=True, eq=False, slots=True)
class SizedFunction:
    """Such a function for calls of the same sizes and the same weights."""

    run: Replay
    constants: Sequence[Any]
    expected: Sequence[Spec]

    def results(self, inputs: Sequence[Any]) -> Sequence[Any] | None:
        """Return the results; None if the steps have to run one by one."""
        results = self.run(*self.constants, *inputs)
        if results is None:
            return None
        for result, (shape, dtype) in zip(results, self.expected, strict=True):
            if result.shape != shape or result.dtype != dtype:
                return None
        return results


def _merged(
    merger: Merger,
    stages: Sequence[Stage],
    noted: Sequence[NotedSteps],
    binding: SizedBinding,
    backend: Backend,
    library: Backend | None,
) -> WrittenSizes | None:
    """Return the function; raise `Irregular` if the notes differ in more than numbers."""
    stage, first = stages[0], noted[0]
    if any((n.arguments, n.results) != (first.arguments, first.results) for n in noted):
        return None
    merged = MergedCalls(merger)
    calls = merged.merged([each.calls for each in noted])
    # Many results have the same one, as the caches of a decoder do.
    columns = list(zip(*[each.results for each in stages], strict=True))
    distinct = {column: i for i, column in enumerate(dict.fromkeys(columns))}
    expected = merger.merged([[column[i] for column in distinct] for i in range(len(stages))])
    numbers = merger.numbers()
    if numbers is None or stage.segment is None:
        return None
    segment = stage.segment
    passed = len(binding.constants) + len(segment.inputs)
    shapes = [spec.shape for spec in binding.specs]
    fixed = dict(zip(first.arguments[passed:], shapes, strict=True))
    # And the plans of joined kernels.
    variables = len(merged.variables) + 1
    inputs = first.arguments[:passed]
    return WrittenSizes(
        backend,
        written(calls, inputs, fixed, first.results, variables, library=library),
        Registers(segment.inputs, segment.results, stage.registers or ()),
        binding.shared,
        numbers,
        merged.variables,
        tuple(binding.constants.values()),
        expected,
        Take([distinct[column] for column in columns]),
    )


def _can_be_written(stage: Stage) -> bool:
    segment = stage.segment
    return stage.registers is not None and segment is not None and can_be_interpreted(segment)


def _nothing(*_: Any) -> None:
    """Run in place of the function where it cannot."""
