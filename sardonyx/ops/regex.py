"""Full matches of texts against patterns in RE2's syntax, and searches for them.

RE2 itself is used if it is installed. The fallback here is slow and supports only the common part
of the syntax, but its work is proportional to the text's length for every pattern.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial, reduce
from importlib import import_module
from itertools import accumulate
from operator import or_
from typing import Any

from sardonyx.errors import LimitExceeded
from sardonyx.ops.automaton import Automaton, Chars, Either, Part, Parts, Place, Repeat
from sardonyx.ops.characters import Characters
from sardonyx.ops.flat_patterns import full_match

LONGEST_PATTERN = 2**18
# The longest pattern that is tried with Python's own regular expressions.
LONGEST_FLAT = 2**10
# What RE2 refuses of patterns that are read here has one of these: a number or a name.
NUMBERED_OR_NAMED = frozenset("{(")
MOST_REPEATS = 1000
DEEPEST = 50


# The bounds of the first match from a position on, and of several the longest.
Search = Callable[[int], tuple[int, int] | None]


@lru_cache(maxsize=64)
def matcher(pattern: str) -> Callable[[str], object]:
    """Return a function whose result is true if a whole text matches the pattern."""
    match = _flat(pattern) if len(pattern) <= LONGEST_FLAT else None
    if match is not None and pattern.isascii() and NUMBERED_OR_NAMED.isdisjoint(pattern):
        return match  # Without importing RE2, which takes as long as a small graph.
    compiled = _compiled(pattern)
    if match is not None:
        return match
    if isinstance(compiled, Automaton):
        return compiled.matches
    return _test_of_re2(compiled, pattern)


def _flat(pattern: str) -> Callable[[str], object] | None:
    try:
        return full_match(read(pattern), START, END)
    except ValueError:  # Only RE2 itself reads it.
        return None


def _test_of_re2(compiled: Any, pattern: str) -> Callable[[str], object]:
    """Test a set of two patterns, which is faster since it looks for no place of a match.

    The second matches all texts. If it does not, the set has run out of its memory.
    """
    re2 = import_module("re2")
    patterns = re2.Set.FullMatchSet(_options(re2))
    try:
        patterns.Add(pattern)
        patterns.Add("(?s).*")
        patterns.Compile()
    except re2.error:
        return compiled.fullmatch  # type: ignore[no-any-return]  # untyped library

    def matches(text: str) -> object:
        found = patterns.Match(text)
        return compiled.fullmatch(text) if found is None else len(found) == 2

    return matches


@lru_cache(maxsize=64)
def searcher(pattern: str) -> Callable[[str], Search]:
    """Return a function that searches a text for the pattern."""
    compiled = _compiled(pattern)
    if isinstance(compiled, Automaton):
        return lambda text: partial(compiled.search, text)
    return partial(_search_of_re2, compiled)


def _search_of_re2(compiled: Any, text: str) -> Search:
    """Search the text's bytes, so that it is not encoded again for each search."""
    encoded = text.encode()
    if len(encoded) == len(text):
        bounds: Sequence[int] = range(len(text) + 1)
    else:
        bounds = [0, *accumulate(len(char.encode()) for char in text)]

    def search(start: int) -> tuple[int, int] | None:
        at = bounds[start]
        while (match := compiled.search(encoded, at)) is not None:
            first, end = match.span()
            place = bisect_left(bounds, first)
            if bounds[place] == first:
                return place, bisect_left(bounds, end)
            # An empty match between the bytes of one character.
            at = bounds[place]
        return None

    return search


def _compiled(pattern: str) -> Any:
    """Return RE2's pattern, or an automaton if RE2 is not installed."""
    if len(pattern) > LONGEST_PATTERN:
        raise LimitExceeded(
            f"the pattern has {len(pattern):,} characters; at most {LONGEST_PATTERN:,} are allowed"
        )
    try:
        re2 = import_module("re2")
    except ImportError:
        return Automaton(read(pattern))
    try:
        return re2.compile(pattern, _options(re2))
    except re2.error as error:
        detail = error.args[0].decode(errors="replace")
        raise ValueError(f"RE2 rejects the pattern: {detail}") from None


def _options(re2: Any) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.longest_match = True
    # Groups are not needed to find a match, and take memory for each state.
    options.never_capture = True
    return options


# -- character sets and positions -----------------------------------------------------------------


_is_word = Characters.of("09AZ__az")


def _is_border(before: str, after: str) -> bool:
    """Return whether a word begins or ends here."""
    return _is_word(before) != _is_word(after)


SETS = {"d": Characters.of("09"), "s": Characters.of("\t\n\f\r  "), "w": _is_word}
SETS |= {letter.upper(): ~characters for letter, characters in SETS.items()}
START = Place(lambda before, after: not before)
END = Place(lambda before, after: not after)
PLACES = {
    "^": START,
    "$": END,
    r"\A": START,
    r"\z": END,
    r"\b": Place(_is_border),
    r"\B": Place(lambda before, after: not _is_border(before, after)),
}
CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}

