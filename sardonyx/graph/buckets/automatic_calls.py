"""Calls whose sizes turn out to change: buckets for them are compiled in the background.

Compiling slows calls down, as it takes the processor from them. So it begins when programs could
have saved such calls as much time as it takes. Until then a call of a new size needs no trace, if
its recording can be derived from those of other sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from threading import Lock
from time import perf_counter
from typing import Any
from weakref import ref

from sardonyx.graph.buckets.automatic import CallBefore
from sardonyx.graph.buckets.bucket_jobs import BucketJob
from sardonyx.graph.buckets.derived import Derivation
from sardonyx.graph.buckets.derived_calls import DerivedCalls, StillSearching
from sardonyx.graph.buckets.families import CallSizes, SizePattern
from sardonyx.graph.buckets.foreseen import Foresight, has_kernels
from sardonyx.graph.buckets.formulas import SizeVector
from sardonyx.graph.buckets.learned_calls import (
    LearnedCalls,
    Publish,
    WaitingCall,
    elements,
)
from sardonyx.graph.buckets.patience import PATIENCE, patience_of
from sardonyx.graph.buckets.programs import Buckets
from sardonyx.graph.buckets.recording import PaddedCalls, PaddedRecording
from sardonyx.graph.buckets.relatives import Likeness, Relatives
from sardonyx.graph.buckets.searching import Search
from sardonyx.graph.buckets.sizes import Sizes
from sardonyx.graph.calls.dimensions import Shapes
from sardonyx.graph.ir import ValueInfo
from sardonyx.graph.programs.background import COMPILES
from sardonyx.graph.programs.replay import Recording
from sardonyx.graph.values.params import Weights

# Maximum number of kinds of call that differ in more than sizes; the oldest is forgotten.
MOST_KINDS = 256


class AutomaticCalls:
    """The recordings of calls whose sizes turn out to change."""

    def __init__(
        self,
        new_buckets: Callable[[Sizes], Buckets],
        infos: Sequence[ValueInfo],
        recall: Callable[[Recording, Sequence[Any]], bool],
        derived: DerivedCalls,
        foresight: Foresight,
    ) -> None:
        self._new_buckets = new_buckets
        # Serves calls that grow, if they need no program.
        self._derived = derived
        self._infos = infos
        self._foresight = foresight
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
            learned = self._learned.get(relatives) or self._first_of(relatives)
            is_to_pad = self._is_to_pad(learned, shapes, waits=publish is None)
            is_small = is_to_pad and learned.is_small(shapes)
            is_padded = is_to_pad and not is_small
            calls = self._calls(learned, shapes, waits=publish is None) if is_padded else None
            learned.before = CallBefore(shapes, plain)
            # What another process is to find is compiled even if it runs only once.
            if publish is not None and not is_to_pad and weights.backend.folder is None:
                single = self._derived_single(relatives, shapes, weights)
                if single is not None:
                    self._prepare_single(*single, plain, shapes)
                else:
                    learned.new = WaitingCall(publish, shapes, weights, plain, perf_counter())
                    self._let_look_ahead(learned, relatives)
        if not is_to_pad or self._recall(plain, values):
            return plain
        if calls is None:
            if publish is not None and is_small:
                with suppress(StillSearching):
                    self._derived.serve(plain, relatives, values, weights, learned.changing)
            return plain
        job = BucketJob(learned, calls, plain, relatives, weights, self._lock)
        if publish is None:
            return job.recording(values)
        call = WaitingCall(publish, shapes, weights, plain, perf_counter())
        return learned.best(shapes, weights) or self._postponed(job, values, call)

    def pattern_of(self, relatives: Relatives, shapes: Shapes) -> SizePattern | None:
        """Return how the sizes of such calls change, if that is known."""
        learned = self._learned.get(relatives)
        if learned is None or learned.grows or learned.is_small(shapes):
            return self._derived.pattern_of(relatives, shapes)
        return learned.pattern

    def serve_again(
        self,
        plain: Recording,
        likeness: Likeness,
        call: CallSizes,
        weights: Weights,
        publish: Publish,
    ) -> bool:
        """Let an empty recording run a call as earlier ones; False if there may be more to do."""
        relatives, shapes = likeness.relatives, call.shapes
        with self._lock:
            learned = self._learned.get(relatives)
            if learned is None or not learned.is_settled:
                return False
            is_small = learned.most_on_numpy > 0 and learned.is_small(shapes)
            follows_lesson = is_small or learned.grows
            found = learned.function_again(likeness, call.sizes, weights)
            if not follows_lesson and found is not None:
                learned.changing.note(shapes, learned.before)
                if learned.is_foreseen and learned.changing.grows:
                    return False
        if follows_lesson:
            found = self._derived.function_again(plain, likeness, call, weights)
        if found is None:
            return False
        with self._lock:
            learned.before = CallBefore(shapes, plain)
            if not is_small:
                plain.tree.decide = partial(_decide, ref(self), relatives, shapes)
                learned.let_wait(WaitingCall(publish, shapes, weights, plain, perf_counter()))
        found.prepare(plain, call.sizes, plain.tree.decide)
        return True

    def _first_of(self, relatives: Relatives) -> LearnedCalls:
        """Begin to learn about calls like these."""
        learned = self._learned[relatives] = LearnedCalls()
        if len(self._learned) > MOST_KINDS:
            del self._learned[next(iter(self._learned))]
        return learned

    def _let_look_ahead(self, learned: LearnedCalls, relatives: Relatives) -> None:
        """Let a new call begin the search for a function of all sizes."""
        call = learned.new
        assert call is not None
        if learned.changing.has_changed:
            call.plain.tree.decide = partial(_look_ahead, ref(self), relatives, call.shapes)
        elif self._foresight.may_pay:
            call.plain.before_run = partial(_foresee, ref(self), relatives, call.shapes)

    def _derived_single(
        self, relatives: Relatives, shapes: Shapes, weights: Weights
    ) -> tuple[Relatives, Derivation, SizeVector] | None:
        """Return what derives a call with a size of 1, and which larger calls it was found for."""
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

    def _postponed(self, job: BucketJob, values: Sequence[Any], call: WaitingCall) -> Recording:
        """Return the recording that runs such a call until a program is compiled."""
        # A recording is part of the model, and so may not keep it.
        job.plain.tree.decide = partial(_decide, ref(self), job.relatives, call.shapes)
        is_refused = job.learned.pace.is_refused(elements(call.shapes))
        if is_refused or job.learned.outgrows_pieces(call.shapes, call.weights):
            best = job.best_in_pieces(values, call)
            if best is not None:
                return best
        if is_refused:
            # It waits for a compiler anyway: rather for a program that other sizes use, too.
            return job.recording(values)
        if not job.calls.grow:
            return job.postponed(values, call)
        if self._serves_growing(job, values, call):
            return job.plain
        # If each call has a new size, tracing all of them takes longer than the compiler.
        return job.recording(values)

    def _serves_growing(self, job: BucketJob, values: Sequence[Any], call: WaitingCall) -> bool:
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
            learned.let_wait(call)
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

    def decide(
        self, relatives: Relatives, shapes: Shapes, seconds: float, *, has_ended: bool
    ) -> bool:
        """Compile the program of a bucket when calls have run step by step for long enough.

        Return whether calls with these shapes have to be compiled for their own sizes.
        """
        with self._lock:
            learned = self._learned.get(relatives)
            if learned is None or learned.refusal is not None or learned.calls is None:
                return True
            learned.wasted += learned.savable(shapes, seconds)
            if has_ended:
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
            last = learned.waiting[-1]
            of_last = last.plain, relatives, last.weights
            job = BucketJob(learned, learned.calls, *of_last, self._lock)
        COMPILES.submit(partial(job.compile_waiting, job.stand_ins(shapes)))
        return False

    def foresee(self, relatives: Relatives, shapes: Shapes) -> None:
        """Begin the search while a first call runs, if the file names the size that may change."""
        with self._lock:
            learned = self._learned.get(relatives)
            call = None if learned is None else learned.new_call(shapes, has_ended=True)
            if learned is None or call is None or learned.calls is not None:
                return
            lesson = self._foresight.sizes(shapes)
            if lesson is None or not has_kernels(call.weights.backend):
                return
            calls = self._learn(learned, shapes, *lesson)
            learned.is_foreseen = learned.is_busy = True
            learned.search = search = Search()
        job = BucketJob(learned, calls, call.plain, relatives, call.weights, self._lock)
        look_ahead = partial(job.look_ahead, shapes, PATIENCE, search.running())
        COMPILES.submit(look_ahead, is_next=True)

    def look_ahead(self, relatives: Relatives, shapes: Shapes, seconds: float) -> None:
        """Begin the search after the first run of a second size, if that took long."""
        with self._lock:
            learned = self._learned.get(relatives)
            call = None if learned is None else learned.new_call(shapes, has_ended=True)
            if learned is None or call is None:
                return
            learned.pace.note(elements(shapes), seconds)
            patience = patience_of(seconds, call.began)
            if learned.is_busy or learned.refusal or learned.derived or not patience.is_left:
                return
            calls = self._calls(learned, shapes, waits=False)
            if calls is None or calls.grow:
                return
            learned.is_busy = True
        job = BucketJob(learned, calls, call.plain, relatives, call.weights, self._lock)
        job.look_ahead(shapes, patience)

    def split_ahead(self, relatives: Relatives, shapes: Shapes) -> None:
        """Begin to compile a program of pieces while a call of a second size takes long."""
        with self._lock:
            learned = self._learned.get(relatives)
            call = None if learned is None else learned.new_call(shapes, has_ended=False)
            # Kernels take as long in a program as without.
            if learned is None or call is None or not call.weights.backend.steps_without_kernels:
                return
            if learned.is_busy or learned.refusal or learned.derived or learned.pieces:
                return
            calls = self._calls(learned, shapes, waits=False)
            pieces = learned.pieces_for(shapes, call.weights, is_long=True)
            if calls is None or calls.grow or pieces is None:
                return
            learned.let_wait(call)
            learned.is_busy = learned.is_splitting = True
        job = BucketJob(learned, calls, call.plain, relatives, call.weights, self._lock)
        COMPILES.submit(partial(job.split_ahead, job.stand_ins(shapes)), is_next=True)

    def stays_whole(self, relatives: Relatives) -> bool:
        """Whether calls like these are compiled for their own sizes, as far as is known."""
        learned = self._learned.get(relatives)
        if learned is None or learned.pieces is None:
            return learned is None or not learned.is_splitting
        return not learned.pieces.are_possible

    def _is_to_pad(self, learned: LearnedCalls, shapes: Shapes, *, waits: bool) -> bool:
        """Note a call; return whether sizes of such calls change."""
        is_to_pad = learned.changing.note(shapes, learned.before)
        if learned.is_foreseen:
            if learned.changing.grows or not learned.fits(shapes):
                learned.forget()
            is_to_pad |= learned.is_foreseen
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
            return self._learn(learned, shapes, *lesson)
        return learned.calls

    def _learn(
        self, learned: LearnedCalls, shapes: Shapes, infos: Sequence[ValueInfo], sizes: Sizes
    ) -> PaddedCalls:
        """Remember which sizes of such calls change."""
        learned.calls = PaddedCalls(self._new_buckets(sizes), infos)
        learned.pattern = SizePattern.of(infos, shapes, list(sizes.chosen))
        _, learned.rest = learned.pattern.split(shapes)
        return learned.calls


def _decide(
    calls: ref[AutomaticCalls],
    relatives: Relatives,
    shapes: Shapes,
    seconds: float,
    *,
    has_ended: bool = True,
) -> bool:
    known = calls()
    return known is None or known.decide(relatives, shapes, seconds, has_ended=has_ended)


def _look_ahead(
    calls: ref[AutomaticCalls],
    relatives: Relatives,
    shapes: Shapes,
    seconds: float,
    *,
    has_ended: bool = True,
) -> bool:
    known = calls()
    if known is not None and has_ended:
        known.look_ahead(relatives, shapes, seconds)
    elif known is not None:
        known.split_ahead(relatives, shapes)
    return known is None or known.stays_whole(relatives)


def _foresee(calls: ref[AutomaticCalls], relatives: Relatives, shapes: Shapes) -> None:
    known = calls()
    if known is not None:
        known.foresee(relatives, shapes)


def _decide_alone(
    calls: ref[AutomaticCalls],
    like: Relatives,
    shapes: Shapes,
    seconds: float,
    *,
    has_ended: bool = True,
) -> bool:
    known = calls()
    return known is None or known.decide_alone(like, shapes, seconds)
