"""The entries of a model's signatures: which ones stay, and what later ones are checked for."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from onnx import parser

import sardonyx
from sardonyx import InvalidInput
from sardonyx.backends.base import Backend

TWO_INPUTS = parser.parse_model("""<ir_version: 10, opset_import: ["" : 22]>
    g (float[n, 3] x, float[n, m] y) => (float[n, k] z) { z = Concat<axis = 1>(x, y) }""")


def ones(*shape: int) -> np.ndarray[Any, Any]:
    return np.ones(shape, np.float32)


@pytest.mark.parametrize("most", [1, 2, 5])
def test_what_was_used_longest_ago_is_evicted(most: int) -> None:
    loaded = sardonyx.load(TWO_INPUTS, backend="numpy", max_signatures=most)
    kept: OrderedDict[int, None] = OrderedDict()
    sizes = np.random.default_rng(most).integers(1, 9, 400).tolist()
    for size in sizes:
        loaded(ones(size, 3), ones(size, 2))
        kept[size] = None
        kept.move_to_end(size)
        while len(kept) > most:
            kept.popitem(last=False)
        found = [key[1][0][1][0] for key in loaded._plain.entries.by_key]
        assert sorted(found) == sorted(kept)


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        (ones(4, 2), ones(4, 5), "'x' must have size 3 on axis 1"),
        (ones(4, 3), ones(5, 4), "'y' must have size 4 on axis 0"),
        (ones(4, 3, 1), ones(4, 4), "'x' must have 2 dimensions"),
        (ones(4, 3).astype(np.int32), ones(4, 4), "'x' must be float32"),
    ],
    ids=["a fixed size", "two sizes of one name", "dimensions", "dtype"],
)
def test_later_calls_are_checked_as_the_first_one(xp: Backend, x: Any, y: Any, words: str) -> None:
    loaded = sardonyx.load(TWO_INPUTS, backend=xp)
    for size in (2, 3, 5, 7):
        assert np.shape(loaded(ones(size, 3), ones(size, size))) == (size, 3 + size)
    for _ in range(2):
        with pytest.raises(InvalidInput, match=words):
            loaded(x, y)
    assert np.shape(loaded(ones(8, 3), ones(8, 4))) == (8, 7)


def test_later_strings_are_checked_as_strings() -> None:
    loaded = sardonyx.load(
        parser.parse_model("""<ir_version: 10, opset_import: ["" : 22]>
            g (string[n, 2] x) => (string[n, 2] y) { y = Identity(x) }"""),
        backend="numpy",
    )
    for rows in (1, 2, 3):
        assert loaded(np.full((rows, 2), "ab")).shape == (rows, 2)
    with pytest.raises(InvalidInput, match="'x' must have size 2 on axis 1"):
        loaded(np.full((4, 3), "ab"))
