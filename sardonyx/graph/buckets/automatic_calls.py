"""Calls whose sizes turn out to change: buckets for them are compiled in the background.

Compiling slows calls down, as it takes the processor from them. So it begins when programs could
have saved such calls as much time as it takes. Until then a call of a new size needs no trace, if
its recording can be derived from those of other sizes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any
from weakref import ref

import numpy as np

from sardonyx.backends.executable import Spec
from sardonyx.errors import SardonyxError
from sardonyx.garbage import RARELY_COLLECTED
from sardonyx.graph.buckets.call_arrays import stand_in
from sardonyx.graph.buckets.derived import Derivation
from sardonyx.graph.buckets.derived_calls import DerivedCalls, StillSearching
from sardonyx.graph.buckets.families import Shapes, SizePattern
from sardonyx.graph.buckets.formulas import SizeVector
from sardonyx.graph.buckets.learned_calls import (
    LearnedCalls,
    Publish,
    WaitingCall,
    elements,
)
from sardonyx.graph.buckets.patience import NewCall, OutOfPatience, Patience
from sardonyx.graph.buckets.programs import Buckets, BucketTooLarge, CannotPad, sizes_text
from sardonyx.graph.buckets.recording import PaddedCalls, PaddedRecording, Relatives
from sardonyx.graph.buckets.searching import Search
from sardonyx.graph.buckets.sizes import Sizes
from sardonyx.graph.ir import ValueInfo
from sardonyx.graph.programs.background import COMPILES
from sardonyx.graph.programs.replay import Recording
from sardonyx.graph.values.params import Weights
from sardonyx.logs import Log
from sardonyx.printable import first_line

_LOG = Log("buckets")
# Maximum number of kinds of call that differ in more than sizes; the oldest is forgotten.
MOST_KINDS = 256
# After this many calls that could not be traced none is padded any more; and after this many whose
# recordings cannot be derived none is tried.
MOST_FAILURES = 2
# Maximum number of calls that use a program as soon as it is compiled.
MOST_WAITING = 256


class AutomaticCalls:
    """The recordings of calls whose sizes turn out to change."""

    def __init__(
        self,
        new_buckets: Callable[[Sizes], Buckets],
        infos: Sequence[ValueInfo],
        recall: Callable[[Recording, Sequence[Any]], bool],
        derived: DerivedCalls,
    ) -> None:
        self._new_buckets = new_buckets
        # Serves calls that grow, if they need no program.
        self._derived = derived
        self._infos = infos
        self._learned: dict[Any, LearnedCalls] = {}
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
        shapes = [tuple(value.shape) for value in values]
        with self._lock:
            learned = self._learned.setdefault(relatives, LearnedCalls())
            if len(self._learned) > MOST_KINDS:
                del self._learned[next(iter(self._learned))]
            is_to_pad = self._is_to_pad(learned, shapes, waits=publish is None)
            is_small = is_to_pad and learned.is_small(shapes)
            is_padded = is_to_pad and not is_small
            calls = self._calls(learned, shapes, waits=publish is None) if is_padded else None
            learned.before = shapes, plain
            # What another process is to find is compiled even if it runs only once.
            if publish is not None and not is_to_pad and weights.backend.folder is None:
                single = self._derived_single(relatives, shapes, weights)
                if single is not None:
                    self._prepare_single(*single, plain, shapes)
                elif learned.changing.has_changed:
                    learned.new = NewCall.of(shapes, plain, weights)
                    plain.tree.decide = partial(_look_ahead, ref(self), relatives, shapes)
        if not is_to_pad or self._recall(plain, values):
            return plain
        if calls is None:
            if publish is not None and is_small:
                with suppress(StillSearching):
                    self._derived.serve(plain, relatives, values, weights, learned.changing)
            return plain
        job = _Job(learned, calls, plain, relatives, weights, self._lock)
        if publish is None:
            return job.recording(values)
        call = WaitingCall(publish, shapes, weights, plain)
        return learned.best(shapes, weights) or self._postponed(job, values, call)

    def _derived_single(
        self, relatives: Relatives, shapes: Shapes, weights: Weights
    ) -> tuple[Relatives, Derivation, SizeVector] | None:
        """Return what derives a call with a size of 1 from larger ones, and what it is like."""
        if not relatives.has_single:
            return None
        for like, learned in self._learned.items():
            if like.resembles(relatives) and learned.fits(shapes):
                known = learned.derivation_for(shapes, weights)
                if known is not None and known[0].holds(known[1]):
                    return like, *known
        return None

    def _prepare_single(
        self,
        like: Relatives,
        derivation: Derivation,
        sizes: SizeVector,
        plain: Recording,
        shapes: Shapes,
    ) -> None:
        plain.tree.decide = partial(_decide_alone, ref(self), like, shapes)
        derivation.prepare(plain, sizes, plain.tree.decide)

    def decide_alone(self, like: Relatives, shapes: Shapes, seconds: float) -> bool:
        """Return whether it is time to compile a program for calls that no bucket serves."""
        with self._lock:
            learned = self._learned.get(like)
            if learned is None:
                return True
            learned.wasted_alone += learned.savable(shapes, seconds)
            return learned.is_worth_compiling(learned.wasted_alone)

    def _postponed(self, job: _Job, values: Sequence[Any], call: WaitingCall) -> Recording:
        """Return the recording that runs such a call until a program is compiled."""
        # A recording is part of the model, and so may not keep it.
        job.plain.tree.decide = partial(_decide, ref(self), job.relatives, call.shapes)
        if not job.calls.grow:
            return job.postponed(values, call)
        if self._serves_growing(job, values, call):
            return job.plain
        # If each call has a new size, tracing all of them takes longer than the compiler.
        return job.recording(values)

    def _serves_growing(self, job: _Job, values: Sequence[Any], call: WaitingCall) -> bool:
        """Whether a function of all sizes runs such a call, as far as anybody knows yet."""
        learned, weights = job.learned, call.weights
        if weights.backend.steps_on_numpy() is None:
            return False
        arguments = job.plain, job.relatives, values, weights, learned.changing
        try:
            derivation = self._derived.serve(*arguments)
        except StillSearching:
            return True
        if derivation is None:
            return False
        with self._lock:
            if learned.pattern is not None:
                learned.derived = derivation, learned.pattern, weights.static_version
            if len(learned.waiting) < MOST_WAITING:
                learned.waiting.append(call)
        return True

    def unless_slow(
        self,
        recording: PaddedRecording | None,
        relatives: Relatives,
        shapes: Shapes,
        weights: Weights,
    ) -> PaddedRecording | None:
        """Return the recording, unless such calls take less time step by step."""
        learned = self._learned.get(relatives)
        if recording is None or learned is None:
            return recording
        return None if learned.is_better_without(recording, shapes, weights) else recording

    def decide(self, relatives: Relatives, shapes: Shapes, seconds: float) -> bool:
        """Compile the program of a bucket when calls have run step by step for long enough.

        Return whether calls with these shapes have to be compiled for their own sizes.
        """
        with self._lock:
            learned = self._learned.get(relatives)
            if learned is None or learned.refusal is not None or learned.calls is None:
                return True
            learned.wasted += learned.savable(shapes, seconds)
            learned.pace.note(elements(shapes), seconds)
            if learned.is_busy:
                return False
            if learned.derived is None and learned.calls.grow:
                return False
            if learned.derived is None or not learned.waiting:
                return True
            if not learned.is_worth_compiling(learned.wasted):
                return False
            learned.wasted, learned.is_busy = 0.0, True
            *_, weights, plain = learned.waiting[-1]
            job = _Job(learned, learned.calls, plain, relatives, weights, self._lock)
        COMPILES.submit(partial(job.compile_waiting, job.stand_ins(shapes)))
        return False

    def look_ahead(self, relatives: Relatives, shapes: Shapes, seconds: float) -> None:
        """Begin the search after the first run of a second size, if that took long."""
        with self._lock:
            learned = self._learned.get(relatives)
            call = None if learned is None else learned.take_new(shapes)
            if learned is None or call is None:
                return
            learned.pace.note(elements(shapes), seconds)
            patience = call.patience(seconds)
            if learned.is_busy or learned.refusal or learned.derived or not patience.is_left:
                return
            calls = self._calls(learned, shapes, waits=False)
            if calls is None or calls.grow:
                return
            learned.is_busy = True
        job = _Job(learned, calls, call.plain, relatives, call.weights, self._lock)
        job.look_ahead(shapes, patience)

    def _is_to_pad(self, learned: LearnedCalls, shapes: Shapes, *, waits: bool) -> bool:
        """Note a call; return whether sizes of such calls change."""
        shapes_before, recording_before = learned.before or ((), None)
        results = recording_before.output_shapes() if recording_before is not None else ()
        is_to_pad = learned.changing.note(shapes, shapes_before, results)
        if not is_to_pad or (learned.refusal is not None and (waits or learned.derived is None)):
            return False
        learned.note_before()
        return True

    def _calls(self, learned: LearnedCalls, shapes: Shapes, *, waits: bool) -> PaddedCalls | None:
        """Return how such calls are padded; None if their sizes depend on nothing that is known."""
        if not learned.fits(shapes):
            lesson = learned.changing.learned(self._infos, shapes, waits=waits)
            if lesson is None:
                return None
            infos, sizes = lesson
            learned.calls = PaddedCalls(self._new_buckets(sizes), infos)
            learned.pattern = SizePattern.of(infos, shapes, list(sizes.chosen))
            learned.rest = learned.pattern.rest(shapes)
        return learned.calls


def _decide(
    calls: ref[AutomaticCalls], relatives: Relatives, shapes: Shapes, seconds: float
) -> bool:
    known = calls()
    return known is None or known.decide(relatives, shapes, seconds)


def _look_ahead(
    calls: ref[AutomaticCalls], relatives: Relatives, shapes: Shapes, seconds: float
) -> bool:
    known = calls()
    if known is not None:
        known.look_ahead(relatives, shapes, seconds)
    return True  # Such calls are compiled for their own sizes.


def _decide_alone(
    calls: ref[AutomaticCalls], like: Relatives, shapes: Shapes, seconds: float
) -> bool:
    known = calls()
    return known is None or known.decide_alone(like, shapes, seconds)


@dataclass(frozen=True, eq=False, slots=True)
class _Job:
    """Plans, and compiles, a padded call like a new one."""

    learned: LearnedCalls
    calls: PaddedCalls
    plain: Recording
    relatives: Relatives
    weights: Weights
    lock: Lock

    def postponed(self, values: Sequence[Any], call: WaitingCall) -> Recording:
        """Return the recording that runs such a call until a program is compiled."""
        learned, weights, shapes = self.learned, self.weights, call.shapes
        with self.lock:
            known = learned.derivation_for(shapes, weights)
            begins = not (known or learned.is_busy or learned.refusal)
            has_program = begins and self.calls.has_program(values)
            if not has_program and len(learned.waiting) < MOST_WAITING:
                learned.waiting.append(call)
            learned.is_busy |= begins and not has_program
            if begins and not has_program:
                learned.search = Search()
            search = learned.search
        if has_program:
            return self.recording(values)
        if begins and search is not None:
            # The caller may write to its arrays meanwhile.
            own = [np.array(v) if isinstance(v, np.ndarray) else v for v in values]
            # It comes before the programs for single sizes that wait to be compiled.
            COMPILES.submit(partial(self.run, own, learned.pattern, search), is_next=True)
            _LOG.info("The sizes of calls change: a bucket for them is compiled meanwhile.")
        if known is None and search is not None:
            known = self._awaited(search, shapes)
        if known is not None:
            derivation, sizes = known
            derivation.prepare(self.plain, sizes, self.plain.tree.decide)
        return self.plain

    def _awaited(self, search: Search, shapes: Shapes) -> tuple[Derivation, SizeVector] | None:
        """Wait for a search; return what it has found for a call with these shapes."""
        learned, has_ended = self.learned, search.wait()
        with self.lock:
            if not has_ended and learned.search is search:
                # It waits for a compile, takes long, or was left behind by a fork.
                learned.search = None
            return learned.derivation_for(shapes, self.weights)

    def recording(self, values: Sequence[Any]) -> Recording:
        """Return the recording of such a call; the plain one, if it cannot be padded."""
        recording = self._planned(values)
        if isinstance(recording, PaddedRecording):
            recording.learn()
        return recording

    def run(self, values: Sequence[Any], pattern: SizePattern | None, search: Search) -> None:
        """Find out how to derive the recordings of such calls; compile at once if nobody knows."""
        learned = self.learned
        with search.running():
            derivation = self._derivation(values, pattern)
            if derivation is not None and pattern is not None:
                with self.lock:
                    learned.derived = derivation, pattern, self.weights.static_version
                    learned.is_busy = False
        if derivation is None:
            learned.underived += 1
            self.compile_waiting(values)
        else:
            self._write_out(derivation, values)

    def look_ahead(self, shapes: Shapes, patience: Patience) -> None:
        """Search as long as patience lasts; whoever goes on uses the traces so far."""
        learned, pattern, values = self.learned, self.learned.pattern, self.stand_ins(shapes)
        derivation = None
        try:
            with suppress(OutOfPatience), RARELY_COLLECTED:
                derivation = self._derivation(values, pattern, patience)
        finally:
            with self.lock:
                learned.is_busy = False
                if derivation is not None and pattern is not None:
                    learned.derived = derivation, pattern, self.weights.static_version
        if derivation is not None:
            COMPILES.submit(partial(self._write_out, derivation, values), is_next=True)

    def _write_out(self, derivation: Derivation, values: Sequence[Any]) -> None:
        """Write the stages out as one function, if need be without the batch of one."""
        learned = self.learned
        with RARELY_COLLECTED:
            derivation.write_out()
            if derivation.written is not None or min(derivation.smallest) > 1:
                return
            other, pattern = self._derivation(values, learned.pattern, least=2), learned.pattern
            if other is None or pattern is None:
                return
            other.write_out()
        if other.written is not None:
            with self.lock:
                learned.derived = other, pattern, self.weights.static_version

    def _derivation(
        self,
        values: Sequence[Any],
        pattern: SizePattern | None,
        patience: Patience | None = None,
        *,
        least: int = 1,
    ) -> Derivation | None:
        """Return what derives the recordings of such calls; None if nobody knows."""
        learned = self.learned
        if learned.underived >= MOST_FAILURES or pattern is None:
            return None
        seen = learned.changing.seen([tuple(value.shape) for value in values])
        sizes = [n for n in map(pattern.sizes, seen) if n is not None and min(n) > 1]
        if learned.derived is not None:
            sizes.append(learned.derived[0].largest)
        try:
            with self.weights.backend.scope():
                derive = self.calls.derivation
                return derive(values, sizes, self.weights, patience, least=least)
        except OutOfPatience:
            raise
        except Exception as error:  # A trace of a call will say what is wrong.
            reason = partial(first_line, error)
            _LOG.debug("Recordings of such calls are not derived: %s.", reason)
        return None

    def compile_waiting(self, values: Sequence[Any]) -> None:
        """Compile for most of the last calls; then all that wait use the program if they can."""
        learned = self.learned
        pattern, shapes = learned.pattern, [tuple(value.shape) for value in values]

        def most_useful() -> Sequence[Any]:
            seen = [each for each in learned.changing.seen(shapes) if learned.fits(each)]
            rest = [each for each in seen if learned.resized(each, self.weights) is None]
            return values if pattern is None else self.calls.like(values, pattern, rest)

        before = learned.compiled
        self._compile(most_useful)
        with self.lock:
            waiting, learned.waiting, learned.is_busy = learned.waiting, [], False
        if learned.compiled is before:
            return
        for each in waiting:
            # A weight that tracing reads may have been replaced in between.
            best = learned.best(each.shapes, each.weights)
            if best is not None or learned.resized(each.shapes, each.weights) is None:
                each.publish(best)
            else:
                with self.lock:
                    learned.waiting.append(each)

    def stand_ins(self, shapes: Shapes) -> list[Any]:
        """Return arrays without data for a call with these shapes."""
        dtypes = [dtype for _, dtype, _ in self.relatives.arrays]
        return [stand_in(Spec(*pair)) for pair in zip(shapes, dtypes, strict=True)]

    def compile_own(self, shapes: Shapes, weights: Weights) -> None:
        """Compile the program of these calls' own bucket, in the background."""
        if self.learned.refusal is None:
            values, job = self.stand_ins(shapes), replace(self, weights=weights)
            COMPILES.submit(partial(job._compile, lambda: values))

    def _compile(self, values: Callable[[], Sequence[Any]]) -> None:
        learned, start = self.learned, time.perf_counter()
        try:
            with self.weights.backend.scope():
                recording = self._planned(values())
                if not isinstance(recording, PaddedRecording):
                    return
                recording.compile(self.weights)
        except Exception as error:  # Such calls go on without padding.
            learned.refuse(error)
            return
        recording.family.compile_seconds = time.perf_counter() - start
        sizes = partial(sizes_text, recording.signature.bucket)
        _LOG.info("The program of the bucket %s is ready, and calls use it now.", sizes)
        recording.compile_own = self.compile_own
        recording.learn()
        learned.compiled = self.weights.static_version, recording

    def _planned(self, values: Sequence[Any]) -> Recording:
        learned, plain = self.learned, self.plain
        try:
            return _padded(self.calls, plain, self.relatives, values, self.weights)
        except CannotPad as refusal:
            learned.refuse(refusal)
        except SardonyxError as error:
            # Either something is wrong with the call, which will say so, or it runs on the host.
            learned.failures += 1
            if learned.failures >= MOST_FAILURES:
                learned.refuse(error)
        return plain


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
            recording = calls.recording(plain, relatives, values, weights, learns=False)
        except BucketTooLarge:
            if not calls.shrink_bucket(values):
                raise
        else:
            is_padded = isinstance(recording, PaddedRecording) and recording.is_planned
            return recording if is_padded else plain
