from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST
from sardonyx.errors import LimitExceeded
from sardonyx.ops import tfidf as ops
from tests.ops.oracle import onnxruntime_run, run

ROW = np.array([1, 1, 3, 3, 3, 7, 8, 6, 7, 5, 6, 8])
ATTRIBUTES: dict[str, Any] = {
    "mode": "TF",
    "min_gram_length": 1,
    "max_gram_length": 2,
    "max_skip_count": 0,
    "ngram_counts": (0, 4),
    "ngram_indexes": (0, 1, 2, 3, 4, 5, 6),
    "pool_int64s": (2, 3, 5, 4, 5, 6, 7, 8, 6, 7),
}


def counted(x: np.ndarray, attributes: dict[str, Any]) -> np.ndarray:
    """Gram by gram, as the standard tells it."""
    pool, starts = attributes["pool_int64s"], attributes["ngram_counts"]
    grams = [
        tuple(pool[i : i + n])
        for n, (start, end) in enumerate(pairwise((*starts, len(pool))), 1)
        for i in range(start, end, n)
    ]
    result = np.zeros((len(x), max(attributes["ngram_indexes"]) + 1))
    for row, tokens in zip(result, x.tolist(), strict=True):
        found: Counter[tuple[int, ...]] = Counter()
        for size in range(attributes["min_gram_length"], attributes["max_gram_length"] + 1):
            for step in range(1, 2 if size == 1 else attributes["max_skip_count"] + 2):
                spans = range(len(tokens) - (size - 1) * step)
                found.update(tuple(tokens[i : i + size * step : step][:size]) for i in spans)
        for gram, column, weight in zip(
            grams, attributes["ngram_indexes"], attributes["weights"], strict=True
        ):
            count = found[gram]
            if attributes["mode"] == "IDF":
                count = min(count, 1)
            row[column] += count if attributes["mode"] == "TF" else count * weight
    return result.astype(np.float32)


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, dict[str, Any]]:
    tokens = st.integers(0, 3)
    sizes = range(1, draw(st.integers(1, 4)) + 1)
    grams = [
        draw(st.lists(st.tuples(*[tokens] * n), max_size=3, unique=True, min_size=n == 1))
        for n in sizes
    ]
    starts = np.cumsum([0] + [n * len(each) for n, each in zip(sizes, grams, strict=True)])
    count = sum(map(len, grams))
    longest = draw(st.integers(1, len(sizes)))
    shape = draw(st.tuples(st.integers(1, 3), st.integers(1, 9)))
    attributes = {
        "mode": draw(st.sampled_from(["TF", "IDF", "TFIDF"])),
        "max_gram_length": longest,
        "min_gram_length": draw(st.integers(1, longest)),
        "max_skip_count": draw(st.integers(0, 4)),
        "ngram_counts": tuple(starts[:-1].tolist()),
        "ngram_indexes": tuple(draw(st.permutations(range(count)))),
        "weights": tuple(np.linspace(0.5, 2, count, dtype=np.float32).tolist()),
        "pool_int64s": tuple(t for each in grams for gram in each for t in gram),
    }
    random = np.random.default_rng(draw(st.integers(0, 99)))
    return random.integers(0, 4, shape), attributes


@pytest.mark.slow
@given(cases())
@settings(deadline=None, max_examples=150)
def test_as_the_standard_tells_it_and_onnxruntime_counts(case: Any) -> None:
    x, attributes = case
    expected = counted(x, attributes)
    found = run(HOST, ops.TfIdfVectorizer, x, **attributes)
    theirs = onnxruntime_run("TfIdfVectorizer", x, opset=9, **attributes)
    for result in (found, theirs):  # Weights are added up in different orders.
        np.testing.assert_allclose(result, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("mode", "skips", "dtype"),
    [("TF", 0, np.int32), ("IDF", 1, np.int64), ("TFIDF", 5, np.int32), ("TF", 2**40, np.int64)],
)
@pytest.mark.sampled(3)
def test_on_every_library(xp: Backend, mode: str, skips: int, dtype: Any) -> None:
    x = np.array([ROW, ROW[::-1]], dtype)
    weights = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5)
    attributes = ATTRIBUTES | {"mode": mode, "max_skip_count": skips, "weights": weights}
    result = run(xp, ops.TfIdfVectorizer, x, **attributes)
    assert result.dtype == np.float32
    expected = counted(x, attributes | {"max_skip_count": min(skips, 20)})
    np.testing.assert_array_equal(result, expected)
    single = run(xp, ops.TfIdfVectorizer, x[0], **attributes)
    np.testing.assert_array_equal(single, expected[0])


def test_strings_are_counted_like_numbers() -> None:
    numbers = run(HOST, ops.TfIdfVectorizer, ROW, **ATTRIBUTES, weights=None)
    words = ATTRIBUTES | {"pool_int64s": None}
    words["pool_strings"] = tuple(map(str, ATTRIBUTES["pool_int64s"]))
    x = np.array([str(token) for token in ROW], object)
    np.testing.assert_array_equal(run(HOST, ops.TfIdfVectorizer, x, **words), numbers)
    del words["pool_int64s"]
    for backend in ("numpy", "jax"):
        result = sardonyx.run_op("TfIdfVectorizer", x, backend=backend, **words)
        np.testing.assert_array_equal(np.asarray(result), numbers)


