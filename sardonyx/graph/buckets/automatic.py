"""Buckets for dimensions that turn out to change: learned from the shapes of the calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, chain, combinations, count, pairwise
from typing import NamedTuple, TypeAlias

from sardonyx.graph.buckets.formulas import MAX_DIMENSIONS
from sardonyx.graph.buckets.sizes import Sizes
from sardonyx.graph.ir import ValueInfo
from sardonyx.graph.programs.replay import Recording

Shapes: TypeAlias = Sequence[tuple[int, ...]]

# A dimension that has this many sizes changes: the program of a bucket pays from there on.
ENOUGH_SIZES = 3
# The last calls, which decide how dimensions depend on one another.
MOST_REMEMBERED = 16
# Dependences that later calls contradict are learned anew this often.
MOST_LESSONS = 5


# Padding costs time, and compiling costs more: no size is padded to more than 1.5 times itself.
STEPS = tuple(sorted({*(2**i for i in range(1, 31)), *(3 * 2**i for i in range(30))}))
# Until the program of a bucket is compiled, that of one up to this many times as large serves its
# calls: tracing and running them step by step takes longer.
REACH = 4
# What grows with each call, as a decoder's cache does, passes through many sizes.
GROWING_STEPS = (64, 256, *(2**i for i in range(10, 31)))


class CallBefore(NamedTuple):
    """The shapes of the last call that was looked at, and its recording."""

    shapes: Shapes
    recording: Recording


class ChangingSizes:
    """The shapes of calls whose arrays have the same libraries, ranks and dtypes."""

    def __init__(self) -> None:
        self._seen: list[tuple[int, ...]] = []
        self._lessons = 0
        self._grows = False

    def note(self, shapes: Shapes, before: CallBefore | None) -> bool:
        """Remember the shapes of a call; return whether its sizes are to be padded.

        The call before says whether its results came back as inputs, one larger.
        """
        sizes = tuple(chain.from_iterable(shapes))
        if sizes not in self._seen:
            self._seen = [*self._seen[1 - MOST_REMEMBERED :], sizes]
        if before is not None and not self._grows and self._grows_by_one():
            pairs = zip(shapes, before.shapes, strict=False)
            changed = {now for now, earlier in pairs if now != earlier}
            self._grows = not changed.isdisjoint(before.recording.output_shapes())
        return len(self._seen) >= ENOUGH_SIZES or self._grows

    @property
    def has_changed(self) -> bool:
        """Whether there was more than one size, so that another may follow."""
        return len(self._seen) > 1

    @property
    def grows(self) -> bool:
        """Whether results came back as inputs, one larger."""
        return self._grows

    def learned(
        self, infos: Sequence[ValueInfo], shapes: Shapes, *, waits: bool
    ) -> tuple[list[ValueInfo], Sizes] | None:
        """Return the inputs with a name for each size that changes by itself, and their buckets.

        If calls wait for the compiler, no larger bucket's program serves them.

        Other dimensions that change are expressions of these names. None if calls have contradicted
        what was learned too often, or if too many sizes change by themselves.
        """
        self._lessons += 1
        if self._lessons > MOST_LESSONS:
            return None
        texts = dict(_expressions(list(zip(*self._seen, strict=True))))
        names = {text for text in texts.values() if text.isidentifier()}
        if len(names) > MAX_DIMENSIONS:
            return None
        steps = GROWING_STEPS if self._grows else STEPS
        places = count()
        named = [
            replace(info, shape=tuple([texts.get(next(places)) or size for size in shape]))
            for info, shape in zip(infos, shapes, strict=True)
        ]
        reach = 1 if waits or self._grows else REACH
        return named, Sizes(dict.fromkeys(sorted(names), steps), grow=self._grows, reach=reach)

    def seen(self, shapes: Shapes) -> list[Shapes]:
        """Return the shapes of the last calls, which have the ranks of `shapes`."""
        ends = list(accumulate(map(len, shapes), initial=0))
        return [[sizes[a:b] for a, b in pairwise(ends)] for sizes in self._seen]

    def _grows_by_one(self) -> bool:
        """Whether each dimension that changes was one larger at each call than at the last."""
        grows = False
        # The last calls first: they alone tell this of most others.
        for later, earlier in pairwise(reversed(self._seen)):
            for after, before in zip(later, earlier, strict=True):
                if after - before not in (0, 1):
                    return False
                grows |= after != before
        return grows


def _expressions(columns: Sequence[tuple[int, ...]]) -> Iterator[tuple[int, str]]:
    """Yield a text for each dimension that changes: a name, or an expression of smaller ones.

    >>> dict(_expressions([(3, 4, 9), (7, 7, 7), (4, 5, 10), (2, 6, 1), (5, 10, 10)]))
    {3: 'n3', 0: 'n0', 2: 'n0 + 1', 4: 'n3 + n0'}
    """
    leaders: list[tuple[tuple[int, ...], str]] = []
    changing = [i for i, column in enumerate(columns) if len(set(column)) > 1]
    for i in sorted(changing, key=lambda i: (sum(columns[i]), i)):
        text = _expression(columns[i], leaders)
        if text is None:
            text = f"n{i}"
            leaders.append((columns[i], text))
        yield i, text
        if len(leaders) > MAX_DIMENSIONS:
            return


def _expression(
    column: tuple[int, ...], leaders: Sequence[tuple[tuple[int, ...], str]]
) -> str | None:
    """Return a column as a sum of a known one and a number, or of two; None if it is neither."""
    for other, name in leaders:
        offsets = {a - b for a, b in zip(column, other, strict=True)}
        if len(offsets) == 1:
            offset = offsets.pop()
            return f"{name} + {offset}" if offset > 0 else name if not offset else None
    for (first, name), (second, second_name) in combinations(leaders, 2):
        if all(c == a + b for a, b, c in zip(first, second, column, strict=True)):
            return f"{name} + {second_name}"
    return None
