"""The programs that a model with buckets has compiled, and the calls that share them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from sardonyx.backends.padding.axes import Layout
from sardonyx.backends.padding.protocols import Padding
from sardonyx.errors import InvalidInput, SardonyxError
from sardonyx.graph.buckets.comparing import Comparison, OfAnotherForm, Unfit
from sardonyx.graph.buckets.given import Given
from sardonyx.graph.buckets.pieces import PieceRecorder
from sardonyx.graph.buckets.sizes import Sizes
from sardonyx.graph.programs.compiler import Compiler
from sardonyx.graph.programs.program import Program
from sardonyx.graph.programs.stages import Stage, outputs_of
from sardonyx.graph.values.kinds import Device, Value, digest, leaves
from sardonyx.graph.values.params import Constants, Weights

# The oldest bucket is dropped beyond this number; recorded calls go on to use it.
MAX_BUCKETS = 256


@dataclass(eq=False, slots=True)
class PaddedProgram:
    """The program for all calls of a bucket that differ in their runtime arguments only."""

    shown: Program
    # The registers of the runtime arguments.
    runtime_args: Sequence[int]
    draws: bool


@dataclass(eq=False, slots=True)
class Bucket:
    """Calls whose arrays have the same shapes after padding."""

    recorder: PieceRecorder
    # Shows the program when it runs in these stages.
    shown: Callable[[Sequence[Stage]], Program]
    # The decisions of all proofs so far: what differs for any sizes.
    template: Sequence[bool] = ()
    traces: dict[Any, Any] = field(default_factory=dict)
    programs: dict[tuple[bool, ...], PaddedProgram] = field(default_factory=dict)


class PaddedValue(NamedTuple):
    """A computed value in an output: its register, that of the padded array, and its layout."""

    register: int
    padded: int
    layout: Layout


@dataclass(frozen=True, eq=False, slots=True)
class PaddedCallPlan:
    """How calls with certain sizes run: a bucket's program, its runtime arguments, its outputs."""

    program: PaddedProgram
    runtime_args: Sequence[Any]
    outputs: tuple[Value, ...]
    computed: Sequence[PaddedValue]


