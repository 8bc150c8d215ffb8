"""A pattern as an automaton that follows all ways through it at once.

Its work is in proportion to the length of the text and the size of the pattern, whatever they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from sardonyx.errors import LimitExceeded

Test = Callable[[str], bool]
Part: TypeAlias = "Chars | Place | Either | Repeat"
# What is to be matched, part by part.
Parts: TypeAlias = tuple[Part, ...]

MOST_STATES = 2**13
# How often states may be visited for one text.
MOST_VISITS = 2**22
_FASTER = "pip install 'sardonyx[text]', which brings google-re2"


@dataclass(frozen=True, eq=False, slots=True)
class Chars:
    """One character of a set."""

    test: Test


@dataclass(frozen=True, eq=False, slots=True)
class Place:
    """A place, told by the characters before and behind it; there is "" beyond the text's ends."""

    is_here: Callable[[str, str], bool]


@dataclass(frozen=True, eq=False, slots=True)
class Either:
    ways: tuple[Parts, ...]


class Repeat(NamedTuple):
    body: Parts
    least: int
    # None where there is no end.
    most: int | None


@dataclass(eq=False, repr=False, slots=True)
class _State:
    """Where to go from here: with the next character if it passes a test, or without one."""

    then: list[_State]
    test: Test | None = None
    place: Place | None = None


class Automaton:
    """The states of a pattern."""

    def __init__(self, parts: Parts) -> None:
        self._size = 0
        self._end = self._state([])
        self._start = self._sequence(parts, self._end)

    def matches(self, text: str) -> bool:
        """Whether the pattern describes the whole text."""
        current, before, visits = {self._start}, "", 0
        for char in text:
            reached = _closure(current, before, char)
            visits += len(reached)
            if visits > MOST_VISITS:
                raise LimitExceeded(
                    f"to match a text of {len(text):,} characters takes too long for this pattern: "
                    f"{_FASTER}"
                )
            current = {s.then[0] for s in reached if s.test is not None and s.test(char)}
            if not current:
                return False
            before = char
        return self._end in _closure(current, before, "")

    def _state(
        self, then: list[_State], test: Test | None = None, place: Place | None = None
    ) -> _State:
        self._size += 1
        if self._size > MOST_STATES:
            raise ValueError(
                f"the pattern has more than {MOST_STATES:,} parts, repeated ones counted each "
                f"time: {_FASTER}"
            )
        return _State(then, test, place)

    def _sequence(self, parts: Sequence[Part], then: _State) -> _State:
        for part in reversed(parts):
            then = self._before(part, then)
        return then

    def _before(self, part: Part, then: _State) -> _State:
        """The state in which a part begins that is followed by `then`."""
        match part:
            case Chars(test):
                return self._state([then], test=test)
            case Place():
                return self._state([then], place=part)
            case Either(ways):
                return self._state([self._sequence(way, then) for way in ways])
        return self._repeated(part, then)

    def _repeated(self, repeat: Repeat, then: _State) -> _State:
        body, least, most = repeat
        end = then
        if most is None:
            then = self._state([end])
            then.then.append(self._sequence(body, then))
        else:
            for _ in range(most - least):
                then = self._state([self._sequence(body, then), end])
        for _ in range(least):
            then = self._sequence(body, then)
        return then


def _closure(states: Iterable[_State], before: str, behind: str) -> set[_State]:
    """The states that are reached from these without taking a character."""
    reached: set[_State] = set()
    waiting = list(states)
    while waiting:
        state = waiting.pop()
        if state in reached:
            continue
        reached.add(state)
        is_open = state.place is None or state.place.is_here(before, behind)
        if state.test is None and is_open:
            waiting += state.then
    return reached
