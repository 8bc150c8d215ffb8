"""Convolutions of NumPy, a few images at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.backends import interpreter, numpy
from sardonyx.backends.interpreter import Interpreter, Overtaken
from sardonyx.backends.numpy import HOST, FoldingBackend, TooLarge

# Shapes of the images and of the filters, groups, and the options of one axis.
CASES: list[tuple[Any, ...]] = [
    ((5, 4, 9, 8), (6, 4, 3, 3), 1, 1, (1, 1), 1),
    ((5, 4, 9, 8), (8, 1, 3, 2), 4, 2, (0, 1), 1),
    ((3, 4, 9, 8), (6, 2, 1, 1), 2, 1, (0, 0), 1),
    ((7, 2, 11), (3, 2, 3), 1, 2, (2, 1), 2),
    ((2, 2, 5, 6, 7), (3, 2, 2, 3, 2), 1, 1, (1, 0), 1),
    ((0, 4, 9, 8), (6, 4, 3, 3), 1, 1, (1, 1), 1),
    ((3, 0, 9, 8), (6, 0, 3, 3), 1, 1, (1, 1), 1),
]


def convolved(xp: Any, case: tuple[Any, ...], dtype: Any = np.float32) -> Any:
    shape, filters, groups, stride, pads, dilation = case
    rng, rank = np.random.default_rng(0), len(shape) - 2
    x, weight = (rng.standard_normal(each).astype(dtype) for each in (shape, filters))
    with xp.scope():
        return xp.convolution(
            x,
            weight,
            strides=(stride,) * rank,
            pads=[pads] * rank,
            dilations=(dilation,) * rank,
            groups=groups,
        )


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_pieces_have_the_bits_of_the_whole(
    case: tuple[Any, ...], dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = convolved(HOST, case, dtype)
    for most in (1, 3000):
        monkeypatch.setattr(numpy, "MOST_WINDOWS", most)
        pieces = convolved(HOST, case, dtype)
        assert (pieces.dtype, pieces.shape) == (whole.dtype, whole.shape)
        np.testing.assert_array_equal(pieces, whole)


def test_a_compiled_program_takes_over_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def is_ready() -> bool:
        asked.append(1)
        return len(asked) == 3

    monkeypatch.setattr(numpy, "MOST_WINDOWS", 1)
    with pytest.raises(Overtaken):
        convolved(Interpreter(is_ready), CASES[0])
    assert len(asked) == 3


def test_what_is_folded_stays_small() -> None:
    """A piece is small enough here, and all results are not."""
    case = (2**14, 1, 32, 32), (2, 1, 1, 1), 1, 1, (0, 0), 1
    with pytest.raises(TooLarge):
        convolved(FoldingBackend(), case)


def test_for_many_windows_the_compiler_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "MOST_COLUMNS", 1000)
    with pytest.raises(Overtaken):
        convolved(Interpreter(lambda: False), CASES[0])
