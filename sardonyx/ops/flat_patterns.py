"""Patterns without branches, in which each character belongs to one part, as Python's patterns.

Python's own regular expressions are fast on short texts. They go back where a match fails, which
takes exponential time for some patterns. In those that are accepted here there is nothing to go
back to.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from sardonyx.ops.automaton import Chars, Either, Part, Parts, Place, Repeat
from sardonyx.ops.characters import Characters

FullMatch = Callable[[str], object]


class Run(NamedTuple):
    """Characters of one set, from `least` to `most` of them; None means unbounded."""

    characters: Characters
    least: int
    most: int | None

    @property
    def pattern(self) -> str:
        """The run in Python's syntax; it takes all that it can, and gives nothing back."""
        most = "" if self.most is None else self.most
        return f"{self.characters.pattern}{{{self.least},{most}}}+"


def full_match(parts: Parts, start: Place, end: Place) -> FullMatch | None:
    """Return Python's full match for a pattern, or None if its parts are not that simple.

    `start` and `end` are the places at the ends of a text, where they change nothing.
    """
    runs = _runs(parts, start, end)
    if runs is None or not all(map(_is_decided, *_followed(runs))):
        return None
    return re.compile("".join([run.pattern for run in runs])).fullmatch


def _runs(parts: Parts, start: Place, end: Place) -> list[Run] | None:
    match parts:
        case (Either((branch,)),):
            first = int(branch[:1] == (start,))
            last = len(branch) - int(branch[-1:] == (end,))
            runs = list(map(_run, branch[first:last]))
            return None if None in runs else [run for run in runs if run and run.most != 0]
    return None


def _run(part: Part) -> Run | None:
    match part:
        case Chars(Characters() as characters):
            return Run(characters, 1, 1)
        case Repeat((Chars(Characters() as characters),), least, most):
            return Run(characters, least, most)
    return None


def _followed(runs: list[Run]) -> tuple[list[Run], list[list[Run]]]:
    """Return the runs, and for each those that may come next after it."""
    following: list[list[Run]] = [[] for _ in runs]
    for place, (_, after) in reversed(list(enumerate(pairwise(runs)))):
        following[place] = [after] if after.least else [after, *following[place + 1]]
    return runs, following


def _is_decided(run: Run, following: list[Run]) -> bool:
    """Return whether a character tells if the run goes on."""
    is_fixed = run.least == run.most
    return is_fixed or not any(run.characters.meets(each.characters) for each in following)