@dataclass(eq=False, slots=True)
class Buckets:
    """A model's buckets, and the programs for them."""

    sizes: Sizes
    padding: Padding
    compiler: Compiler
    constants: Constants
    # Traces the model for inputs like these.
    trace: Callable[[PieceRecorder, Sequence[Any]], Callable[[Sequence[Stage]], Program]]
    lock: Lock
    known: dict[Any, Bucket] = field(default_factory=dict)
    # Whether there was a proof for any two different sizes.
    is_proved: bool = False
    # The weights of the call that is being planned.
    weights: Weights | None = None
    # The version of the weights that tracing read.
    version: int = -1

    def run(self, plan: PaddedCallPlan, inputs: Sequence[Any], weights: Weights) -> list[Any]:
        """The outputs for these arrays."""
        program = plan.program.shown
        frame = dict(enumerate(inputs))
        for i, spec in enumerate(program.inputs):
            frame[i] = self.padding.pad(inputs[i], spec.shape)
        frame.update(zip(plan.program.runtime_args, plan.runtime_args, strict=True))
        for stage in program.stages:
            stage.run(frame, self.compiler, weights, inline=False)
        own = dict(enumerate(inputs))
        for register, padded, layout in plan.computed:
            own[register] = self.padding.unpad(frame[padded], layout)
        return outputs_of(plan.outputs, own, weights)

    def plan(self, given: Given, weights: Weights) -> tuple[PaddedCallPlan | None, set[int]]:
        """How a call runs, and the arrays whose values decided it.

        None stands for a program of its own, if the graph has another form for exactly these sizes.
        One thread at a time may call this.
        """
        self.weights = weights
        if self.version != weights.static_version:
            self.known.clear()
            self.version = weights.static_version
        true, _ = self._traced(given, {})
        bucket = self._bucket(given, true)
        read = {*true.registers.inputs_read, *bucket.recorder.registers.inputs_read}
        try:
            found = self._compared(bucket, given, true, {})
        except OfAnotherForm as reason:
            self._prove_at_all(given, reason)
            return None, read
        return self._plan(bucket, found, given), read

    def _bucket(self, given: Given, true: PieceRecorder) -> Bucket:
        read = sorted((i, digest(value)) for i, value in true.registers.inputs_read.items())
        key = tuple(given.specs(given.changed)), tuple(given.changed), tuple(read)
        if key not in self.known:
            try:
                bucket = Bucket(*self._traced(given, given.changed))
            except SardonyxError as error:
                raise _refusal(given, error) from error
            self._probe(bucket, given)
            self.known[key] = bucket
            if len(self.known) > MAX_BUCKETS:
                del self.known[next(iter(self.known))]
        return self.known[key]

    def _probe(self, bucket: Bucket, given: Given) -> None:
        """Collect what differs between sizes, so that the first program serves all of them."""
        for sizes in self.sizes.probes(given.changed):
            try:
                true, _ = self._traced(given, sizes)
            except SardonyxError:
                continue  # The model does not run for these sizes.
            with suppress(OfAnotherForm):  # It may be so for these sizes only.
                self._compared(bucket, given, true, sizes)

    def _prove_at_all(self, given: Given, reason: OfAnotherForm) -> None:
        """Raise `InvalidInput` if the graph has another form for every size, not for a few."""
        if self.is_proved:
            return
        wide = replace(given, changed={name: 2 * size for name, size in given.changed.items()})
        sizes = {**given.sizes, **{name: size - 1 for name, size in wide.changed.items()}}
        try:
            bucket = Bucket(*self._traced(wide, wide.changed))
            self._compared(bucket, wide, self._traced(wide, sizes)[0], sizes)
        except (OfAnotherForm, SardonyxError):
            raise _refusal(given, reason) from None

    def _compared(
        self, bucket: Bucket, given: Given, true: PieceRecorder, sizes: Mapping[str, int]
    ) -> Comparison:
        inputs = dict(enumerate(given.layouts(sizes)))
        prover = self.padding.prover(bucket.template, bucket.traces)
        try:
            found = Comparison.of(true, bucket.recorder, inputs, prover)
        except Unfit as reason:
            raise _refusal(given, reason) from None
        own = {**given.sizes, **sizes}
        self.is_proved |= any(own[name] != size for name, size in given.changed.items())
        bucket.template = tuple(prover.decisions)
        return found

    def _plan(self, bucket: Bucket, found: Comparison, given: Given) -> PaddedCallPlan:
        key = tuple(found.prover.decisions)
        put = self.compiler.backend.put
        runtime_args = [put(np.asarray(value)) for value in found.prover.runtime_args]
        if key not in bucket.programs:
            bucket.programs[key] = self._program(bucket, found, runtime_args)
        outputs = found.true.outputs
        held = [leaf for output in outputs for leaf in leaves(output)]
        registers = {leaf.register for leaf in held if isinstance(leaf, Device)}
        computed = [
            PaddedValue(register, *found.counterparts[register])
            for register in sorted(registers)
            if register >= len(given.arrays) and register in found.counterparts
        ]
        return PaddedCallPlan(bucket.programs[key], runtime_args, outputs, computed)

    def _program(
        self, bucket: Bucket, found: Comparison, runtime_args: Sequence[Any]
    ) -> PaddedProgram:
        recorder, backend = bucket.recorder, self.compiler.backend
        registers = [recorder.registers.new(backend.spec(value)) for value in runtime_args]
        stages = recorder.stages(found.pieces(registers), self.constants)
        inputs = [stage.segment.inputs for stage in stages if stage.segment]
        draws = any(recorder.registers.key in each for each in inputs)
        return PaddedProgram(bucket.shown(stages), registers, draws)

    def _traced(self, given: Given, sizes: Mapping[str, int]) -> tuple[PieceRecorder, Any]:
        """The model for a call's inputs, with these sizes in place of their own."""
        assert self.weights is not None
        recorder = PieceRecorder(self.compiler.backend, self.weights, given.padded)
        program = self.trace(recorder, given.inputs(sizes))
        # Nothing may hold the arrays of the call that was traced.
        recorder.registers.frame.clear()
        return recorder, program


def _refusal(given: Given, reason: Exception) -> InvalidInput:
    sizes = ", ".join(
        f"{name} from {given.sizes[name]} to {size}" for name, size in given.changed.items()
    )
    return InvalidInput(
        f"A call cannot be padded to its bucket ({sizes}) and stay exact: "
        f"{str(reason).rstrip('.')}. Leave this dimension out of the buckets."
    )
