"""A nondeterministic automaton that matches a pattern by following all branches at once.

The work is proportional to the length of the text times the size of the pattern. Where a text comes
to states that an earlier one was in, with the same next character, one look-up takes it on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from sardonyx.errors import LimitExceeded

Test = Callable[[str], bool]
Part: TypeAlias = "Chars | Place | Either | Repeat"
# A sequence of parts, matched one after the other.
Parts: TypeAlias = tuple[Part, ...]

MOST_STATES = 2**13
# Maximum number of state visits for one text, apart from look-ups.
MOST_VISITS = 2**22
# Maximum number of states that positions and steps between them may hold.
MOST_REMEMBERED = 2**16
# What a position holds besides its states, and a step, counted in states.
ENTRY = 8
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


@dataclass(eq=False, repr=False, slots=True)
class _Position:
    """All states at one place of a text, and by the next character the position after it.

    No position follows where no state does.
    """

    states: frozenset[_State]
    before: str
    after: dict[str, _Position | None] = field(default_factory=dict)
    # By the next character, whether a match may end here.
    ends: dict[str, bool] = field(default_factory=dict)


class Automaton:
    """The automaton of a pattern."""

    def __init__(self, parts: Parts) -> None:
        self._size = 0
        self._has_places = False
        self._end = self._state([])
        self._start = frozenset([self._sequence(parts, self._end)])
        self._forget()

    def matches(self, text: str) -> bool:
        """Return whether the pattern matches the whole text."""
        position, visits = self._first, 0
        for char in text:
            try:
                following = position.after[char]
            except KeyError:
                following, visited = self._followed(position, char)
                visits += visited
                _check_visits(visits, text)
            if following is None:
                return False
            position = following
        return self._ends(position, "")

    def search(self, text: str, start: int) -> tuple[int, int] | None:
        """Return the bounds of the first match from `start` on, and of several the longest."""
        visits = 0
        for first in range(start, len(text) + 1):
            position: _Position | None
            position = self._position(self._start, text[max(first - 1, 0) : first])
            end = None
            for at in range(first, len(text) + 1):
                if position is None:
                    break
                char = text[at : at + 1]
                end = at if self._ends(position, char) else end
                visits += 1
                if char not in position.after:
                    visits += self._followed(position, char)[1]
                    _check_visits(visits, text)
                position = position.after[char]
            _check_visits(visits, text)
            if end is not None:
                return first, end
        return None

    def _ends(self, position: _Position, char: str) -> bool:
        """Return whether a match may end where a character, or the end of the text, follows."""
        char = char if self._has_places else ""
        ends = position.ends.get(char)
        if ends is None:
            reached = _closure(position.states, position.before, char)
            ends = position.ends[char] = self._end in reached
            self._remembered += 1
        return ends

    def _followed(self, position: _Position, char: str) -> tuple[_Position | None, int]:
        """Return the position after a character, and the number of states visited for it."""
        if self._remembered > MOST_REMEMBERED:
            self._forget()
        reached = _closure(position.states, position.before, char)
        states = frozenset(s.then[0] for s in reached if s.test is not None and s.test(char))
        following = self._position(states, char) if states else None
        position.after[char] = following
        self._remembered += ENTRY
        return following, len(reached)

    def _position(self, states: frozenset[_State], before: str) -> _Position:
        before = before if self._has_places else ""
        position = self._positions.get((states, before))
        if position is None:
            position = self._positions[states, before] = _Position(states, before)
            self._remembered += len(states) + ENTRY
        return position

    def _forget(self) -> None:
        """Drop all positions; those that a text is at live on until it is matched."""
        self._positions: dict[tuple[frozenset[_State], str], _Position] = {}
        self._first = _Position(self._start, "")
        self._remembered = 0

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
                self._has_places = True
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


def _check_visits(visits: int, text: str) -> None:
    if visits > MOST_VISITS:
        raise LimitExceeded(
            f"matching {len(text):,} characters against this pattern takes too long: {_FASTER}"
        )


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
