"""Whether a text as a whole is one that a pattern describes, in RE2's syntax and meaning.

By RE2 itself where it is installed. Otherwise by what is written here: slowly, and for the common
part of the syntax alone, but with work in proportion to the text's length whatever the pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module

from sardonyx.errors import LimitExceeded
from sardonyx.ops.automaton import Automaton, Chars, Either, Part, Parts, Place, Repeat

Test = Callable[[str], bool]

LONGEST_PATTERN = 2**18
MOST_REPEATS = 1000
DEEPEST = 50


@lru_cache(maxsize=64)
def matcher(pattern: str) -> Test:
    """A function that says of a text whether it matches in full."""
    if len(pattern) > LONGEST_PATTERN:
        raise LimitExceeded(
            f"the pattern has {len(pattern):,} characters; at most {LONGEST_PATTERN:,} are allowed"
        )
    try:
        re2 = import_module("re2")
    except ImportError:
        return Automaton(read(pattern)).matches
    options = re2.Options()
    options.log_errors = False
    # Whoever asks only whether a text matches needs no groups, which take memory for each state.
    options.never_capture = True
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        told = error.args[0].decode(errors="replace")
        raise ValueError(f"the pattern is none of RE2's: {told}") from None
    return lambda text: compiled.fullmatch(text) is not None


# -- sets and places ------------------------------------------------------------------------------


def _within(ranges: str) -> Test:
    """Whether a character is in one of several ranges, each given by its ends."""
    pairs = list(zip(ranges[::2], ranges[1::2], strict=True))
    return lambda char: any(first <= char <= last for first, last in pairs)


def _not(test: Test) -> Test:
    return lambda char: not test(char)


_is_word = _within("09AZ__az")


def _is_border(before: str, behind: str) -> bool:
    """Whether a word begins or ends here."""
    return _is_word(before) != _is_word(behind)


SETS = {"d": _within("09"), "s": _within("\t\n\f\r  "), "w": _is_word}
SETS |= {letter.upper(): _not(test) for letter, test in SETS.items()}
START = Place(lambda before, behind: not before)
END = Place(lambda before, behind: not behind)
PLACES = {
    "^": START,
    "$": END,
    r"\A": START,
    r"\z": END,
    r"\b": Place(_is_border),
    r"\B": Place(lambda before, behind: not _is_border(before, behind)),
}
CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}

# -- reading a pattern ----------------------------------------------------------------------------

ESCAPE = r"\\[dDsSwWafnrtv]|\\[!-/:-@\[-`{-~]"
MEMBER = re.compile(rf"(?P<first>{ESCAPE}|\[(?!:)|[^\\\[])(?:-(?P<last>{ESCAPE}|[^\\\]]))?", re.S)
TOKEN = re.compile(
    rf"""(?P<open>\((?:\?:|\?P?<\w+>|(?!\?)))|(?P<close>\))|(?P<way>\|)
    |(?P<repeat>[*+?]\??|{{(?P<least>[0-9]+)(?P<comma>,(?P<most>[0-9]*))?}}\??)
    |(?P<place>[$^]|\\[AzbB])|(?P<char>{ESCAPE}|[^\\\[(])
    |\[(?P<not>\^?)(?P<set>\]?(?:{ESCAPE}|\[(?!:)|[^\\\[\]])*)\]""",
    re.VERBOSE | re.DOTALL,
)


def read(pattern: str) -> Parts:
    """The parts of a pattern."""
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
        elif kind == "way":
            group.ways.append(group.taken())
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
    """What has been read of a group: its finished ways, and the parts of the next."""

    ways: list[Parts] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)

    def taken(self) -> Parts:
        parts, self.parts = tuple(self.parts), []
        return parts

    def finished(self) -> tuple[Parts, ...]:
        return (*self.ways, self.taken())


def _repeated(part: Part, token: re.Match[str]) -> Repeat:
    sign = token["repeat"][0]
    least = int(token["least"]) if sign == "{" else int(sign == "+")
    most = 1 if sign == "?" else int(token["most"]) if token["most"] else None
    if sign == "{" and not token["comma"]:
        most = least
    repeat = Repeat((part,), least, most)
    if _copies(repeat) > MOST_REPEATS or (most is not None and most < least):
        raise ValueError(f"the pattern repeats {token[0]}; {MOST_REPEATS} is the most, all in all")
    return repeat


def _copies(part: Part) -> int:
    """How often the most repeated of what is in a part must be there."""
    match part:
        case Either(ways):
            return max((_copies(inner) for way in ways for inner in way), default=1)
        case Repeat((body,), least, most):
            return max(1, least if most is None else most) * _copies(body)
    return 1


def _single(token: re.Match[str]) -> Part:
    if token["place"]:
        return PLACES[token["place"]]
    if token["char"]:
        return Chars(_not(_within("\n\n")) if token["char"] == "." else _test(token["char"]))
    members = list(MEMBER.finditer(token["set"]))
    tests = [test for member in members for test in _tests(member["first"], member["last"])]

    def is_member(char: str) -> bool:
        return any(test(char) for test in tests)

    return Chars(_not(is_member) if token["not"] else is_member)


def _tests(first: str, last: str | None) -> list[Test]:
    """What a character is held against for one member of a set."""
    if last is None or first[1:] in SETS:
        return [_test(each) for each in (first, "-" if last else first, last or first)]
    low, high = _literal(first), _literal(last)
    if last[1:] in SETS or high < low:
        raise ValueError(f"the pattern has a set of characters from {first} to {last}")
    return [_within(low + high)]


def _test(char: str) -> Test:
    """The test for a character, which may be escaped, or for the set that an escaped one names."""
    return SETS[char[1]] if char[1:] in SETS else _within(_literal(char) * 2)


def _literal(char: str) -> str:
    return char if len(char) == 1 else CONTROLS.get(char[1], char[1])


def _unknown(pattern: str, at: int) -> ValueError:
    return ValueError(
        f"{pattern[at : at + 20]!r} in the pattern is no syntax that is known without google-re2: "
        "pip install 'sardonyx[text]'"
    )
