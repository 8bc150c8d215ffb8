"""A nondeterministic automaton that matches a pattern by following all branches at once.

The work is proportional to the length of the text times the size of the pattern.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from sardonyx.errors import LimitExceeded

Test = Callable[[str], bool]
Part: TypeAlias = "Chars | Place | Either | Repeat"
# A sequence of parts, matched one after the other.
Parts: TypeAlias = tuple[Part, ...]

MOST_STATES = 2**13
# Maximum number of state visits for one text.
MOST_VISITS = 2**22
_FASTER = "install google-re2 with pip install 'sardonyx[text]'"


@dataclass(frozen=True, eq=False, slots=True)
class Chars:
    """One character of a set."""

    test: Test


@dataclass(frozen=True, eq=False, slots=True)
class Place:
    """A position, tested by the characters before and after it ("" at the ends of the text)."""

    test: Callable[[str, str], bool]


@dataclass(frozen=True, eq=False, slots=True)
class Either:
    branches: tuple[Parts, ...]


class Repeat(NamedTuple):
    body: Parts
    least: int
    # None means unbounded.
    most: int | None


@dataclass(eq=False, repr=False, slots=True)
class _State:
    """A state: with a test it consumes one character that passes, without one it consumes none."""

    then: list[_State]
    test: Test | None = None
    place: Place | None = None


class Automaton:
    """The automaton of a pattern."""

    def __init__(self, parts: Parts) -> None:
        self._size = 0
        self._end = self._state([])
        self._start = self._sequence(parts, self._end)

    def matches(self, text: str) -> bool:
        """Return whether the pattern matches the whole text."""
        current, before, visits = {self._start}, "", 0
        for char in text:
            reached = _closure(current, before, char)
            visits += len(reached)
            if visits > MOST_VISITS:
                raise LimitExceeded(
                    f"matching {len(text):,} characters against this pattern takes too long: "
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
                f"the pattern expands to more than {MOST_STATES:,} parts, counting every "
                f"repetition: {_FASTER}"
            )
        return _State(then, test, place)

    def _sequence(self, parts: Sequence[Part], then: _State) -> _State:
        for part in reversed(parts):
            then = self._before(part, then)
        return then

    def _before(self, part: Part, then: _State) -> _State:
        """Return the first state of a part that `then` follows."""
        match part:
            case Chars(test):
                return self._state([then], test=test)
            case Place():
                return self._state([then], place=part)
            case Either(branches):
                return self._state([self._sequence(branch, then) for branch in branches])
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


def _closure(states: Iterable[_State], before: str, after: str) -> set[_State]:
    """Return the states that are reachable from these without consuming a character."""
    reached: set[_State] = set()
    waiting = list(states)
    while waiting:
        state = waiting.pop()
        if state in reached:
            continue
        reached.add(state)
        is_open = state.place is None or state.place.test(before, after)
        if state.test is None and is_open:
            waiting += state.then
    return reached
