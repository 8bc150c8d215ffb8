"""The recordings for calls whose arrays are padded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock, RLock
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from sardonyx.errors import SardonyxError
from sardonyx.graph.buckets.automatic import ChangingSizes
from sardonyx.graph.buckets.call_arrays import CallArrays
from sardonyx.graph.buckets.families import Family, Shapes, SizePattern
from sardonyx.graph.buckets.plans import PaddedCallPlan
from sardonyx.graph.buckets.programs import Buckets, BucketTooLarge, CannotPad
from sardonyx.graph.buckets.sizes import Sizes
from sardonyx.graph.ir import ValueInfo
from sardonyx.graph.programs.background import COMPILES
from sardonyx.graph.programs.program import Program
from sardonyx.graph.programs.replay import NewKey, Recording
from sardonyx.graph.values.kinds import digest
from sardonyx.graph.values.params import Weights

# Maximum number of kinds of call that differ in more than sizes; the oldest is forgotten.
MOST_KINDS = 256
# After this many calls that could not be traced none is padded any more.
MOST_FAILURES = 2
# Maximum number of calls that use a program as soon as it is compiled.
MOST_WAITING = 256
# Maximum number of plans per signature.
MAX_PLANS = 64


# Puts a padded recording in the place of the one that a signature had; None forgets the signature.
Publish: TypeAlias = "Callable[[PaddedRecording | None], None]"


class Relatives(NamedTuple):
    """What calls have in common that differ in sizes only."""

    donated: tuple[str, ...]
    # The library and dtype of each array, and its sizes; all sizes beyond 1 count as 2.
    arrays: tuple[Any, ...]

    @classmethod
    def of(cls, values: Sequence[Any], donated: tuple[str, ...]) -> Relatives | None:
        """Return those of a call with these arguments; None if one of them is not an array."""
        try:
            arrays = [
                (type(a), a.dtype, tuple([n if n < 2 else 2 for n in a.shape])) for a in values
            ]
        except (AttributeError, TypeError):
            return None
        return cls(donated, tuple(arrays))


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
    ) -> Recording:
        """Return the recording for calls with inputs like these: `plain` if nothing is padded."""
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
            family = self._families[relatives] = Family(pattern, buckets.padded_sizes)
        padded = PaddedRecording(
            plain.compiler, False, buckets=buckets, signature=call.without_data, family=family
        )
        padded.plan(call.arrays, weights)
        formulas = buckets.formulas(call)
        if formulas is not None:
            family.learn(shapes, formulas)
        return padded

    @property
    def grow(self) -> bool:
        """Whether results come back as inputs, one larger."""
        return self._buckets.sizes.grow

    def has_program(self, values: Sequence[Any]) -> bool:
        """Whether a program exists that such calls share."""
        call = CallArrays.of(values, self._infos)
        bucket = self._buckets.sizes.padded(call.sizes)
        return not bucket or self._buckets.has_program(replace(call, bucket=bucket))

    def shrink_bucket(self, values: Sequence[Any]) -> bool:
        """Add a smaller bucket for such a call; return whether there is one."""
        sizes = self._buckets.sizes.with_smaller_buckets(CallArrays.of(values, self._infos).sizes)
        if sizes is not None:
            self._buckets.sizes = sizes
        return sizes is not None


@dataclass(eq=False, slots=True)
class _Learned:
    """How the sizes of similar calls change, and how to pad these calls."""

    changing: ChangingSizes = field(default_factory=ChangingSizes)
    calls: PaddedCalls | None = None
    pattern: SizePattern | None = None
    rest: tuple[int, ...] = ()
    # The last call that was not padded: its shapes, and its recording.
    before: tuple[Shapes, Recording] | None = None
    # While a program for such calls is compiled in the background: the calls that can use it then.
    waiting: list[tuple[Publish, Shapes]] = field(default_factory=list)
    # Why these calls are not padded any more.
    refusal: Exception | None = None
    failures: int = 0

    def fits(self, shapes: Shapes) -> bool:
        """Whether the sizes of a call depend on one another as those of earlier calls did."""
        pattern = self.pattern
        return (
            pattern is not None
            and pattern.sizes(shapes) is not None
            and pattern.rest(shapes) == self.rest
        )


class AutomaticCalls:
    """The recordings of calls whose sizes turn out to change."""

    def __init__(
        self,
        new_buckets: Callable[[Sizes], Buckets],
        infos: Sequence[ValueInfo],
        recall: Callable[[Recording, Sequence[Any]], bool],
    ) -> None:
        self._new_buckets = new_buckets
        self._infos = infos
        self._learned: dict[Any, _Learned] = {}
        # Fills a recording, if another process has recorded such a call.
        self._recall = recall
        self._lock = Lock()

    def recording(
        self,
        plain: Recording,
        relatives: Relatives | None,
        values: Sequence[Any],
        weights: Weights,
        publish: Publish | None = None,
    ) -> Recording:
        """Return the recording for calls with inputs like these: `plain` if nothing is padded.

        If there is a function to publish another recording later, no call waits for the compiler.
        Donated calls are not padded, since their arrays are to be overwritten.
        """
        if plain.inline or relatives is None or relatives.donated:
            return plain
        with self._lock:
            learned = self._learned.setdefault(relatives, _Learned())
            if len(self._learned) > MOST_KINDS:
                del self._learned[next(iter(self._learned))]
            shapes = [tuple(value.shape) for value in values]
            calls = self._calls(learned, shapes)
            learned.before = shapes, plain
        if calls is None or self._recall(plain, values):
            return plain
        planned = partial(_planned, learned, calls, plain, relatives, weights)
        # If each call has a new size, tracing all of them takes longer than the compiler.
        if publish is None or calls.grow:
            return planned(values)
        with self._lock:
            is_first = not learned.waiting
            has_program = is_first and calls.has_program(values)
            if not has_program and len(learned.waiting) < MOST_WAITING:
                learned.waiting.append((publish, shapes))
        if has_program:
            return planned(values)
        if not is_first:
            return plain
        # The caller may write to its arrays meanwhile.
        own = [np.array(value) if isinstance(value, np.ndarray) else value for value in values]
        # It replaces the programs for single sizes that wait to be compiled.
        job = partial(_compile, learned, partial(planned, own), weights)
        COMPILES.submit(job, is_next=True)
        return plain

    def _calls(self, learned: _Learned, shapes: Shapes) -> PaddedCalls | None:
        shapes_before, recording_before = learned.before or ((), None)
        results = recording_before.output_shapes() if recording_before is not None else ()
        is_to_pad = learned.changing.note(shapes, shapes_before, results)
        if not is_to_pad or learned.refusal is not None:
            return None
        if not learned.fits(shapes):
            lesson = learned.changing.learned(self._infos, shapes)
            if lesson is None:
                return None
            infos, sizes = lesson
            learned.calls = PaddedCalls(self._new_buckets(sizes), infos)
            learned.pattern = SizePattern.of(infos, shapes, list(sizes.chosen))
            learned.rest = learned.pattern.rest(shapes)
        return learned.calls


def _planned(
    learned: _Learned,
    calls: PaddedCalls,
    plain: Recording,
    relatives: Relatives,
    weights: Weights,
    values: Sequence[Any],
) -> Recording:
    """Return the recording of a padded call; `plain`, if it cannot be padded."""
    try:
        return _padded(calls, plain, relatives, values, weights)
    except CannotPad as refusal:
        learned.refusal = refusal
    except SardonyxError as error:
        # Either something is wrong with the call, which will say so, or it runs on the host.
        learned.failures += 1
        if learned.failures >= MOST_FAILURES:
            learned.refusal = error
    return plain


def _compile(learned: _Learned, planned: Callable[[], Recording], weights: Weights) -> None:
    """Plan and compile a padded call in the background; then calls like it can use its program."""
    recording: Recording | None = None
    try:
        with weights.backend.scope():
            recording = planned()
            if isinstance(recording, PaddedRecording):
                recording.compile(weights)
    except Exception as error:  # Such calls go on without padding.
        learned.refusal = error
    waiting, learned.waiting = learned.waiting, []
    if isinstance(recording, PaddedRecording) and learned.refusal is None:
        (publish, _), *others = waiting
        publish(recording)
        for publish, shapes in others:
            publish(recording.resized(shapes))


def _padded(
    calls: PaddedCalls,
    plain: Recording,
    relatives: Relatives,
    values: Sequence[Any],
    weights: Weights,
) -> Recording:
    """Return the recording in the largest bucket for which the model runs."""
    while True:
        try:
            recording = calls.recording(plain, relatives, values, weights)
        except BucketTooLarge:
            if not calls.shrink_bucket(values):
                raise
        else:
            is_padded = isinstance(recording, PaddedRecording) and recording.is_planned
            return recording if is_padded else plain


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

    @property
    def is_planned(self) -> bool:
        """Whether calls run the program of a bucket, not one of their own."""
        return any(plan is not None for plan in self.plans.values())

    def resized(self, shapes: Shapes) -> PaddedRecording | None:
        """Return the recording for arrays of other sizes, if formulas say how they run."""
        plan = self.family.plan(shapes)
        return None if plan is None else replace(self, lock=RLock(), plans={(): plan})

    def run(self, inputs: Sequence[Any], weights: Weights, new_key: NewKey) -> Sequence[Any] | None:
        plan = self.plan(inputs, weights)
        if plan is None:
            return Recording.run(self, inputs, weights, new_key)
        if plan.program.draws:
            inputs = [*inputs, new_key()]
        return self.buckets.run(plan, inputs, weights)

    def plan(self, inputs: Sequence[Any], weights: Weights) -> PaddedCallPlan | None:
        """Return how a call with these arrays runs; None if the call is not padded."""
        key = self._key_of(inputs)
        if key in self.plans:
            return self.plans[key]
        with self.buckets.lock:
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