def test_grams_may_share_a_column_or_be_there_twice(xp: Backend) -> None:
    twice = {"ngram_counts": (0,), "pool_int64s": (3, 7, 3), "ngram_indexes": (1, 1, 4)}
    result = run(xp, ops.TfIdfVectorizer, ROW, **ATTRIBUTES | twice)
    assert result.tolist() == [0, 5, 0, 0, 3]


def test_numbers_of_64_bits_are_told_apart(xp: Backend) -> None:
    far = {"ngram_counts": (0,), "pool_int64s": (2**62, -(2**63)), "ngram_indexes": (0, 1)}
    x = np.array([2**62, 2**62 + 1, -(2**63), 2**63 - 1, 2**62])
    assert run(xp, ops.TfIdfVectorizer, x, **ATTRIBUTES | far).tolist() == [2, 1]


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (0, 0)])
def test_no_tokens_have_no_grams(xp: Backend, shape: tuple[int, ...]) -> None:
    result = run(xp, ops.TfIdfVectorizer, np.zeros(shape, np.int64), **ATTRIBUTES)
    assert result.shape == (*shape[:-1], 7)
    assert not result.any()


def test_a_large_pool_costs_little() -> None:
    random = np.random.default_rng(0)
    pairs = np.unique(random.integers(0, 5000, (50_000, 2)), axis=0)
    attributes = ATTRIBUTES | {
        "ngram_counts": (0, 0),
        "pool_int64s": tuple(pairs.ravel().tolist()),
        "ngram_indexes": tuple(range(len(pairs))),
        "max_skip_count": 1,
    }
    x = random.integers(0, 5000, (8, 500))
    x[0, :2] = pairs[77]
    for xp in (HOST, JaxBackend()):
        result = run(xp, ops.TfIdfVectorizer, x, **attributes)
        assert result.shape == (8, len(pairs))
        assert result[0, 77] >= 1


def test_a_long_gram_costs_what_its_length_says() -> None:
    pool = tuple(range(20_000))
    counts = (0,) * 20_000
    attributes = {"ngram_counts": counts, "pool_int64s": pool, "ngram_indexes": (0,)}
    attributes = ATTRIBUTES | attributes | {"max_gram_length": 10**9}
    assert run(HOST, ops.TfIdfVectorizer, ROW, **attributes).tolist() == [0]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"mode": "BM25"}, "TF, IDF or TFIDF"),
        ({"min_gram_length": 0}, "must satisfy"),
        ({"min_gram_length": 3}, "must satisfy"),
        ({"max_skip_count": -1}, "must satisfy"),
        ({"pool_int64s": ()}, "exactly one"),
        ({"pool_strings": ("a",)}, "exactly one"),
        ({"pool_int64s": None, "pool_strings": ("a",)}, "both"),
        ({"ngram_counts": (0, 3)}, "do not divide"),
        ({"ngram_counts": (1, 4)}, "do not divide"),
        ({"ngram_counts": (0, 40)}, "do not divide"),
        ({"ngram_counts": ()}, "do not divide"),
        ({"ngram_counts": (0, 4, 2)}, "do not divide"),
        ({"ngram_indexes": (0, 1)}, "7 n-grams"),
        ({"ngram_indexes": (0, 1, 2, 3, 4, 5, -1)}, "negative"),
        ({"weights": (1.0,)}, "weights"),
    ],
)
def test_attributes_that_do_not_agree(changed: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(HOST, ops.TfIdfVectorizer, ROW, **ATTRIBUTES | changed)


def test_more_than_two_axes_or_too_many_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="neither a row"):
        run(HOST, ops.TfIdfVectorizer, ROW.reshape(1, 1, -1), **ATTRIBUTES)
    far = {"ngram_indexes": (0, 1, 2, 3, 4, 5, 2**50)}
    with pytest.raises(LimitExceeded):
        run(HOST, ops.TfIdfVectorizer, ROW, **ATTRIBUTES | far)


@pytest.mark.parametrize("indexes", [(0, 1, 2), (5, 0, 2), (1, 0, 1), (400, 0, 7)])
@pytest.mark.parametrize("weights", [(0.5, 2.0, 3.0), (0.5, -2.0, 3.0)])
@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.sampled(6)
def test_single_tokens_in_any_columns(
    xp: Backend, indexes: tuple[int, ...], weights: tuple[float, ...], mode: str
) -> None:
    """Columns in another order, shared ones, ones of no token, and very many of these."""
    attributes = ATTRIBUTES | {
        "mode": mode, "max_gram_length": 1, "ngram_counts": (0,), "pool_int64s": (7, 3, 9),
        "ngram_indexes": indexes, "weights": weights,
    }  # fmt: skip
    x = np.array([ROW, ROW[::-1] - 4, 0 * ROW + 1])
    result = run(xp, ops.TfIdfVectorizer, x, **attributes)
    np.testing.assert_array_equal(result, counted(x, attributes))
    assert not np.signbit(result[result == 0]).any()
