"""Tokenizer: it divides strings into tokens, by patterns of them or of what lies between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import Strings, Unsized, op
from sardonyx.ops.regex import Search, searcher
from sardonyx.ops.text import OBJECT, table_of, words_in

START, END = "\x02", "\x03"
ANY_CHARACTER = "."


@op(domain="com.microsoft")
def Tokenizer(
    xp: Backend,
    X: Array,
    *,
    mark: int,
    mincharnum: int,
    pad_value: str,
    separators: Strings | None = None,
    tokenexp: str | None = None,
) -> Unsized:
    """Return the tokens of each string, padded; with `mark`, between two control characters."""
    words = words_in(xp, X)
    if words.ndim not in (1, 2):
        raise ValueError(f"X has shape {words.shape}, but must be [C] or [N, C]")
    tokens_of = _tokens_of(separators, tokenexp, mincharnum)
    if not words.size:
        # The operator's definition has no axis for tokens here.
        return xp.asarray(np.zeros((*words.shape[:-1], 0), OBJECT))
    rows = [tokens_of(word) for word in words.ravel().tolist()]
    if mark and any(rows):
        rows = [[START, *row, END] for row in rows]
    table, _ = table_of(xp, rows, words.shape, pad_value)
    return xp.asarray(table)


def _tokens_of(
    separators: Strings | None, tokenexp: str | None, least: int
) -> Callable[[str], list[str]]:
    """Return a function from a text to its tokens of at least so many characters."""
    if least < 1:
        raise ValueError(f"mincharnum is {least}, but must be positive")
    if not separators and not tokenexp:
        raise ValueError("one of separators and tokenexp must be present and not empty")
    if separators == ("",) or (not separators and tokenexp == ANY_CHARACTER):
        if least > 1:
            raise ValueError(f"mincharnum is {least}, but must be 1, as each token is a character")
        return list
    if separators:
        between = [searcher(separator) for separator in separators]
        return lambda text: _between(text, between, least)
    assert tokenexp is not None
    tokens = searcher(tokenexp)
    return lambda text: [*_matches(text, tokens(text), least)]


def _between(text: str, separators: list[Callable[[str], Search]], least: int) -> list[str]:
    """Divide a text at each separator in turn."""
    parts = [text]
    for find in separators:
        pieces = (piece for part in parts for piece in _pieces(part, find(part)))
        parts = [piece for piece in pieces if len(piece) >= least]
    return parts


def _pieces(text: str, search: Search) -> Iterator[str]:
    start = 0
    while start <= len(text):
        match = search(start)
        if match is None:
            yield text[start:]
            return
        first, end = match
        yield text[start:first]
        # An empty match takes the character after it away.
        start = max(end, first + 1)


def _matches(text: str, search: Search, least: int) -> Iterator[str]:
    if len(text) < least:
        return
    start = 0
    while start <= len(text):
        match = search(start)
        if match is None:
            return
        first, end = match
        if end - first >= least:
            yield text[first:end]
            start = end
        else:
            start = first + 1
