"""Calls whose sizes turn out to change, where nothing is compiled for one size.

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
from typing import Any

from sardonyx.errors import SardonyxError
from sardonyx.graph.buckets.automatic import ChangingSizes
from sardonyx.graph.buckets.call_arrays import CallArrays
from sardonyx.graph.buckets.derived import Derivation
from sardonyx.graph.buckets.families import Shapes, SizePattern
from sardonyx.graph.buckets.formulas import SizeVector
from sardonyx.graph.buckets.recording import Relatives
from sardonyx.graph.buckets.sampled_traces import SampledTraces
from sardonyx.graph.ir import ValueInfo
from sardonyx.graph.programs.background import COMPILES, unforked
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
AHEAD, AHEAD_OF_GROWING, LEAST_OF_GROWING = 2, 4, 256
# Where the model does not run for such sizes, this many times those half as far ahead are tried.
MOST_HALVINGS = 8
# Calls that reach this part of the largest sizes begin the search for larger ones.
NEARLY = 0.75


@dataclass(frozen=True, eq=False, slots=True)
class Lesson:
    """Which dimensions of similar calls change, by themselves or with others."""

    infos: Sequence[ValueInfo]
    pattern: SizePattern
    # The dimensions that stay.
    rest: tuple[int, ...]
    grows: bool
    samples: SampledTraces

    def sizes(self, shapes: Shapes) -> SizeVector | None:
        """Return the sizes of a call; None if its dimensions follow from others in another way."""
        sizes = self.pattern.sizes(shapes)
        return sizes if self.pattern.rest(shapes) == self.rest else None

    def call(self, values: Sequence[Any], largest: SizeVector) -> CallArrays:
        """Return a call like this one, without data, in a bucket of these sizes."""
        bucket = dict(zip(self.pattern.names, largest, strict=True))
        return replace(CallArrays.of(values, self.infos).without_data, bucket=bucket)


@dataclass(eq=False, slots=True)
class KnownCalls:
    """What is known of calls that differ in sizes only."""

    changing: ChangingSizes = field(default_factory=ChangingSizes)
    # The shapes and the recording of the last call that was looked at.
    before: tuple[Shapes, Recording] | None = None
    lesson: Lesson | None = None
    derivation: Derivation | None = None
    # The version of the weights that the derivation holds for.
    version: int = -1
    # The sizes that every search looks at, inside of those that it tries.
    inner: SizeVector | None = None
    # The smallest sizes for which the model did not run.
    refused: SizeVector | None = None
    failures: int = 0
    # The process in whose background a search waits or runs: a forked one does not have it.
    searching: int = 0

    def learn(self, lesson: Lesson | None) -> None:
        """Forget what was known of calls whose dimensions depended on each other otherwise."""
        self.lesson, self.derivation, self.inner, self.refused = lesson, None, None, None

    def is_covered(self, sizes: SizeVector) -> bool:
        """Whether recordings of these sizes can be derived."""
        return self.derivation is not None and self.derivation.holds(sizes)

    def ends(self, sizes: SizeVector) -> Iterator[SizeVector]:
        """Yield the largest sizes of a search, one after the other until the model runs for them.

        Those that are covered, and those that the model refused, are left out.
        """
        grows = self.lesson is not None and self.lesson.grows
        times, least = (AHEAD_OF_GROWING, LEAST_OF_GROWING) if grows else (AHEAD, 1)
        before = self.derivation.largest if self.derivation is not None else sizes
        base = tuple(map(max, sizes, before)) if self.is_covered(sizes) else sizes
        ahead = [max((times - 1) * size, least) for size in sizes]
        for halvings in range(MOST_HALVINGS):
            end = tuple(n + (more >> halvings) for n, more in zip(sizes, ahead, strict=True))
            if end != base and not self.is_covered(end) and not self._is_refused(end):
                yield end
        if not self.is_covered(sizes):
            yield sizes

    def _is_refused(self, sizes: SizeVector) -> bool:
        refused = self.refused
        return refused is not None and all(n >= r for n, r in zip(sizes, refused, strict=True))

    def wants_search(self, sizes: SizeVector) -> bool:
        """Whether larger sizes are to be traced now."""
        if self.searching == os.getpid() or self.failures >= MOST_FAILURES:
            return False
        if self.is_covered(sizes):
            assert self.derivation is not None
            pairs = zip(sizes, self.derivation.largest, strict=True)
            if all(size <= NEARLY * most for size, most in pairs):
                return False
        return next(self.ends(sizes), None) is not None


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
        shapes = [tuple(value.shape) for value in values]
        with self._lock:
            known = self._known.setdefault(relatives, KnownCalls())
            if len(self._known) > MOST_KINDS:
                del self._known[next(iter(self._known))]
            sizes = self._sizes(known, shapes, weights)
            known.before = shapes, plain
            derivation, lesson = known.derivation, known.lesson
            begins = sizes is not None and known.wants_search(sizes)
            if begins:
                known.searching = os.getpid()
        if sizes is None or lesson is None:
            return plain
        if begins:
            call = lesson.call(values, sizes)
            search = _Search(known, lesson, call, sizes, weights, self._lock)
            COMPILES.submit(search.run)
        if not self._recall(plain, values) and derivation is not None:
            derivation.fill(plain, sizes)
        return plain

    def _sizes(self, known: KnownCalls, shapes: Shapes, weights: Weights) -> SizeVector | None:
        """Note the shapes of a call; return its sizes if they are ones that change."""
        shapes_before, before = known.before or ((), None)
        results = before.output_shapes() if before is not None else ()
        if not known.changing.note(shapes, shapes_before, results):
            return None
        if known.version != weights.static_version:
            known.derivation, known.version, known.failures = None, weights.static_version, 0
        sizes = known.lesson.sizes(shapes) if known.lesson is not None else None
        if sizes is None or min(sizes) < 2:
            known.learn(self._lesson(known, shapes))
            sizes = known.lesson.sizes(shapes) if known.lesson is not None else None
        return sizes if sizes and min(sizes) > 1 else None

    def _lesson(self, known: KnownCalls, shapes: Shapes) -> Lesson | None:
        learned = known.changing.learned(self._infos, shapes, waits=True)
        if learned is None or not learned[1].chosen:
            return None
        infos, sizes = learned
        pattern = SizePattern.of(infos, shapes, list(sizes.chosen))
        return Lesson(infos, pattern, pattern.rest(shapes), sizes.grow, self._new_samples())


@dataclass(frozen=True, eq=False, slots=True)
class _Search:
    """Looks for a derivation for the sizes of a call and larger ones, in the background."""

    known: KnownCalls
    lesson: Lesson
    call: CallArrays
    sizes: SizeVector
    weights: Weights
    lock: Lock

    def run(self) -> None:
        found = None
        try:
            with unforked(), self.lesson.samples.backend.scope():
                found = self._found()
        except Exception as error:  # A trace of a call will say what is wrong.
            _LOG.debug("Recordings of such calls are not derived: %s.", partial(first_line, error))
        known = self.known
        with self.lock:
            is_current = (
                known.lesson is self.lesson and known.version == self.weights.static_version
            )
            if found is not None and is_current:
                known.derivation = found
            known.failures += found is None
            known.searching = 0

    def _found(self) -> Derivation | None:
        """Return the derivation that reaches furthest; None if there is none."""
        known, samples = self.known, self.lesson.samples
        seen = filter(None, map(self.lesson.sizes, known.changing.seen(self.call.shapes)))
        least = tuple(map(min, zip(self.sizes, *seen, strict=True)))
        if known.inner is None:
            known.inner = self.sizes
        for end in known.ends(self.sizes):
            call = replace(self.call, bucket=dict(zip(self.call.bucket, end, strict=True)))
            try:
                samples.sample(call, end, self.weights)
            except SardonyxError:  # It does not run for such sizes.
                known.refused = end
                continue
            for smallest in dict.fromkeys(((2,) * len(end), least)):
                with suppress(SardonyxError):
                    corners = corners_of(smallest, end)
                    found = samples.derivation(call, corners, known.inner, self.weights)
                    if found is not None:
                        return found
            known.refused = end
        return None


def corners_of(smallest: SizeVector, largest: SizeVector) -> list[SizeVector]:
    """Return the sizes to trace: the ends of each dimension, combined, and neighbours of them.

    >>> corners_of((2,), (64,))
    [(64,), (2,), (63,)]
    """
    ends = [(low, max(high - 1, low)) for low, high in zip(smallest, largest, strict=True)]
    return [largest, *product(*ends)]
