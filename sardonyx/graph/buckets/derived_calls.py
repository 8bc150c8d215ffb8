"""Calls whose sizes turn out to change, and that need no program of their own.

Tracing each new size would take as long as the call, or longer. So a thread in the background finds
out how to derive the recordings of all sizes up to some that are larger than those of the calls;
and before calls reach these, it goes on to larger ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from threading import Lock
from typing import Any, NamedTuple

from sardonyx.backends.blas_choice import BlasChoice
from sardonyx.errors import SardonyxError
from sardonyx.graph.buckets.automatic import CallBefore, ChangingSizes
from sardonyx.graph.buckets.call_arrays import CallArrays
from sardonyx.graph.buckets.derived import Derivation
from sardonyx.graph.buckets.families import CallSizes, SizePattern
from sardonyx.graph.buckets.formulas import SizeVector
from sardonyx.graph.buckets.relatives import Likeness, Relatives
from sardonyx.graph.buckets.sampled_traces import SampledTraces
from sardonyx.graph.buckets.searching import Search
from sardonyx.graph.calls.dimensions import Shapes
from sardonyx.graph.ir import ValueInfo
from sardonyx.graph.programs.background import COMPILES, UNFORKED
from sardonyx.graph.programs.replay import Recording
from sardonyx.graph.values.params import Weights
from sardonyx.logs import Log
from sardonyx.printable import first_line

_LOG = Log("buckets")
# Maximum number of kinds of call that differ in more than sizes; the oldest is forgotten.
MOST_KINDS = 64
# After so many searches in which nothing was found, no further one is made.
MOST_FAILURES = 2
# Recordings are derived for sizes up to so many times those of the calls; for sizes that grow with
# each call up to more, and at least so many beyond them.
AHEAD, AHEAD_OF_GROWING, LEAST_OF_GROWING = 2, 4, 512
# Where the model does not run for such sizes, this many times those half as far ahead are tried;
# and where what it does follows no formula, so many times.
MOST_HALVINGS = 8
MOST_IRREGULAR = 2
# Maximum number of traced calls that use what is found.
MOST_TRACED = 32
# Calls that reach this part of the largest sizes begin the search for larger ones.
NEARLY = 0.75


class StillSearching(Exception):  # noqa: N818  (a signal, not an error)
    """Nobody knows yet whether recordings of such calls can be derived."""


@dataclass(eq=False, slots=True)
class Lesson:
    """Which dimensions of similar calls change, and what derives the recordings of such calls."""

    infos: Sequence[ValueInfo]
    pattern: SizePattern
    # The dimensions that stay.
    rest: tuple[int, ...]
    # Whether results come back as inputs, one larger.
    grows: bool
    # The smallest and the largest sizes of the calls so far, each dimension for itself.
    least: SizeVector
    most: SizeVector
    samples: SampledTraces
    # The version of the weights that all of the following holds for.
    version: int
    derivation: Derivation | None = None
    # The smallest sizes that no search needs to reach.
    refused: SizeVector | None = None
    # Chooses the threads of calls that grow one by one.
    choice: BlasChoice = field(default_factory=BlasChoice)

    def sizes(self, shapes: Shapes) -> SizeVector | None:
        """Return the sizes of a call; None if its dimensions follow from others in another way."""
        sizes, rest = self.pattern.split(shapes)
        return sizes if rest == self.rest else None

    def note(self, sizes: SizeVector) -> None:
        """Remember the sizes of a call."""
        self.least = tuple(map(min, self.least, sizes))
        self.most = tuple(map(max, self.most, sizes))

    def is_nearly_left(self, sizes: SizeVector) -> bool:
        """Whether the next calls may have sizes that are not covered."""
        if self.derivation is None or not self.derivation.holds(sizes):
            return True
        pairs = zip(sizes, self.derivation.largest, strict=True)
        return any(size > NEARLY * most for size, most in pairs)

    def ends(self) -> Iterator[SizeVector]:
        """Yield the largest sizes of a search, from which it takes the first that the model allows.

        It leaves out sizes that are covered already, or that the model refused.
        """
        times, fewest = (AHEAD_OF_GROWING, LEAST_OF_GROWING) if self.grows else (AHEAD, 1)
        before = self.most if self.derivation is None else self.derivation.largest
        begin = tuple(map(max, self.most, before))
        ahead = [max((times - 1) * size, fewest) for size in self.most]
        for halvings in range(MOST_HALVINGS):
            end = tuple(n + (more >> halvings) for n, more in zip(begin, ahead, strict=True))
            if end != begin and not self._is_refused(end):
                yield end
        if not self._is_covered(begin):
            yield begin

    def _is_covered(self, end: SizeVector) -> bool:
        derivation = self.derivation
        return derivation is not None and derivation.holds(end) and derivation.holds(self.least)

    def _is_refused(self, sizes: SizeVector) -> bool:
        refused = self.refused
        return refused is not None and all(n >= r for n, r in zip(sizes, refused, strict=True))


class TracedCall(NamedTuple):
    """The recording of a call, and its sizes as this lesson has them."""

    lesson: Lesson
    sizes: SizeVector
    recording: Recording


@dataclass(eq=False, slots=True)
class KnownCalls:
    """What is known about calls that differ only in their sizes."""

    changing: ChangingSizes = field(default_factory=ChangingSizes)
    before: CallBefore | None = None
    lesson: Lesson | None = None
    failures: int = 0
    # The process in whose background a search waits or runs: a forked one does not have it.
    searching: int = 0
    # That search; None where it is not worth waiting for.
    search: Search | None = None
    # The last calls that were traced: they run what the search finds, too.
    traced: list[TracedCall] = field(default_factory=list)

    def note(self, shapes: Shapes, recording: Recording) -> bool:
        """Note a call; return whether the sizes of such calls change."""
        before, self.before = self.before, CallBefore(shapes, recording)
        return self.changing.note(shapes, before)

    def wants_search(self, lesson: Lesson, sizes: SizeVector) -> bool:
        """Whether larger sizes are to be traced now."""
        if self.searching == os.getpid() or self.failures >= MOST_FAILURES:
            return False
        return lesson.is_nearly_left(sizes) and next(lesson.ends(), None) is not None


class DerivedCalls:
    """The recordings of calls whose sizes turn out to change."""

    def __init__(
        self,
        new_samples: Callable[[], SampledTraces],
        infos: Sequence[ValueInfo],
        recall: Callable[[Recording, Sequence[Any]], bool],
    ) -> None:
        self._new_samples = new_samples
        self._infos = infos
        # Fills a recording, if another process has recorded such a call.
        self._recall = recall
        self._known: dict[Any, KnownCalls] = {}
        self._lock = Lock()

    def recording(
        self,
        plain: Recording,
        relatives: Relatives | None,
        values: Sequence[Any],
        weights: Weights,
    ) -> Recording:
        """Return the recording for calls with inputs like these: filled if it can be derived."""
        if plain.inline or relatives is None or relatives.donated:
            return plain
        derivation, sizes = self._derivation(plain, relatives, values, weights)
        if not self._recall(plain, values) and derivation is not None:
            derivation.prepare(plain, sizes, None)
        return plain

    def serve(
        self,
        plain: Recording,
        relatives: Relatives,
        values: Sequence[Any],
        weights: Weights,
        changing: ChangingSizes,
    ) -> Derivation | None:
        """Let an empty recording run calls like these by a function of all sizes, if there is one.

        What changes is known already. Raise `StillSearching` if it may turn out that there is one.
        """
        derivation, sizes = self._derivation(plain, relatives, values, weights, changing)
        known = self._known.get(relatives)
        is_searching = known is not None and known.searching == os.getpid()
        if derivation is not None and derivation.holds(sizes):
            if derivation.written is not None or is_searching:
                derivation.prepare(plain, sizes, plain.tree.decide)
                return derivation
        elif is_searching:
            raise StillSearching
        return None

    def pattern_of(self, relatives: Relatives, _: Shapes) -> SizePattern | None:
        """Return how the sizes of such calls change, if that is known."""
        known = self._known.get(relatives)
        return None if known is None or known.lesson is None else known.lesson.pattern

    def serve_again(
        self, plain: Recording, likeness: Likeness, call: CallSizes, weights: Weights
    ) -> bool:
        """Let an empty recording run a call as earlier ones; False if there may be more to do."""
        derivation = self.function_again(plain, likeness, call, weights)
        if derivation is not None:
            derivation.prepare(plain, call.sizes, None)
        return derivation is not None

    def function_again(
        self, plain: Recording, likeness: Likeness, call: CallSizes, weights: Weights
    ) -> Derivation | None:
        """Return what runs a call like earlier ones; None if there may be more to do for it."""
        with self._lock:
            known = self._known.get(likeness.relatives)
            lesson = None if known is None else known.lesson
            if known is None or lesson is None or lesson.pattern is not likeness.pattern:
                return None
            derivation = lesson.derivation
            is_written = derivation is not None and derivation.written is not None
            is_of_now = lesson.version == weights.static_version
            if not (is_written and is_of_now) or known.searching == os.getpid():
                return None
            if lesson.is_nearly_left(call.sizes):
                return None
            known.note(call.shapes, plain)
            lesson.note(call.sizes)
            return derivation

    def _derivation(
        self,
        plain: Recording,
        relatives: Relatives,
        values: Sequence[Any],
        weights: Weights,
        changing: ChangingSizes | None = None,
    ) -> tuple[Derivation | None, SizeVector]:
        """Return what may derive the recording of such a call, and its sizes; look for it first."""
        shapes = [tuple(value.shape) for value in values]
        with self._lock:
            known = self._known.get(relatives) or self._first_of(relatives, changing)
            lesson = self._lesson(known, shapes, plain, weights.static_version)
            sizes = lesson.sizes(shapes) if lesson is not None else None
            if lesson is None or sizes is None:
                return None, ()
            lesson.note(sizes)
            derivation, begins = lesson.derivation, known.wants_search(lesson, sizes)
            if begins:
                known.searching, known.search = os.getpid(), Search()
            is_written = derivation is not None and derivation.written is not None
            is_served = is_written and derivation is not None and derivation.holds(sizes)
            is_searching, search = known.searching == os.getpid(), known.search
            if is_searching and not is_served:
                call = TracedCall(lesson, sizes, plain)
                known.traced = [*known.traced[1 - MOST_TRACED :], call]
        if begins and search is not None:
            arrays = CallArrays.of(values, lesson.infos).without_data
            job = _SearchJob(known, lesson, arrays, sizes, weights, self._lock, search)
            # It takes less time than the compiler needs for one of the programs that wait there.
            COMPILES.submit(job.run, is_next=True)
        if is_searching and not is_served and search is not None:
            derivation = self._awaited(known, lesson, search)
        return derivation, sizes

    def _first_of(self, relatives: Relatives, changing: ChangingSizes | None) -> KnownCalls:
        """Begin to learn about calls like these."""
        known = self._known[relatives] = KnownCalls(changing or ChangingSizes())
        if len(self._known) > MOST_KINDS:
            del self._known[next(iter(self._known))]
        return known

    def _awaited(self, known: KnownCalls, lesson: Lesson, search: Search) -> Derivation | None:
        """Wait for a search; return what derives the recordings of calls then."""
        has_ended = search.wait()
        with self._lock:
            if not has_ended and known.search is search:
                # It waits for a compile, or takes long.
                known.search = None
            return lesson.derivation

    def _lesson(
        self, known: KnownCalls, shapes: Shapes, plain: Recording, version: int
    ) -> Lesson | None:
        """Note the shapes of a call; return what is known of those whose sizes change like its."""
        if not known.note(shapes, plain):
            return None
        lesson = known.lesson
        if lesson is None or lesson.sizes(shapes) is None:
            known.lesson = self._learned(known, shapes, version)
        elif lesson.version != version:
            samples = self._new_samples()
            known.lesson = replace(lesson, samples=samples, version=version, derivation=None)
            known.failures = 0
        return known.lesson

    def _learned(self, known: KnownCalls, shapes: Shapes, version: int) -> Lesson | None:
        learned = known.changing.learned(self._infos, shapes, waits=True)
        if learned is None or not learned[1].chosen:
            return None
        infos, sizes = learned
        pattern = SizePattern.of(infos, shapes, list(sizes.chosen))
        own, rest = pattern.split(shapes)
        if own is None:
            return None
        lesson = Lesson(infos, pattern, rest, sizes.grow, own, own, self._new_samples(), version)
        for each in filter(None, map(lesson.sizes, known.changing.seen(shapes))):
            lesson.note(each)
        return lesson


@dataclass(frozen=True, eq=False, slots=True)
class _SearchJob:
    """Looks for a derivation for the sizes of a call and larger ones, in the background."""

    known: KnownCalls
    lesson: Lesson
    call: CallArrays
    sizes: SizeVector
    weights: Weights
    lock: Lock
    search: Search

    def run(self) -> None:
        """Find it, and let the calls that were traced meanwhile run what is found."""
        with self.search.running():
            self._run()

    def _run(self) -> None:
        lesson, found = self.lesson, None
        with UNFORKED, lesson.samples.backend.scope():
            try:
                found = self._found()
                if found is not None:
                    lesson.derivation = found  # Calls use it from now on.
                    found = self._written_out(found)
            except Exception as error:  # A trace of a call will say what is wrong.
                reason = partial(first_line, error)
                _LOG.debug("Recordings of such calls are not derived: %s.", reason)
        with self.lock:
            lesson.derivation = found or lesson.derivation
            self.known.failures = 0 if found else self.known.failures + 1
            self.known.searching = 0
            traced, self.known.traced = self.known.traced, []
        if found is not None and found.written is not None:
            for of, sizes, recording in traced:
                if of is lesson:
                    found.prepare(recording, sizes, recording.tree.decide)

    def _written_out(self, found: Derivation) -> Derivation:
        """Write the stages out; return the derivation of which that is possible, if there is one.

        The smallest sizes may be special, as where nothing is left of them after a slice.
        """
        lesson, end = self.lesson, found.largest
        choice = lesson.choice if lesson.grows else None
        found.choice = choice
        found.write_out()
        if found.written is None and self.weights.backend.steps_on_numpy() is not None:
            call = replace(self.call, bucket=dict(zip(lesson.pattern.names, end, strict=True)))
            corners = corners_of(lesson.least, end)
            other = None
            if lesson.least != found.smallest:
                other = lesson.samples.derivation(call, corners, self.sizes, self.weights)
            if other is not None:
                other.choice = choice
                other.write_out()
                return found if other.written is None else other
        return found

    def _found(self) -> Derivation | None:
        """Return the derivation that reaches furthest; None if there is none."""
        lesson, irregular = self.lesson, 0
        for end in lesson.ends():
            call = replace(self.call, bucket=dict(zip(lesson.pattern.names, end, strict=True)))
            with suppress(SardonyxError):  # It does not run for such sizes.
                if lesson.samples.sample(call, end, self.weights).is_special:
                    return None
                found = self._found_up_to(end, call)
                if found is not None:
                    return found
                irregular += 1
            lesson.refused = end
            if irregular == MOST_IRREGULAR:
                break
        return None

    def _found_up_to(self, end: SizeVector, call: CallArrays) -> Derivation | None:
        """Return the derivation for sizes up to these, from the smallest ones on that it allows."""
        lesson = self.lesson
        for smallest in dict.fromkeys(((2,) * len(end), lesson.least)):
            with suppress(SardonyxError):
                corners = corners_of(smallest, end)
                found = lesson.samples.derivation(call, corners, self.sizes, self.weights)
                if found is not None:
                    return found
        return None


def corners_of(smallest: SizeVector, largest: SizeVector) -> list[SizeVector]:
    """Return the sizes to trace: the ends of each dimension, combined, and neighbours of them.

    >>> corners_of((2,), (64,))
    [(64,), (2,), (63,)]
    """
    ends = [(low, max(high - 1, low)) for low, high in zip(smallest, largest, strict=True)]
    return [largest, *product(*ends)]
