"""The padded programs of a model with buckets, and the calls that share them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from sardonyx.backends.padding.axes import Cut, Different, Unpaddable
from sardonyx.backends.padding.protocols import Padding
from sardonyx.errors import InvalidInput, SardonyxError
from sardonyx.graph.buckets.call_arrays import CallArrays
from sardonyx.graph.buckets.comparing import Comparison
from sardonyx.graph.buckets.derived import Derivation
from sardonyx.graph.buckets.folded import are_regular
from sardonyx.graph.buckets.formulas import SizeVector
from sardonyx.graph.buckets.patience import Patience
from sardonyx.graph.buckets.plans import ComputedValues, PaddedCallPlan, PaddedProgram, PlanFormulas
from sardonyx.graph.buckets.row_pieces import SplitCalls, rows_of, run_in_pieces
from sardonyx.graph.buckets.sampled_traces import MAX_TRACES, SampledTraces, Shown, TraceFor
from sardonyx.graph.buckets.segment_collector import SegmentCollector
from sardonyx.graph.buckets.sizes import Probes, Sizes
from sardonyx.graph.buckets.wide_inputs import WideInput, with_wide_inputs
from sardonyx.graph.programs.compiler import Compiler
from sardonyx.graph.programs.stages import Stage, outputs_of
from sardonyx.graph.values.kinds import Device, digest, leaves
from sardonyx.graph.values.params import Constants, Weights
from sardonyx.logs import Log
from sardonyx.printable import first_line

_LOG = Log("buckets")

# Maximum number of buckets; beyond it the oldest goes, but recorded calls still use it.
MAX_BUCKETS = 256

# A reach down to the smallest sizes.
EVERYWHERE = 2**63
# From this size on products have the forms of those of many rows, whatever the library.
MANY = 5


@dataclass(eq=False, slots=True)
class Bucket:
    """Calls whose arrays have the same shapes after padding."""

    recorder: SegmentCollector
    shown: Shown
    # The decisions of all proofs so far, for any sizes.
    template: Sequence[bool] = ()
    programs: dict[tuple[bool, ...], PaddedProgram] = field(default_factory=dict)
    # The plans for a few sizes, until formulas are fitted to them; None if there can be none.
    sampled: dict[SizeVector, PaddedCallPlan] | None = None
    formulas: PlanFormulas | None = None


class Traced(NamedTuple):
    """A trace of the model for certain sizes."""

    sizes: Mapping[str, int]
    recorder: SegmentCollector
    shown: Shown


@dataclass(eq=False, slots=True)
class Buckets:
    """The buckets of a model, and how calls run in them."""

    sizes: Sizes
    padding: Padding
    compiler: Compiler
    constants: Constants
    trace: TraceFor
    lock: Lock
    rewrites: bool
    buckets: dict[Any, Bucket] = field(default_factory=dict)
    # The last traces: the padded dimensions that they are for, the segments, and the program.
    traced: dict[Any, Traced] = field(default_factory=dict)
    # What recordings are derived from.
    samples: SampledTraces = field(init=False)
    # Whether a proof succeeded for two different sizes.
    is_proved: bool = False
    # The weights of the call that is being planned.
    weights: Weights | None = None
    # The version of the weights that tracing read.
    version: int = -1
    # Whether the values of inputs decide which programs run.
    reads_inputs: bool = False

    def __post_init__(self) -> None:
        backend = self.compiler.backend
        self.samples = SampledTraces(backend, self.constants, self.trace, self.rewrites)

    def run(self, plan: PaddedCallPlan, inputs: Sequence[Any], weights: Weights) -> list[Any]:
        """Return the outputs for these arrays."""
        program, backend = plan.program.shown, self.compiler.backend
        if plan.split is not None:
            return run_in_pieces(self.run, backend, plan, inputs, weights)
        frame = dict(enumerate(inputs))
        for i, spec in enumerate(program.inputs):
            if spec.dtype == object:  # Strings stay on the host, where nothing is padded.
                continue
            register, shape = plan.program.widened.get(i, (i, spec.shape))
            frame[register] = self.padding.pad(inputs[i], shape)
        for register, array in zip(plan.program.runtime_args, plan.runtime_args, strict=True):
            frame[register] = array if backend.takes_numpy else backend.put(array)
        for stage in program.stages:
            if stage.segment is not None and stage.segment.host:
                frame.update(self._run_on_host(stage, plan, inputs, frame, weights))
            else:
                stage.run(frame, self.compiler, weights, inline=False)
        own = dict(enumerate(inputs))
        is_native = any(map(backend.owns, inputs))
        computed = plan.computed
        padded = [frame[register] for register in computed.padded]
        results = self.padding.unpad(padded, computed.cuts, is_native=is_native)
        own.update(zip(computed.registers, results, strict=True))
        return outputs_of(plan.outputs, own, weights)

    def _run_on_host(
        self,
        stage: Stage,
        plan: PaddedCallPlan,
        inputs: Sequence[Any],
        frame: Mapping[int, Any],
        weights: Weights,
    ) -> dict[int, Any]:
        """Run a segment on arrays without padding, and return them and its results."""
        assert stage.segment is not None
        backend = self.compiler.backend
        cuts = dict(zip(plan.computed.padded, plan.computed.cuts, strict=True))
        true = dict(enumerate(inputs))
        for register in stage.segment.inputs:
            if register in cuts:
                padded = frame[register]
                host = backend.fetch(padded) if backend.owns(padded) else padded
                (true[register],) = self.padding.unpad([host], [cuts[register]], is_native=False)
            elif register not in true:  # Another segment on the host computed it.
                true[register] = frame[register]
        stage.run(true, self.compiler, weights, inline=False)
        return {register: true[register] for register in stage.segment.results}

    def plan(self, call: CallArrays, weights: Weights) -> tuple[PaddedCallPlan | None, set[int]]:
        """Return how a call runs, and the numbers of the arrays whose values decided it.

        The plan is None if the graph takes another form for exactly these sizes: then it is
        compiled for them. Call this from one thread at a time.
        """
        self.begin(weights)
        planned = None if self.reads_inputs else self._planned_by_formulas(call)
        if planned is not None:
            return planned, set()
        true, _ = self._traced(call, {})
        bucket = self._bucket(call, true.registers.inputs_read)
        read = {*true.registers.inputs_read, *bucket.recorder.registers.inputs_read}
        self.reads_inputs |= bool(read)
        try:
            comparison = self._compared(bucket, call, true, {})
        except Different as reason:
            self._prove_at_all(call, reason)
            sizes = partial(sizes_text, call.sizes)
            _LOG.info("Calls of %s have their own program: %s.", sizes, partial(first_line, reason))
            return None, read
        plan = self._plan(bucket, comparison, call)
        if not read:
            self._learn(bucket, comparison, call, plan)
        return plan, read

    def begin(self, weights: Weights) -> None:
        """Use these weights from now on; forget all that tracing read in others."""
        self.weights = weights
        if self.version != weights.static_version:
            self.buckets.clear()
            self.traced.clear()
            self.version = weights.static_version

    def bucket_of(self, names: Sequence[str], sizes: SizeVector) -> SizeVector:
        """Return what the sizes with these names are padded to."""
        return self.sizes.bucket_of(names, sizes)

    def has_program(self, call: CallArrays) -> bool:
        """Whether some call of the same bucket has a compiled program."""
        bucket = tuple(call.specs(call.bucket)), tuple(call.bucket)
        alike = [each for key, each in list(self.buckets.items()) if key[:2] == bucket]
        return any(
            program.is_compiled for each in alike for program in list(each.programs.values())
        )

    def formulas(self, call: CallArrays) -> PlanFormulas | None:
        """Return the formulas of the bucket of such a call, if it has any."""
        bucket = self.buckets.get((tuple(call.specs(call.bucket)), tuple(call.bucket), ()))
        return None if bucket is None else bucket.formulas

    def split(self, call: CallArrays, size: int, weights: Weights) -> SplitCalls | None:
        """Return how calls up to the bucket's size run in pieces; None if their rows are not apart.

        The call has the size of a piece; nothing is compiled.
        """
        (name,), (most,) = call.bucket.keys(), call.bucket.values()
        with self.lock:
            self.begin(weights)
            self._planned_by_formulas(call)
            bucket = self._bucket(call, {})
            if bucket.formulas is None or bucket.formulas.sample.program.draws:
                return None
            true, _ = self._traced(call, {name: size})
            layouts, recorder = call.layouts({name: size}), bucket.recorder
            traces = true.step_traces, recorder.step_traces
            prover = self.padding.prover(bucket.template, *traces, watches_rows=True)
            try:
                inputs = dict(enumerate(layouts))
                rows = rows_of(Comparison.of(true, recorder, inputs, prover), layouts)
            except (Unpaddable, Different):
                return None
            return rows and SplitCalls(size, most, bucket.formulas, rows)

    def derivation(
        self,
        call: CallArrays,
        inner: SizeVector,
        weights: Weights,
        patience: Patience | None = None,
        *,
        least: int = 2,
    ) -> Derivation | None:
        """Return what derives recordings up to the call's bucket; None if nothing does.

        Formulas are checked for inner sizes, too. They hold from the `least` size on, if that is a
        batch's, and otherwise from 2 on: a length of one is rare, and often special. Where others
        as small are special, too, the formulas hold for larger ones.
        """
        with self.lock:
            self.begin(weights)
            for reach in dict.fromkeys((EVERYWHERE, self.sizes.reach)):
                probes = replace(self.sizes, reach=reach).probes(call.bucket, ())
                sizes = [tuple(each.values()) for each in (call.bucket, *probes.sizes)]
                if not probes.are_enough:
                    return None
                batches = [_with_batches_of(least, each, call) for each in sizes]
                many = [tuple([max(size, MANY) for size in each]) for each in sizes]
                for corners in dict.fromkeys(map(tuple, (batches, sizes, many))):
                    with suppress(SardonyxError):  # The model does not run for all of them.
                        found = self.samples.derivation(call, corners, inner, weights, patience)
                        if found is not None:
                            return found
        return None

    def _recorder(self, call: CallArrays) -> SegmentCollector:
        assert self.weights is not None
        return SegmentCollector(self.compiler.backend, self.weights, call.padded, self.rewrites)

    def _planned_by_formulas(self, call: CallArrays) -> PaddedCallPlan | None:
        """Return the plan of a call that need not be traced; None if its bucket has no formulas."""
        try:
            bucket = self._bucket(call, {})
        except CannotPad:  # Perhaps something is wrong with the call, whose own trace will say it.
            return None
        if bucket.recorder.registers.inputs_read:
            self.reads_inputs = True
            self.buckets.clear()
        elif bucket.sampled is not None:
            plans = bucket.sampled
            bucket.formulas = PlanFormulas.fitted(list(plans), list(plans.values()))
            bucket.sampled = plans if bucket.formulas is None else None
        if bucket.formulas is None or self.reads_inputs:
            return None
        return bucket.formulas.at(tuple(call.sizes[name] for name in call.bucket))

    def _learn(
        self, bucket: Bucket, comparison: Comparison, call: CallArrays, plan: PaddedCallPlan
    ) -> None:
        """Fit formulas to the plans of the bucket, this one included."""
        if bucket.sampled is None:
            return
        if tuple(comparison.prover.decisions) == bucket.template:
            plans = {**bucket.sampled, tuple(call.sizes[name] for name in call.bucket): plan}
            bucket.formulas = PlanFormulas.fitted(list(plans), list(plans.values()))
        bucket.sampled = None

    def _bucket(self, call: CallArrays, inputs_read: Mapping[int, Any]) -> Bucket:
        read = sorted((i, digest(value)) for i, value in inputs_read.items())
        key = tuple(call.specs(call.bucket)), tuple(call.bucket), tuple(read)
        if key not in self.buckets:
            try:
                bucket = Bucket(*self._traced(call, call.bucket))
            except SardonyxError as error:
                raise _refusal(call, error, BucketTooLarge) from error
            self._probe(bucket, call)
            self.buckets[key] = bucket
            _LOG.info("New bucket: calls are padded to %s.", partial(sizes_text, call.bucket))
            if len(self.buckets) > MAX_BUCKETS:
                del self.buckets[next(iter(self.buckets))]
        return self.buckets[key]

    def _probe(self, bucket: Bucket, call: CallArrays) -> None:
        """Trace for other sizes, so that the first program, and formulas, serve all of them.

        Formulas that hold from the smallest sizes on need no other traces for other buckets. If
        they cannot be proved, those for the sizes that the bucket serves suffice, or for its own.
        """
        traced = [each.sizes for each in self.traced.values() if self._is_traced(call, each.sizes)]
        reaches = (EVERYWHERE, self.sizes.reach) if self.sizes.reach > 1 else ()
        for reach in reaches:
            sizes = replace(self.sizes, reach=reach)
            with suppress(CannotPad):
                self._sample(bucket, call, sizes.probes(call.bucket, traced))
            plans = bucket.sampled
            if plans and PlanFormulas.fitted(list(plans), list(plans.values())) is not None:
                return
            bucket.sampled = None
        sizes = replace(self.sizes, reach=1)
        self._sample(bucket, call, sizes.probes(call.bucket, traced))

    def _sample(self, bucket: Bucket, call: CallArrays, probes: Probes) -> None:
        """Plan the calls of these sizes, if formulas for them hold for the sizes between them."""
        traced = [(call.bucket, bucket.recorder)]
        comparisons: dict[SizeVector, Comparison] = {}
        for sizes in probes.sizes:
            try:
                true, _ = self._traced(call, sizes)
            except SardonyxError:
                continue  # The model does not run for these sizes.
            with suppress(Different):  # Perhaps for these sizes only.
                comparisons[tuple(sizes.values())] = self._compared(bucket, call, true, sizes)
                traced.append((sizes, true))
        is_complete = probes.are_enough and len(traced) > len(probes.sizes)
        sampled = [tuple(sizes.values()) for sizes, _ in traced]
        if not is_complete or not are_regular(sampled, [true.folded for _, true in traced]):
            return
        for sizes, true in traced:
            at = tuple(sizes.values())
            earlier = comparisons.get(at)
            if earlier is None or tuple(earlier.prover.decisions) != bucket.template:
                comparisons[at] = self._compared(bucket, call, true, sizes)
        plans = {at: self._plan(bucket, each, call) for at, each in comparisons.items()}
        bucket.sampled = plans

    def _prove_at_all(self, call: CallArrays, reason: Different) -> None:
        """Raise `InvalidInput` if the graph takes another form for every size, not for a few."""
        if self.is_proved:
            return
        wide = replace(call, bucket={name: 2 * size for name, size in call.bucket.items()})
        sizes = {**call.sizes, **{name: size - 1 for name, size in wide.bucket.items()}}
        try:
            bucket = Bucket(*self._traced(wide, wide.bucket))
            self._compared(bucket, wide, self._traced(wide, sizes)[0], sizes)
        except (Different, SardonyxError):
            raise _refusal(call, reason) from None

    def _compared(
        self, bucket: Bucket, call: CallArrays, true: SegmentCollector, sizes: Mapping[str, int]
    ) -> Comparison:
        inputs = dict(enumerate(call.layouts(sizes)))
        prover = self.padding.prover(bucket.template, true.step_traces, bucket.recorder.step_traces)
        try:
            comparison = Comparison.of(true, bucket.recorder, inputs, prover)
        except Unpaddable as reason:
            raise _refusal(call, reason) from None
        own = {**call.sizes, **sizes}
        self.is_proved |= any(own[name] != size for name, size in call.bucket.items())
        bucket.template = tuple(prover.decisions)
        return comparison

    def _plan(self, bucket: Bucket, comparison: Comparison, call: CallArrays) -> PaddedCallPlan:
        key = tuple(comparison.prover.decisions)
        runtime_args = [np.asarray(value) for value in comparison.prover.runtime_args]
        if key not in bucket.programs:
            bucket.programs[key] = self._program(bucket, comparison, runtime_args)
        outputs = comparison.true.outputs
        arrays = [leaf for output in outputs for leaf in leaves(output)]
        registers = {leaf.register for leaf in arrays if isinstance(leaf, Device)}
        registers |= comparison.read_on_host
        counterparts = comparison.counterparts
        known = [r for r in sorted(registers) if r >= len(call.arrays) and r in counterparts]
        padded = [counterparts[register][0] for register in known]
        cuts = [Cut.of(counterparts[register][1]) for register in known]
        computed = ComputedValues(known, padded, cuts)
        return PaddedCallPlan(bucket.programs[key], runtime_args, outputs, computed)

    def _program(
        self, bucket: Bucket, comparison: Comparison, runtime_args: Sequence[Any]
    ) -> PaddedProgram:
        recorder, backend = bucket.recorder, self.compiler.backend
        registers = [recorder.registers.new(backend.spec(value)) for value in runtime_args]
        segments = comparison.segments(registers)
        widened: dict[int, WideInput] = {}
        if self.sizes.grow:
            segments, widened = with_wide_inputs(segments, comparison.inputs, recorder)
        stages = recorder.stages(segments, self.constants)
        inputs = [stage.segment.inputs for stage in stages if stage.segment]
        draws = any(recorder.registers.key in each for each in inputs)
        return PaddedProgram(bucket.shown(stages), registers, draws, widened)

    def _traced(self, call: CallArrays, sizes: Mapping[str, int]) -> tuple[SegmentCollector, Shown]:
        """Trace the model for a call's inputs, with these sizes in place of the call's."""
        if self._is_traced(call, sizes):
            _, recorder, shown = self.traced[_trace_key(call, sizes)]
            return recorder, shown
        recorder = self._recorder(call)
        shown = self.trace(recorder, call.inputs(sizes))
        recorder.registers.frame.clear()  # It holds arrays of the call.
        if sizes and not recorder.registers.inputs_read:
            self.traced[_trace_key(call, sizes)] = Traced(sizes, recorder, shown)
            if len(self.traced) > MAX_TRACES:
                del self.traced[next(iter(self.traced))]
        return recorder, shown

    def _is_traced(self, call: CallArrays, sizes: Mapping[str, int]) -> bool:
        return bool(sizes) and _trace_key(call, sizes) in self.traced


def _trace_key(call: CallArrays, sizes: Mapping[str, int]) -> Any:
    return tuple(sizes), tuple(call.specs(sizes))


def sizes_text(sizes: Mapping[str, int]) -> str:
    """Return sizes by name as text."""
    return ", ".join(f"{name} = {size}" for name, size in sizes.items()) or "other sizes"


class CannotPad(InvalidInput):
    """Padding would change the results of a call, or there is no proof that it does not."""

    # What prevents it, without the sizes of the call.
    reason = ""


class BucketTooLarge(CannotPad):
    """The model does not run for the sizes of the bucket, as beyond its last position."""


def _refusal(call: CallArrays, reason: Exception, kind: type[CannotPad] = CannotPad) -> CannotPad:
    sizes = ", ".join(
        f"{name} from {call.sizes[name]} to {size}" for name, size in call.bucket.items()
    )
    why = str(reason).rstrip(".")
    refusal = kind(
        f"A call cannot be padded to its bucket ({sizes}) and stay exact: {why}. Leave this "
        "dimension out of the buckets."
    )
    refusal.reason = why
    return refusal


def _with_batches_of(least: int, sizes: SizeVector, call: CallArrays) -> SizeVector:
    """Return the sizes with this one in place of 2, in dimensions that come first everywhere."""
    return tuple(
        [
            least if size == 2 and call.is_batch(name) else size
            for name, size in zip(call.bucket, sizes, strict=True)
        ]
    )
