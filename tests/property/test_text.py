"""Operators on strings, against onnxruntime."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.property.agreement import Draw, assert_examples_agree, versions_of
from tests.property.case import Case
from tests.property.strategies import (
    chosen,
    drawn_array,
    drawn_part,
    drawn_shape,
    drawn_types,
    one_in,
    placed,
)

STRINGS = np.dtype(object)
SENTENCES = ["", "a", "a b", " a  b ", "a,b,,c", "aXbXc", "Ärger über", "b\ta", "don't", "日本 語"]
TOKENS = ["the", "The", "monday", "MONDAY", "b-2", "a", ""]
PATTERNS = ["a.*", "[a-z ]*", "a|b", ".*b.*", "", "(a|X|b|c)+", r"\s*a\s+b\s*", "^a b$", "Ä.*"]


def drawn_words(draw: Draw, words: list[str], shape: tuple[int, ...] | None = None) -> np.ndarray:
    shape = drawn_shape(draw, most=3) if shape is None else shape
    return drawn_array(draw, STRINGS, shape, lambda _: np.array(words, object))


def concat(draw: Draw, op: str, opset: int) -> Case:
    whole = drawn_shape(draw, most=4)
    inputs = tuple(drawn_words(draw, SENTENCES, drawn_part(draw, whole)) for _ in range(2))
    return Case(op, opset, inputs, **placed(draw, inputs))


def split(draw: Draw, op: str, opset: int) -> Case:
    x = drawn_words(draw, SENTENCES)
    given = chosen(draw, {"delimiter": ["", " ", ",", "X", "aX"], "maxsplit": [1, 2, 9]})
    return Case(op, opset, (x,), given, outputs=2, **placed(draw, [x]))


def normalize(draw: Draw, op: str, opset: int) -> Case:
    count = draw(st.integers(1, 5))
    x = drawn_words(draw, TOKENS, (count,) if one_in(draw, 2) else (1, count))
    given: dict[str, Any] = chosen(
        draw, {"case_change_action": ["NONE", "LOWER", "UPPER"], "is_case_sensitive": [0, 1]}
    )
    stop = draw(st.lists(st.sampled_from(TOKENS[:-1]), unique=True, max_size=3))
    # Of the locales onnxruntime knows those alone that the machine has.
    given |= {"locale": "C", **({"stopwords": stop} if stop else {})}
    return Case(op, opset, (x,), given, **placed(draw, [x]))


def full_match(draw: Draw, op: str, opset: int) -> Case:
    x = drawn_words(draw, SENTENCES)
    given = {"pattern": draw(st.sampled_from(PATTERNS))}
    return Case(op, opset, (x,), given, **placed(draw, [x]))


def term_frequencies(draw: Draw, op: str, opset: int) -> Case:
    dtype = drawn_types(draw, op, opset)["T"]
    longest = draw(st.integers(1, 3))
    pools: list[list[int]] = []
    for n in range(1, longest + 1):
        gram = st.lists(st.integers(0, 3), min_size=n, max_size=n).map(tuple)
        pools.append([i for g in draw(st.lists(gram, unique=True, max_size=3)) for i in g])
    if not any(pools):
        pools[0] = [0]
    starts = np.cumsum([0, *map(len, pools)])[:-1].tolist()
    count = sum(len(pool) // n for n, pool in enumerate(pools, 1))
    flat = [*chain(*pools)]
    given: dict[str, Any] = {
        "mode": draw(st.sampled_from(["TF", "IDF", "TFIDF"])),
        "ngram_counts": starts,
        "ngram_indexes": draw(st.permutations(range(count))),
        "min_gram_length": draw(st.integers(1, longest)),
        "max_gram_length": longest,
        "max_skip_count": draw(st.integers(0, 3)),
    }
    if draw(st.booleans()):
        given["weights"] = [draw(st.sampled_from([0.5, 1.0, 2.0])) for _ in range(count)]
    shape = drawn_shape(draw, least=1, most=2, empty=False)
    shape = (*shape[:-1], draw(st.integers(1, 8)))
    if dtype.kind == "O":
        given["pool_strings"] = ["abcd"[i] for i in flat]
        x = drawn_words(draw, [*"abcde"], shape)
    else:
        given["pool_int64s"] = flat
        x = drawn_array(draw, dtype, shape, range(5))
    return Case(op, opset, (x,), given, **placed(draw, [x]))


CASES = {
    "StringConcat": concat,
    "StringSplit": split,
    "StringNormalizer": normalize,
    "RegexFullMatch": full_match,
    "TfIdfVectorizer": term_frequencies,
}


@versions_of(CASES)
def test_text(op: str, version: int) -> None:
    assert_examples_agree(CASES[op], op, version)
