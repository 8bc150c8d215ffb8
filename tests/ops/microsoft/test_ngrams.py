from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.errors import InvalidInput
from tests.ops.microsoft.comparison import assert_agrees, results


@pytest.mark.parametrize("size", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("length", [0, 1, 4, 8])
def test_repeated_ngrams_are_blocked(xp: Backend, size: int, length: int) -> None:
    rng = np.random.default_rng(size)
    tokens = rng.integers(0, 3, (4, length), np.int64)
    scores = rng.normal(size=(4, 5)).astype(np.float32)
    scores[0] = np.nan
    assert_agrees(xp, "NGramRepeatBlock", tokens, scores, ngram_size=size)


@pytest.mark.parametrize(
    ("tokens", "scores", "size", "message"),
    [
        ((2, 3), (3, 4), 2, "input_ids has shape"),
        ((3,), (3, 4), 2, "input_ids has shape"),
        ((2, 3), (2, 4), 0, "ngram_size is 0"),
        ((2, 3), (2, 1), 2, "'input_ids' holds 1"),
    ],
)
def test_ngrams_are_checked(tokens: Any, scores: Any, size: int, message: str) -> None:
    inputs = np.ones(tokens, np.int64), np.ones(scores, np.float32)
    with pytest.raises(InvalidInput, match=message):
        results(HOST, "NGramRepeatBlock", *inputs, ngram_size=size)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_bifurcation(data: st.DataObject) -> None:
    tokens = st.integers(0, 2)
    source = data.draw(st.lists(tokens, max_size=8))
    current = data.draw(st.lists(tokens, min_size=1, max_size=6))
    start = data.draw(st.integers(0, len(source)))
    size = len(source) + 1 - start
    predicted = data.draw(st.none() | st.lists(tokens, min_size=size, max_size=size))
    least = data.draw(st.integers(1, 3))
    inputs = [source, current, [start], *([] if predicted is None else [predicted])]
    assert_agrees(
        HOST,
        "BifurcationDetector",
        *(np.asarray(x, np.int64) for x in inputs),
        outputs=2,
        min_ngram_size=least,
        max_ngram_size=data.draw(st.integers(least, 4)),
    )


def test_bifurcation_on_each_library(xp: Backend) -> None:
    inputs = [[1, 2, 3, 4, 5], [9, 1, 2], [2], [3, 4, 7, 8]]
    arrays = (np.asarray(x, np.int64) for x in inputs)
    assert_agrees(xp, "BifurcationDetector", *arrays, outputs=2)


@pytest.mark.parametrize(
    ("start", "predicted", "options", "message"),
    [
        ([4], [1], {}, "prev_suffix_match_idx is 4"),
        ([1], [1, 2], {}, "needs one"),
        ([1, 1], [1, 2, 3], {}, "one number"),
        ([1], [1, 2, 3], {"min_ngram_size": 4}, "in order"),
    ],
)
def test_bifurcation_checks_its_inputs(
    start: Any, predicted: Any, options: Any, message: str
) -> None:
    arrays = (np.asarray(x, np.int64) for x in ([1, 2, 3], [4], start, predicted))
    with pytest.raises(InvalidInput, match=message):
        results(HOST, "BifurcationDetector", *arrays, outputs=2, **options)
