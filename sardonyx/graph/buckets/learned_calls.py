"""What is learned of calls whose sizes change, while they run."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeAlias

from sardonyx.graph.buckets.automatic import CallBefore, ChangingSizes
from sardonyx.graph.buckets.derived import Derivation
from sardonyx.graph.buckets.families import SizePattern
from sardonyx.graph.buckets.formulas import SizeVector
from sardonyx.graph.buckets.recording import PaddedCalls, PaddedRecording
from sardonyx.graph.buckets.relatives import Likeness
from sardonyx.graph.buckets.searching import Search
from sardonyx.graph.calls.dimensions import Shapes
from sardonyx.graph.programs.replay import Recording
from sardonyx.graph.values.params import Weights
from sardonyx.logs import Log
from sardonyx.printable import first_line

_LOG = Log("buckets")
# Maximum number of calls that use a program as soon as it is compiled.
MOST_WAITING = 256
# Calls with so many times the elements of one that NumPy computes are tried without a bucket, too.
GROWTH_ON_NUMPY = 2
# Calls beside a compiler lose about so many seconds until it is ready, and so many more for each
# step of the program. So they run step by step until it could have saved as much.
SECONDS, SECONDS_PER_STEP = 0.5, 0.02
# The largest call runs in so many pieces at most, and a piece has as many rows at least; for fewer
# rows XLA often takes more time for each. And pieces take as many seconds step by step.
MOST_PIECES, LEAST_ROWS, SHORTEST_PIECE = 8, 8, 0.1
# Calls of so many times the largest size are proved to run in pieces, which costs no time.
LARGER_IN_PIECES = 4
# Runs of so many last sizes say how long one of another size takes.
MOST_TIMES = 16

# Puts a padded recording in the place of the one that a signature had; None forgets the signature.
Publish: TypeAlias = Callable[[PaddedRecording | None], None]


@dataclass(eq=False, slots=True)
class Pace:
    """How long calls take step by step, by the number of elements of their inputs."""

    seconds: dict[int, float] = field(default_factory=dict)

    def note(self, count: int, seconds: float) -> None:
        """Remember a run. Infinite seconds are those of a call that cannot run so."""
        last = dict(self.seconds)
        last[count] = min(last.pop(count, math.inf), seconds)
        if len(last) > MOST_TIMES:
            del last[next(iter(last))]
        # Replaced as a whole, as other threads go through it.
        self.seconds = last

    def at(self, count: int) -> float:
        """Return how long a call with so many elements takes at most, as a rule.

        Larger calls take longer, and others no more time for each element than smaller ones. Some
        of the runs had the compiler beside them, and took twice as long. If larger calls than all
        that ran could not run so, those that are larger still cannot either.

        >>> pace = Pace({10: 1.0, 30: 2.0, 40: 9.0, 50: math.inf})
        >>> pace.at(5), pace.at(10), pace.at(20), pace.at(42), pace.at(60)
        (1.0, 1.0, 2.0, 2.8, inf)
        """
        if self.is_refused(count):
            return math.inf
        runs = self.seconds.items()
        return min((s * max(count / max(n, 1), 1) for n, s in runs), default=math.inf)

    @property
    def refuses(self) -> bool:
        """Whether a call could not run step by step."""
        return math.inf in self.seconds.values()

    def is_refused(self, count: int) -> bool:
        """Whether a call with so many elements cannot run step by step, as far as is known.

        Between the largest that ran and the smallest that did not, the larger half cannot.
        """
        if not self.refuses:
            return False
        most = max((n for n, seconds in self.seconds.items() if seconds < math.inf), default=0)
        refused = min((n for n in self.seconds if n > most), default=math.inf)
        return 2 * count >= most + refused


class Pieces(NamedTuple):
    """How large the pieces of calls are, and up to which size calls run in pieces."""

    # Of the weights.
    version: int
    size: int
    most: int
    # Not if rows depend on one another.
    are_possible: bool = True


class WaitingCall(NamedTuple):
    """A call that can use the program of a bucket when it is compiled."""

    publish: Publish
    shapes: Shapes
    weights: Weights
    # What runs it until then.
    plain: Recording
    began: float


@dataclass(eq=False, slots=True)
class LearnedCalls:
    """How the sizes of similar calls change, and how to pad these calls."""

    changing: ChangingSizes = field(default_factory=ChangingSizes)
    calls: PaddedCalls | None = None
    pattern: SizePattern | None = None
    rest: tuple[int, ...] = ()
    # The last call that was not padded.
    before: CallBefore | None = None
    # The most elements of the inputs of a call that NumPy computes, without a program of XLA.
    most_on_numpy: int = 0
    # Until a program for such calls is compiled in the background: the calls that can use it then.
    waiting: list[WaitingCall] = field(default_factory=list)
    # The process in whose background a job for them waits or runs: a forked one does not have it.
    busy_process: int = 0
    # What derives the recordings of other sizes, with the pattern of their shapes and the version
    # of the weights; and the seconds that programs could have saved of such calls at most.
    derived: tuple[Derivation, SizePattern, int] | None = None
    # For that, if it goes on; None where it is not worth waiting for.
    search: Search | None = None
    # Whether that is looked for since the first call, as the file names a size.
    is_foreseen: bool = False
    # The last call of a new size that traces its own recording, until it has run.
    new: WaitingCall | None = None
    wasted: float = 0.0
    # The same for calls that no bucket serves, as they have a size of 1.
    wasted_alone: float = 0.0
    pace: Pace = field(default_factory=Pace)
    # How often nothing was found that derives them.
    underived: int = 0
    # The last recording that was compiled in the background, and the version of its weights.
    compiled: tuple[int, PaddedRecording] | None = None
    # How calls of many rows run in pieces, once that was looked into.
    pieces: Pieces | None = None
    # Whether a job in the background looks into it.
    is_splitting: bool = False
    # Why these calls are not padded any more.
    refusal: Exception | None = None
    failures: int = 0

    @property
    def is_busy(self) -> bool:
        """Whether a job for them waits or runs in the background."""
        return self.busy_process == os.getpid()

    @is_busy.setter
    def is_busy(self, is_busy: bool) -> None:
        self.busy_process = os.getpid() if is_busy else 0

    def refuse(self, reason: Exception) -> None:
        """Pad such calls no more."""
        self.refusal = reason
        _LOG.info("Calls like these are not padded any more: %s.", partial(first_line, reason))

    def forget(self) -> None:
        """Learn anew how sizes change, as other ones do than the file says."""
        self.is_foreseen = False
        self.calls = self.pattern = self.derived = self.search = None

    def resized(self, shapes: Shapes, weights: Weights) -> PaddedRecording | None:
        """Return the recording for a call whose sizes a compiled program can serve."""
        version, recording = self.compiled or (-1, None)
        if recording is None or version != weights.static_version:
            return None
        return recording.resized(shapes)

    def best(self, shapes: Shapes, weights: Weights) -> PaddedRecording | None:
        """Return the recording in the bucket of a compiled program, unless it takes longer."""
        resized = self.resized(shapes, weights)
        if resized is None or self.is_better_without(resized, shapes, weights):
            return None
        return resized

    def is_better_without(
        self, recording: PaddedRecording, shapes: Shapes, weights: Weights
    ) -> bool:
        """Whether a program takes longer than to run the call itself step by step.

        One for larger sizes often does, and any one where kernels take most of the time.
        """
        known = self.derivation_for(shapes, weights)
        if known is None or not known[0].holds(known[1]):
            return False
        if recording.fastest == math.inf and not recording.pads_much:
            return False  # Nobody knows yet.
        return self.pace.at(elements(shapes)) < recording.fastest

    def derivation_for(
        self, shapes: Shapes, weights: Weights
    ) -> tuple[Derivation, SizeVector] | None:
        """Return what may derive the recording of a call, and its sizes; None if they are new.

        New ones are larger than all for which that was found out.
        """
        if self.derived is None:
            return None
        derivation, pattern, version = self.derived
        if pattern is not self.pattern or version != weights.static_version:
            self.derived = None
            return None
        sizes = pattern.sizes(shapes)
        return (derivation, sizes) if sizes is not None and derivation.reaches(sizes) else None

    @property
    def grows(self) -> bool:
        """Whether results of such calls come back as inputs, one larger, as far as is learned."""
        return self.calls is not None and self.calls.grow

    @property
    def is_settled(self) -> bool:
        """Whether a function of all sizes is all that can run such calls, until one is compiled."""
        is_new = self.compiled is None and self.pieces is None and self.refusal is None
        return is_new and not self.pace.refuses

    def function_again(
        self, likeness: Likeness, sizes: SizeVector, weights: Weights
    ) -> Derivation | None:
        """Return what runs a call like earlier ones; None if there may be more to do for it."""
        if self.derived is None or likeness.pattern is not self.pattern:
            return None
        derivation, pattern, version = self.derived
        is_of_now = pattern is self.pattern and version == weights.static_version
        is_written = derivation.written is not None
        return derivation if is_of_now and is_written and derivation.holds(sizes) else None

    def pieces_for(
        self, shapes: Shapes, weights: Weights, *, is_long: bool = False
    ) -> Pieces | None:
        """Return how large pieces are to be, and up to which size.

        None if calls stay whole, or if all that came can run so already. `shapes` are of a call,
        that `is_long` even if nobody knows yet how long.
        """
        known, largest = self.pieces, self._largest(shapes)
        if largest is None or not (self.pace.seconds or is_long):
            return None
        if known is not None and known.version == weights.static_version:
            if not known.are_possible:
                return None
            if known.most < largest:
                return known._replace(most=LARGER_IN_PIECES * largest)
            is_ready = self.resized(self._of_size(shapes, largest), weights) is not None
            return None if is_ready else known
        seconds = math.inf if is_long else self.pace.at(elements(self._of_size(shapes, largest)))
        count = int(min(MOST_PIECES, seconds / SHORTEST_PIECE, largest / LEAST_ROWS))
        if count < 2:
            return None
        size, most = -(-largest // count), LARGER_IN_PIECES * largest
        return Pieces(weights.static_version, size, most)

    def _largest(self, shapes: Shapes) -> int | None:
        """Return the largest size of calls like these, if only one changes."""
        pattern = self.pattern
        if pattern is None or len(pattern.names) > 1 or pattern.computed:
            return None
        seen = [each for each in (*self.changing.seen(shapes), shapes) if self.fits(each)]
        return max((n[0] for n in map(pattern.sizes, seen) if n is not None), default=None)

    def _of_size(self, shapes: Shapes, size: int) -> Shapes:
        assert self.pattern is not None
        return self.pattern.resized(shapes, (size,))

    def outgrows_pieces(self, shapes: Shapes, weights: Weights) -> bool:
        """Whether such a call is larger than those that run in pieces so far."""
        known = self.pieces
        largest = None if known is None else self._largest(shapes)
        return known is not None and largest is not None and largest > known.most

    def let_wait(self, call: WaitingCall) -> None:
        """Let a call use the program that is compiled next, unless many do."""
        if len(self.waiting) < MOST_WAITING:
            self.waiting.append(call)

    def new_call(self, shapes: Shapes, *, has_ended: bool) -> WaitingCall | None:
        """Return the last call of a new size if it has these shapes; once, if it has ended."""
        call = self.new
        if call is None or call.shapes != shapes:
            return None
        self.new = None if has_ended else call
        return call

    def savable(self, shapes: Shapes, seconds: float) -> float:
        """Return how many of the seconds of a call step by step a program would save, perhaps.

        Kernels and products take as long in both. Without a derivation half is guessed.
        """
        if self.derived is None or seconds == math.inf:
            return seconds / 2
        derivation, pattern, _ = self.derived
        sizes = pattern.sizes(shapes)
        if derivation.written is None or sizes is None:
            return seconds * derivation.savable
        part = math.prod(sizes) / math.prod(derivation.largest)
        return min(seconds, part * derivation.written.seconds)

    def is_worth_compiling(self, wasted: float) -> bool:
        """Whether a program could have saved so many seconds that it is time to compile it."""
        steps = 0 if self.derived is None else self.derived[0].count_steps()
        return wasted >= SECONDS + SECONDS_PER_STEP * steps

    def is_small(self, shapes: Shapes) -> bool:
        """Whether NumPy probably computes such a call: then there is nothing to share."""
        return elements(shapes) <= GROWTH_ON_NUMPY * self.most_on_numpy

    def note_before(self) -> None:
        """Learn from the last call whether NumPy computes such calls."""
        if self.before is not None and self.before.recording.can_be_on_numpy():
            self.most_on_numpy = max(self.most_on_numpy, elements(self.before.shapes))

    def fits(self, shapes: Shapes) -> bool:
        """Whether the sizes of a call depend on one another as those of earlier calls did."""
        if self.pattern is None:
            return False
        sizes, rest = self.pattern.split(shapes)
        return sizes is not None and rest == self.rest


def elements(shapes: Shapes) -> int:
    """Return the number of elements of all inputs."""
    return sum(math.prod(shape) for shape in shapes)
