from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.errors import InvalidInput
from tests.ops.microsoft.comparison import assert_agrees, results

WORDS = np.asarray([["", "a", "ab", "abc"], ["abcd", "abcde", "x" * 100, "né\u4e2d\0z"]], object)


@pytest.mark.parametrize("positive", [0, 1])
@pytest.mark.parametrize("seed", [0, 42, 2**31 + 5])
@pytest.mark.parametrize("words", [WORDS, WORDS[:0], WORDS[0, 1:2], np.asarray("abc", object)])
def test_strings(xp: Backend, positive: int, seed: int, words: Any) -> None:
    assert_agrees(xp, "MurmurHash3", words, positive=positive, seed=seed)


@pytest.mark.parametrize(
    "dtype", [np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64]
)
@pytest.mark.parametrize("positive", [0, 1])
@pytest.mark.parametrize("shape", [(3, 4), (), (0, 2)])
def test_numbers(xp: Backend, dtype: Any, positive: int, shape: Any) -> None:
    x = np.random.default_rng(0).normal(0, 1e6, shape)
    x = np.asarray(np.abs(x) if np.dtype(dtype).kind == "u" else x).astype(dtype)
    assert_agrees(xp, "MurmurHash3", x, positive=positive, seed=7)


def test_elements_have_four_or_eight_bytes() -> None:
    with pytest.raises(InvalidInput, match="4 or 8 bytes"):
        results(HOST, "MurmurHash3", np.zeros(3, np.int16), strict=False)
