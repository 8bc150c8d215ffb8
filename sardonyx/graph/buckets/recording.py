"""The recordings for calls whose arrays are padded."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from sardonyx.graph.buckets.call_arrays import CallArrays
from sardonyx.graph.buckets.derived import Derivation
from sardonyx.graph.buckets.families import BucketKey, CallSizes, Family, SizePattern, reaches
from sardonyx.graph.buckets.formulas import SizeVector
from sardonyx.graph.buckets.patience import Patience
from sardonyx.graph.buckets.plans import PaddedCallPlan, PlanFormulas
from sardonyx.graph.buckets.programs import Buckets
from sardonyx.graph.buckets.relatives import Relatives
from sardonyx.graph.calls.dimensions import Shapes
from sardonyx.graph.ir import ValueInfo
from sardonyx.graph.programs.program import Program
from sardonyx.graph.programs.replay import NewKey, Recording
from sardonyx.graph.values.kinds import digest
from sardonyx.graph.values.params import Weights
from sardonyx.logs import Log, postponed

_LOG = Log("buckets")
# Recordings are derived for sizes up to so many times those of the calls, if the model runs there.
AHEAD = (1.5, 1)
# Maximum number of plans per signature.
MAX_PLANS = 64


class PaddedCalls:
    """The recordings of padded calls, whose buckets someone has chosen."""

    def __init__(self, buckets: Buckets, infos: Sequence[ValueInfo]) -> None:
        self._buckets = buckets
        self._infos = infos
        self._families: dict[Any, Family] = {}
        # The version of the weights that the formulas were fitted for.
        self._version = -1

    def recording(
        self,
        plain: Recording,
        relatives: Relatives | None,
        values: Sequence[Any],
        weights: Weights,
        *,
        learns: bool = True,
    ) -> Recording:
        """Return the recording for calls with inputs like these: `plain` if nothing is padded.

        Unless it `learns`, calls of other sizes do not use the formulas of the bucket yet.
        """
        buckets = self._buckets
        call = CallArrays.of(values, self._infos)
        call = replace(call, bucket=buckets.sizes.padded(call.sizes))
        if plain.inline or not call.bucket:
            return plain
        shapes = [tuple(array.shape) for array in call.arrays]
        if self._version != weights.static_version:
            self._families.clear()
            self._version = weights.static_version
        family = self._families.get(relatives)
        if family is None or relatives is None:
            pattern = SizePattern.of(call.infos, shapes, list(call.bucket))
            reach = buckets.sizes.reach
            family = self._families[relatives] = Family(pattern, buckets.bucket_of, reach)
        padded = PaddedRecording(
            plain.compiler, False, buckets=buckets, signature=call.without_data, family=family
        )
        padded.plan(call.arrays, weights)
        if learns:
            padded.learn()
        return padded

    @property
    def grow(self) -> bool:
        """Whether results come back as inputs, one larger."""
        return self._buckets.sizes.grow

    def like(
        self, values: Sequence[Any], pattern: SizePattern, others: Sequence[Shapes]
    ) -> Sequence[Any]:
        """Return inputs whose bucket reaches most of the other calls, in place of these ones.

        Their sizes are those of such a call. Only arrays that are not padded have data.
        """
        call = CallArrays.of(values, self._infos)
        names, sizes = pattern.names, self._buckets.sizes
        all_sizes = [n for n in map(pattern.sizes, others) if n is not None and min(n) > 1]

        def reached(own: SizeVector) -> int:
            bucket = sizes.bucket_of(names, own)
            return sum(reaches(bucket, each, sizes.reach) for each in all_sizes)

        own = tuple(call.sizes[name] for name in names)
        best = max([own, *all_sizes], key=reached)
        if best == own:
            return values
        call = replace(call, bucket=sizes.padded(call.sizes))
        return call.inputs(dict(zip(names, best, strict=True)))

    def in_pieces(
        self,
        plain: Recording,
        relatives: Relatives,
        values: Sequence[Any],
        size: int,
        most: int,
        weights: Weights,
    ) -> tuple[PaddedRecording, int, int] | None:
        """Let calls of up to `most` rows run in pieces, once the returned recording is compiled.

        Also returns the sizes of a piece and of the largest call, which are those of buckets. None
        if the rows of such calls depend on one another, or on how many there are.
        """
        buckets = self._buckets
        call = CallArrays.of(values, self._infos)
        (name,) = buckets.sizes.chosen
        size, most = (buckets.sizes.padded({name: n})[name] for n in (size, most))
        whole = replace(call, bucket={name: most})
        values = whole.inputs({name: size})
        call = CallArrays.of(values, self._infos)
        split = buckets.split(replace(call, bucket=whole.bucket), size, weights)
        if split is None:
            return None
        recording = self.recording(plain, relatives, values, weights, learns=False)
        if not isinstance(recording, PaddedRecording) or not recording.is_planned:
            return None
        family = recording.family
        _, rest = family.pattern.split([tuple(array.shape) for array in call.arrays])
        # Replaced as a whole, as other threads read it.
        family.split = {**family.split, rest: split}
        return recording, size, most

    def derivation(
        self,
        values: Sequence[Any],
        sizes: Sequence[SizeVector],
        weights: Weights,
        patience: Patience | None = None,
        *,
        least: int,
        first: int,
    ) -> Derivation | None:
        """Return what derives the recordings of calls up to these sizes, and some larger ones.

        None if nothing does. The `least` size is that of a batch, and sizes up to the `first` are
        tried first.
        """
        call, buckets = CallArrays.of(values, self._infos), self._buckets
        largest = [max(column) for column in zip(*sizes, strict=True)]
        ends = [[round(factor * size) for size in largest] for factor in AHEAD]
        if first:
            ends.insert(0, [max(first, size) for size in ends[0]])
        for wanted in ends:
            bucket = buckets.sizes.padded(dict(zip(buckets.sizes.chosen, wanted, strict=True)))
            padded = replace(call, bucket=bucket)
            found = buckets.derivation(padded, sizes[0], weights, patience, least=least)
            # One for large sizes alone may be found, where smaller ones run in another way.
            if found is not None and found.holds(sizes[0]):
                return found
        return None

    def has_program(self, values: Sequence[Any]) -> bool:
        """Whether such calls share a program that is compiled."""
        call = CallArrays.of(values, self._infos)
        bucket = self._buckets.sizes.padded(call.sizes)
        return not bucket or self._buckets.has_program(replace(call, bucket=bucket))

    def shrink_bucket(self, values: Sequence[Any]) -> bool:
        """Add a smaller bucket for such a call; return whether there is one."""
        sizes = self._buckets.sizes.with_smaller_buckets(CallArrays.of(values, self._infos).sizes)
        if sizes is not None:
            self._buckets.sizes = sizes
            _LOG.info("The model does not run in a bucket for such sizes; a smaller one is tried.")
        return sizes is not None


class Detour(NamedTuple):
    """The shapes of calls that run in a larger bucket, and which part of their work is in vain."""

    shapes: Shapes
    waste: float
    # The shapes of calls whose bucket would save that.
    saving: Shapes
    # The formulas of the family that were there when the bucket was chosen.
    formulas: Mapping[BucketKey, PlanFormulas]


@dataclass(eq=False, slots=True)
class PaddedRecording(Recording):
    """A recording for calls of one signature whose arrays are padded.

    Calls run a program of their own if the graph takes another form for exactly their sizes.
    """

    buckets: Buckets = field(kw_only=True)
    signature: CallArrays = field(kw_only=True)
    family: Family = field(kw_only=True)
    # The numbers of arrays whose values decide which program runs, and the plans by these values.
    read: set[int] = field(default_factory=set)
    plans: dict[Any, PaddedCallPlan | None] = field(default_factory=dict)
    # If the program of a larger bucket serves these calls, until their own has one.
    detour: Detour | None = None
    # Compiles the program of the bucket of calls with these shapes.
    compile_own: Callable[[Shapes, Weights], None] | None = None

    @property
    def is_planned(self) -> bool:
        """Whether calls run the program of a bucket, not one of their own."""
        return any(plan is not None for plan in self.plans.values())

    @property
    def pads_much(self) -> bool:
        """Whether a program of a larger bucket serves these calls."""
        is_split = any(plan is not None and plan.split for plan in self.plans.values())
        return self.detour is not None and not is_split

    @property
    def fastest(self) -> float:
        """The least seconds that a call with one of these programs took, of whatever sizes."""
        plans = (plan for plan in self.plans.values() if plan is not None)
        return min((plan.runs * plan.program.fastest for plan in plans), default=math.inf)

    def resized(self, shapes: Shapes) -> PaddedRecording | None:
        """Return the recording for arrays of other shapes, if formulas say how they run."""
        sizes = self.family.pattern.sizes_and_rest(shapes)
        return None if sizes is None else self.for_sizes(sizes)

    def for_sizes(self, sizes: CallSizes) -> PaddedRecording | None:
        """Return the recording for arrays of other sizes, if formulas say how they run."""
        sized = self.family.plan(sizes)
        if sized is None:
            return None
        waste, saving = sized.waste, sized.saving
        detour = Detour(sizes.shapes, waste, saving, self.family.formulas) if waste else None
        # `replace` looks at all fields, and this runs at each new size.
        return PaddedRecording(
            self.compiler,
            self.inline,
            buckets=self.buckets,
            signature=self.signature,
            family=self.family,
            plans={(): sized.plan},
            detour=detour,
            compile_own=self.compile_own,
        )

    def learn(self) -> None:
        """Let calls of other sizes use the formulas of the bucket."""
        formulas = self.buckets.formulas(self.signature)
        if formulas is not None:
            self.family.learn([tuple(array.shape) for array in self.signature.arrays], formulas)

    def run_on_numpy(self, inputs: Sequence[Any], weights: Weights) -> None:
        """Leave all calls to `run`, which may pad them."""

    def run(self, inputs: Sequence[Any], weights: Weights, new_key: NewKey) -> Sequence[Any] | None:
        detour = self.detour
        if detour is None:
            return self._run(inputs, weights, new_key)
        if detour.formulas is not self.family.formulas:
            detour = self._new_detour(detour)
        start = time.perf_counter()
        outputs = self._run(inputs, weights, new_key)
        seconds = time.perf_counter() - start
        if detour is not None and self.compile_own is not None:
            wasted = seconds * detour.waste
            if self.family.is_worth_compiling(detour.saving, wasted):
                self.compile_own(detour.saving, weights)
        return outputs

    def _new_detour(self, detour: Detour) -> Detour | None:
        """Use the smallest bucket that has a program by now; None if it is these calls' own."""
        resized = self.resized(detour.shapes)
        if resized is not None:
            self.plans, self.detour = resized.plans, resized.detour
        return self.detour

    def _run(
        self, inputs: Sequence[Any], weights: Weights, new_key: NewKey
    ) -> Sequence[Any] | None:
        # What lies in the padding may be NaN without harm, but would be reported.
        is_watched = self.compiler.backend.watches()
        plan = None if is_watched else self.plan(inputs, weights)
        if plan is None:
            return Recording.run(self, inputs, weights, new_key)
        program, start = plan.program, time.perf_counter()
        if program.draws:
            inputs = [*inputs, new_key()]
        outputs = self.buckets.run(plan, inputs, weights)
        program.note_run((time.perf_counter() - start) / plan.runs)
        return outputs

    def plan(self, inputs: Sequence[Any], weights: Weights) -> PaddedCallPlan | None:
        """Return how a call with these arrays runs; None if the call is not padded."""
        key = self._key_of(inputs)
        if key in self.plans:
            return self.plans[key]
        with postponed(), self.buckets.lock:
            plan, read = self.buckets.plan(replace(self.signature, arrays=inputs), weights)
        self.read |= read
        if len(self.plans) >= MAX_PLANS:
            self.plans.clear()
        self.plans[self._key_of(inputs)] = plan
        return plan

    def compile(self, weights: Weights) -> None:
        """Compile the programs of the plans."""
        for plan in self.plans.values():
            for stage in plan.program.shown.stages if plan is not None else ():
                stage.compile(self.compiler, weights)

    def shown(self, inputs: Sequence[Any], weights: Weights) -> Program | None:
        """Return the padded program for these arrays; None if they run a program of their own."""
        plan = self.plan(inputs, weights)
        return None if plan is None else plan.program.shown

    def _key_of(self, inputs: Sequence[Any]) -> Any:
        backend = self.compiler.backend
        values = [inputs[i] for i in sorted(self.read)]
        return tuple(digest(backend.fetch(v) if backend.owns(v) else v) for v in values)
