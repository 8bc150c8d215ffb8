from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.errors import InvalidInput
from tests.ops.microsoft.comparison import assert_agrees, results


def weights(filters: int, window: int, width: int, characters: int) -> list[Any]:
    rng = np.random.default_rng(0)
    shapes = [(filters, 1, window, width), (filters,), (characters, width)]
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("window", [1, 2, 3, 6])
def test_word_embedding(xp: Backend, window: int) -> None:
    words = np.asarray(
        [[1, 2, 3, 0, 0, 0], [4, 0, 0, 0, 0, 0], [9, 8, 7, 6, 5, 4], [3, 0, 2, 0, 0, 0]], np.int32
    )
    assert_agrees(xp, "WordConvEmbedding", words, *weights(5, window, 4, 10), ulps=16)


def test_attributes_repeat_the_sizes() -> None:
    words = np.asarray([[1, 2, 3]], np.int32)
    sizes = {"char_embedding_size": 4, "conv_window_size": 2, "embedding_size": 5}
    assert_agrees(HOST, "WordConvEmbedding", words, *weights(5, 2, 4, 10), ulps=16, **sizes)


def test_a_word_without_characters_is_zero(xp: Backend) -> None:
    words = np.asarray([[0, 0, 0], [0, 2, 3], [1, -1, -1]], np.int32)
    found = results(xp, "WordConvEmbedding", words, *weights(5, 2, 4, 10))
    np.testing.assert_array_equal(found[:2], np.zeros((2, 5)))
    assert np.all(found[2] != 0)


def test_no_words(xp: Backend) -> None:
    words = np.zeros((0, 3), np.int32)
    assert results(xp, "WordConvEmbedding", words, *weights(5, 2, 4, 10)).shape == (0, 5)


@pytest.mark.parametrize(
    ("words", "options", "message"),
    [
        ([[1, 2]], {}, "shorter than the window"),
        ([1, 2, 3], {}, "must have 2, 4 and 2 axes"),
        ([[1, 2, 10]], {}, "'Sequence' holds 10"),
        ([[1, 2, 3]], {"embedding_size": 4}, "W has shape"),
        ([[1, 2, 3]], {"char_embedding_size": 5}, "C has shape"),
    ],
)
def test_the_inputs_are_checked(words: Any, options: Any, message: str) -> None:
    words = np.asarray(words, np.int32)
    with pytest.raises(InvalidInput, match=message):
        results(HOST, "WordConvEmbedding", words, *weights(5, 3, 4, 10), **options)