# -- parsing a pattern ----------------------------------------------------------------------------

ESCAPE = r"\\[dDsSwWafnrtv]|\\[!-/:-@\[-`{-~]"
MEMBER = re.compile(rf"(?P<first>{ESCAPE}|\[(?!:)|[^\\\[])(?:-(?P<last>{ESCAPE}|[^\\\]]))?", re.S)
TOKEN = re.compile(
    rf"""(?P<open>\((?:\?:|\?P?<\w+>|(?!\?)))|(?P<close>\))|(?P<or>\|)
    |(?P<repeat>[*+?]\??|{{(?P<least>[0-9]+)(?P<comma>,(?P<most>[0-9]*))?}}\??)
    |(?P<place>[$^]|\\[AzbB])|(?P<char>{ESCAPE}|[^\\\[(])
    |\[(?P<not>\^?+)(?P<set>\]?+(?:{ESCAPE}|\[(?!:)|[^\\\[\]])*)\]""",
    re.VERBOSE | re.DOTALL,
)


def read(pattern: str) -> Parts:
    """Parse a pattern into its parts."""
    open_groups, at, may_repeat = [Group()], 0, False
    while at < len(pattern):
        token = TOKEN.match(pattern, at)
        kind = token.lastgroup if token else None
        if token is None or (kind == "repeat" and not may_repeat):
            raise _unknown(pattern, at)
        group = open_groups[-1]
        if kind == "open" and len(open_groups) <= DEEPEST:
            open_groups.append(Group())
        elif kind == "close" and len(open_groups) > 1:
            open_groups.pop()
            open_groups[-1].parts.append(Either(group.finished()))
        elif kind == "or":
            group.branches.append(group.take())
        elif kind == "repeat":
            group.parts.append(_repeated(group.parts.pop(), token))
        elif kind in ("place", "char", "set"):
            group.parts.append(_single(token))
        else:
            raise _unknown(pattern, at)
        may_repeat = kind in ("close", "place", "char", "set")
        at = token.end()
    if len(open_groups) > 1:
        raise _unknown(pattern, at)
    return (Either(open_groups[0].finished()),)


@dataclass(slots=True)
class Group:
    """A group as read so far: its finished branches, and the parts of the next."""

    branches: list[Parts] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)

    def take(self) -> Parts:
        parts, self.parts = tuple(self.parts), []
        return parts

    def finished(self) -> tuple[Parts, ...]:
        return (*self.branches, self.take())


def _repeated(part: Part, token: re.Match[str]) -> Repeat:
    sign = token["repeat"][0]
    least = int(token["least"]) if sign == "{" else int(sign == "+")
    most = 1 if sign == "?" else int(token["most"]) if token["most"] else None
    if sign == "{" and not token["comma"]:
        most = least
    repeat = Repeat((part,), least, most)
    if _copies(repeat) > MOST_REPEATS or (most is not None and most < least):
        raise ValueError(
            f"the pattern repeats {token[0]}; nested repeats may multiply to at most "
            f"{MOST_REPEATS}, and their ends must be in order"
        )
    return repeat


def _copies(part: Part) -> int:
    """Return how many copies of its most repeated part the automaton needs."""
    match part:
        case Either(branches):
            return max((_copies(inner) for branch in branches for inner in branch), default=1)
        case Repeat((body,), least, most):
            return max(1, least if most is None else most) * _copies(body)
    return 1


def _single(token: re.Match[str]) -> Part:
    if token["place"]:
        return PLACES[token["place"]]
    if token["char"]:
        return Chars(~Characters.of("\n\n") if token["char"] == "." else _set(token["char"]))
    members = [_member(member["first"], member["last"]) for member in MEMBER.finditer(token["set"])]
    characters = reduce(or_, members, Characters(()))
    return Chars(~characters if token["not"] else characters)


def _member(first: str, last: str | None) -> Characters:
    """Return one member of a set: a character, a named set or a range."""
    if last is None or first[1:] in SETS:
        return _set(first) | _set("-" if last else first) | _set(last or first)
    low, high = _literal(first), _literal(last)
    if last[1:] in SETS or high < low:
        raise ValueError(f"the pattern has the invalid range of characters {first}-{last}")
    return Characters.of(low + high)


def _set(char: str) -> Characters:
    """Return the set of a character, which may be escaped or name a set."""
    return SETS[char[1]] if char[1:] in SETS else Characters.of(_literal(char) * 2)


def _literal(char: str) -> str:
    return char if len(char) == 1 else CONTROLS.get(char[1], char[1])


def _unknown(pattern: str, at: int) -> ValueError:
    return ValueError(
        f"{pattern[at : at + 20]!r} in the pattern is not supported without google-re2: "
        "pip install 'sardonyx[text]'"
    )
