"""Operators on strings. They run on the host, on NumPy arrays of Python strings."""

from __future__ import annotations

import math
import re
import string
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.size_limits import largest_value, refuse_huge
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import Host, Strings, Unsized, op
from sardonyx.ops.dtypes import UINT8
from sardonyx.ops.options import require_one_of
from sardonyx.ops.regex import matcher

OBJECT = np.dtype(object)


@op
def StringConcat(xp: Backend, X: Array, Y: Array) -> Array:
    first, second = np.asarray(X), np.asarray(Y)
    try:
        shape = np.broadcast_shapes(first.shape, second.shape)
    except ValueError:
        raise ValueError(f"shapes {first.shape} and {second.shape} do not broadcast") from None
    _allow(xp, shape, OBJECT)
    # Text that is repeatedly joined to itself soon exceeds the memory.
    size = math.prod(shape)
    _allow(xp, (_characters(first, size) + _characters(second, size),), UINT8)
    return xp.asarray(np.asarray(first + second, OBJECT))


def _allow(xp: Backend, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Refuse too much text at each call, since its size depends on the inputs."""
    xp.allow(shape, dtype)
    refuse_huge(shape, dtype, xp.largest_value or largest_value())


def _characters(words: Host, size: int) -> int:
    """Return the length of all words together once they are broadcast to so many."""
    return sum(map(len, words.ravel().tolist())) * (size // max(words.size, 1))


def words_in(xp: Backend, X: Array) -> Host:
    """Return the strings of an input, which must not be numbers."""
    if xp.numpy_dtype(X.dtype) != OBJECT:
        raise ValueError("its input must contain strings, but contains numbers")
    return np.asarray(X)


# -- splitting ------------------------------------------------------------------------------------


@op
def StringSplit(
    xp: Backend, X: Array, *, delimiter: str | None = None, maxsplit: int | None = None
) -> tuple[Unsized, Unsized]:
    """Split each string; return the parts, padded with empty strings, and their counts."""
    words = words_in(xp, X)
    most = -1 if maxsplit is None else maxsplit
    parts = [_parts(word, delimiter, most) for word in words.ravel().tolist()]
    table, counts = table_of(xp, parts, words.shape, "")
    return xp.asarray(table), xp.asarray(counts)


def table_of(
    xp: Backend, parts: Sequence[Sequence[str]], shape: tuple[int, ...], blank: str
) -> tuple[Host, Host]:
    """Return lists of strings as an array, padded with `blank` at their ends, and their lengths."""
    counts = np.asarray([len(each) for each in parts], np.int64)
    widest = int(np.max(counts, initial=0))
    _allow(xp, (*shape, widest), OBJECT)
    table = np.full((len(parts), widest), blank, OBJECT)
    table[np.arange(widest) < counts[:, None]] = np.asarray([*chain.from_iterable(parts)], OBJECT)
    return table.reshape(*shape, widest), counts.reshape(shape)


def _parts(word: str, delimiter: str | None, most: int) -> list[str]:
    # ONNX drops white space at the end, even after the last split.
    return word.split(delimiter, most) if delimiter else word.strip().split(None, most)


# -- normalising ----------------------------------------------------------------------------------


@op
def StringNormalizer(
    xp: Backend,
    X: Array,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str | None = None,
    stopwords: Strings | None = None,
) -> Unsized:
    """Remove stop words and change the case; if no word is left, return one empty string."""
    words = words_in(xp, X)
    if words.shape[:-1] not in ((), (1,)) or not words.ndim:
        raise ValueError(f"X has shape {words.shape}, but must be [C] or [1, C]")
    casing, remaining = _casing(locale or "en_US"), words.ravel().tolist()
    changes: dict[str, Callable[[str], str]]
    changes = {"NONE": str, "LOWER": casing.lower, "UPPER": casing.upper}
    require_one_of("case_change_action", case_change_action, changes)
    if stopwords:
        compared = str if is_case_sensitive else casing.folded
        stops = {compared(word) for word in stopwords}
        remaining = [word for word in remaining if compared(word) not in stops]
    remaining = _each(changes[case_change_action], remaining)
    return xp.asarray(np.asarray(remaining or [""], OBJECT).reshape(*words.shape[:-1], -1))


def _each(change: Callable[[str], str], words: list[str]) -> list[str]:
    """Return the changed words: of all at once, unless a line break is in one of them."""
    lines = change("\n".join(words)).split("\n")
    return lines if len(lines) == len(words) else [change(word) for word in words]


class Casing(NamedTuple):
    """The rules for upper and lower case in a language."""

    lower: Callable[[str], str]
    upper: Callable[[str], str]
    # Returns the same text for words that differ only in case.
    folded: Callable[[str], str]


@lru_cache(maxsize=64)
def _casing(locale: str) -> Casing:
    """Return the rules of the language that a locale such as `tr_TR.UTF-8` begins with."""
    named = re.fullmatch(r"([A-Za-z]+)([-_.@].*)?", locale)
    if named is None:
        raise ValueError(f"locale is {locale!r}, but must begin with a language, as in 'en_US'")
    return CASINGS.get(named[1].lower(), Casing(str.lower, str.upper, str.casefold))


def _lower_with_dotless_i(word: str) -> str:
    for upper, lower in (("I\u0307", "i"), ("\u0130", "i"), ("I", "\u0131")):
        word = word.replace(upper, lower)
    return word.lower()


TURKISH = Casing(
    _lower_with_dotless_i,
    lambda word: word.replace("i", "\u0130").upper(),
    lambda word: _lower_with_dotless_i(word).casefold(),
)
_ascii_lower = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_ascii_upper = str.maketrans(string.ascii_lowercase, string.ascii_uppercase)


def _lower_ascii(text: str) -> str:
    return text.lower() if text.isascii() else text.translate(_ascii_lower)


def _upper_ascii(text: str) -> str:
    return text.upper() if text.isascii() else text.translate(_ascii_upper)


ASCII = Casing(_lower_ascii, _upper_ascii, _lower_ascii)
CASINGS = {"tr": TURKISH, "az": TURKISH, "c": ASCII, "posix": ASCII}


# -- matching -------------------------------------------------------------------------------------


@op
def RegexFullMatch(xp: Backend, X: Array, *, pattern: str | None = None) -> Array:
    if pattern is None:
        raise ValueError("the attribute 'pattern' is missing")
    match, words = matcher(pattern), words_in(xp, X)
    matches = np.fromiter(map(match, words.ravel().tolist()), np.bool_, words.size)
    return xp.asarray(matches.reshape(words.shape))
