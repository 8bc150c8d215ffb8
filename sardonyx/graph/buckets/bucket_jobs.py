"""What is done for calls whose sizes change: the search for a derivation, and buckets' programs.

Some of it is done in the calls themselves, and some in the background.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any

import numpy as np

from sardonyx.backends.executable import Spec
from sardonyx.errors import SardonyxError
from sardonyx.garbage import RARELY_COLLECTED
from sardonyx.graph.buckets.call_arrays import stand_in
from sardonyx.graph.buckets.derived import Derivation
from sardonyx.graph.buckets.families import SizePattern
from sardonyx.graph.buckets.foreseen import LEAST_SIZE
from sardonyx.graph.buckets.formulas import SizeVector
from sardonyx.graph.buckets.learned_calls import (
    LARGER_IN_PIECES,
    LearnedCalls,
    Pieces,
    WaitingCall,
)
from sardonyx.graph.buckets.patience import OutOfPatience, Patience
from sardonyx.graph.buckets.programs import BucketTooLarge, CannotPad, sizes_text
from sardonyx.graph.buckets.recording import PaddedCalls, PaddedRecording
from sardonyx.graph.buckets.relatives import Relatives
from sardonyx.graph.buckets.savings import part_beside_products
from sardonyx.graph.buckets.searching import Search
from sardonyx.graph.buckets.sizes import LARGEST_SIZE
from sardonyx.graph.calls.dimensions import Shapes
from sardonyx.graph.programs.background import COMPILES, UNFORKED
from sardonyx.graph.programs.replay import Recording
from sardonyx.graph.values.params import Weights
from sardonyx.logs import Log
from sardonyx.printable import first_line

_LOG = Log("buckets")
# After this many calls that could not be traced none is padded any more; and after this many whose
# recordings cannot be derived none is tried.
MOST_FAILURES = 2


@dataclass(frozen=True, eq=False, slots=True)
class BucketJob:
    """Searches, plans and compiles for calls like one of a new size."""

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
            if not has_program:
                learned.let_wait(call)
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

    def best_in_pieces(self, values: Sequence[Any], call: WaitingCall) -> PaddedRecording | None:
        """Return the recording that runs such a call in pieces; compile it if need be."""
        self._compile(lambda: self._in_pieces(values))
        return self.learned.best(call.shapes, call.weights)

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
            return
        if learned.pace.refuses:
            # Calls wait for a compiler in any case.
            self.compile_waiting(values)
        self._write_out(derivation, values)

    def look_ahead(
        self,
        shapes: Shapes,
        patience: Patience,
        turn: AbstractContextManager[None] = RARELY_COLLECTED,
    ) -> None:
        """Search as long as patience lasts; whoever goes on uses the traces so far."""
        learned, pattern, values = self.learned, self.learned.pattern, self.stand_ins(shapes)
        derivation = None
        try:
            with suppress(OutOfPatience), turn:
                derivation = self._derivation(values, pattern, patience)
                if derivation is not None and pattern is not None:
                    with self.lock:
                        learned.derived = derivation, pattern, self.weights.static_version
        finally:
            with self.lock:
                learned.is_busy = False
                learned.is_foreseen &= derivation is not None
        if derivation is not None:
            COMPILES.submit(partial(self._write_out, derivation, values), is_next=True)

    def _write_out(self, derivation: Derivation, values: Sequence[Any]) -> None:
        """Write the stages out as one function, if need be without the batch of one."""
        learned = self.learned
        with UNFORKED, RARELY_COLLECTED:
            derivation.savable = part_beside_products(derivation.stages, self.weights)
            derivation.write_out()
            if derivation.written is not None or min(derivation.smallest) > 1:
                return
            if self.weights.backend.steps_on_numpy() is None:
                return  # Nothing is written out there, whatever the sizes are.
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
            with UNFORKED, self.weights.backend.scope():
                first = LEAST_SIZE if learned.is_foreseen else 0
                derive = partial(self.calls.derivation, least=least, first=first)
                return derive(values, sizes, self.weights, patience)
        except OutOfPatience:
            raise
        except Exception as error:  # A trace of a call will say what is wrong.
            reason = partial(first_line, error)
            _LOG.debug("Recordings of such calls are not derived: %s.", reason)
        return None

    def compile_waiting(self, values: Sequence[Any]) -> None:
        """Compile for most of the last calls, and for all that wait."""
        learned = self.learned
        pattern, shapes = learned.pattern, [tuple(value.shape) for value in values]

        def most_useful() -> Sequence[Any]:
            seen = [each for each in learned.changing.seen(shapes) if learned.fits(each)]
            rest = [each for each in seen if learned.resized(each, self.weights) is None]
            return values if pattern is None else self.calls.like(values, pattern, rest)

        self._compile_for_waiting(lambda: self._in_pieces(values) or self._planned(most_useful()))

    def split_ahead(self, values: Sequence[Any]) -> None:
        """Compile the program of pieces for calls that take long, if their rows are apart."""
        self._compile_for_waiting(lambda: self._in_pieces(values, is_long=True))
        self.learned.is_splitting = False

    def _compile_for_waiting(self, plan: Callable[[], Recording | None]) -> None:
        """Compile what was planned; then all calls that wait use the program if they can."""
        learned = self.learned
        before = learned.compiled
        self._compile(plan)
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
        pairs = zip(shapes, self.relatives.dtypes, strict=True)
        return [stand_in(Spec(*pair)) for pair in pairs]

    def compile_own(self, shapes: Shapes, weights: Weights) -> None:
        """Compile the program of these calls' own bucket, in the background."""
        if self.learned.refusal is None:
            values, job = self.stand_ins(shapes), replace(self, weights=weights)
            COMPILES.submit(partial(job._compile, lambda: job._planned(values)))

    def _compile(self, plan: Callable[[], Recording | None]) -> None:
        learned, start = self.learned, time.perf_counter()
        try:
            with self.weights.backend.scope():
                recording = plan()
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

    def _in_pieces(self, values: Sequence[Any], *, is_long: bool = False) -> Recording | None:
        """Plan how calls run in pieces, and larger ones than came; None if they stay whole."""
        learned, shapes = self.learned, [tuple(value.shape) for value in values]
        pieces = learned.pieces_for(shapes, self.weights, is_long=is_long)
        if pieces is None or self.calls.grow or self.weights.backend.steps_on_numpy() is None:
            return None
        version, size, wanted, _ = pieces
        for largest in (wanted, wanted // LARGER_IN_PIECES):
            with suppress(SardonyxError):  # The model does not run for so many rows.
                arguments = self.plain, self.relatives, values, size, largest, self.weights
                found = self.calls.in_pieces(*arguments)
                if found is not None:
                    recording, size, most = found
                    learned.pieces = Pieces(version, size, most)
                    _LOG.info("Calls of more than %d rows run in pieces of so many.", size)
                    return recording
                break
        learned.pieces = pieces._replace(most=LARGEST_SIZE, are_possible=False)
        return None

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
