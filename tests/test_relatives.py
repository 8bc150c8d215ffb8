"""How a call is recognised that differs from an earlier one in its padded sizes alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import parser

import sardonyx
from sardonyx.graph.buckets.families import CallSizes, SizePattern
from sardonyx.graph.buckets.relatives import Likeness, Relatives
from sardonyx.graph.ir import ValueInfo

FLOAT = np.dtype(np.float32)
INTEGER = np.dtype(np.int64)
DECODER = ("batch", 4, "past", 8), ("batch", 4, "past", 8), ("batch", "past + 1"), ("batch", 1)
NAMES = ("past", "batch")


def key_of(shapes: Sequence[tuple[int, ...]], dtype: np.dtype[Any] = FLOAT) -> Any:
    return (), tuple([(np.ndarray, shape, dtype) for shape in shapes])


def decoder_shapes(batch: int, past: int) -> list[tuple[int, ...]]:
    return [(batch, 4, past, 8), (batch, 4, past, 8), (batch, past + 1), (batch, 1)]


def infos_of(declared: Sequence[tuple[int | str, ...]]) -> list[ValueInfo]:
    return [ValueInfo(f"x{i}", "tensor(float)", FLOAT, shape) for i, shape in enumerate(declared)]


def likeness_of(key: Any, pattern: SizePattern) -> Likeness | None:
    sizes = pattern.sizes_and_rest([shape for _, shape, _ in key[1]])
    relatives = Relatives.of(key)
    assert sizes is not None
    assert relatives is not None
    return Likeness.of(key, relatives, pattern, sizes)


def pattern_of(shapes: Sequence[tuple[int, ...]], *names: str) -> SizePattern:
    return SizePattern.of(infos_of(DECODER), shapes, names)


@pytest.mark.parametrize("names", [NAMES, ("past",), ("batch",)])
def test_alike_calls_have_the_sizes_that_all_their_dimensions_give(names: tuple[str, ...]) -> None:
    first = decoder_shapes(3, 20)
    pattern = pattern_of(first, *names)
    likeness = likeness_of(key_of(first), pattern)
    assert likeness is not None
    found = 0
    for batch in range(1, 5):
        for past in range(1, 22):
            shapes = decoder_shapes(batch, past)
            own = likeness.sizes(key_of(shapes))
            if own is None:
                continue
            found += 1
            assert own == pattern.sizes_and_rest(tuple(shapes))
            assert Relatives.of(key_of(shapes)) == likeness.relatives
    # All sizes of two and more, where the other dimensions are the first call's.
    assert found == {NAMES: 3 * 20, ("past",): 20, ("batch",): 3}[names]


OTHERS = {
    "a repeated size that differs": [(3, 4, 9, 8), (3, 4, 8, 8), (3, 10), (3, 1)],
    "a computed size that differs": [(3, 4, 9, 8), (3, 4, 9, 8), (3, 9), (3, 1)],
    "another dimension": [(3, 4, 9, 8), (3, 4, 9, 7), (3, 10), (3, 1)],
    "another rank": [(3, 4, 9), (3, 4, 9, 8), (3, 10), (3, 1)],
    "no dimensions": [(), (), (), ()],
    "a size of one": [(3, 4, 1, 8), (3, 4, 1, 8), (3, 2), (3, 1)],
    "fewer arrays": decoder_shapes(3, 9)[:3],
    "no arrays": [],
}


@pytest.mark.parametrize("shapes", OTHERS.values(), ids=OTHERS)
def test_calls_that_differ_in_more_are_not_alike(shapes: list[tuple[int, ...]]) -> None:
    first = decoder_shapes(3, 20)
    likeness = likeness_of(key_of(first), pattern_of(first, *NAMES))
    assert likeness is not None
    assert likeness.sizes(key_of(shapes)) is None


def test_calls_of_other_kinds_are_not_alike() -> None:
    first = decoder_shapes(3, 20)
    likeness = likeness_of(key_of(first), pattern_of(first, *NAMES))
    assert likeness is not None
    donated, arrays = key_of(decoder_shapes(3, 9))
    assert isinstance(likeness.sizes((donated, arrays)), CallSizes)
    assert likeness.sizes((("x0",), arrays)) is None
    assert likeness.sizes(key_of(decoder_shapes(3, 9), INTEGER)) is None
    lists = tuple([(list, shape, dtype) for _, shape, dtype in arrays])
    assert likeness.sizes((donated, lists)) is None
    # The signature of a sequence, a map or an absent input is not three things.
    for odd in (None, (list, (arrays[0],)), ("sequence", arrays, FLOAT, None), 7):
        assert likeness.sizes((donated, (odd, *arrays[1:]))) is None


def test_nothing_is_like_a_call_with_a_computed_size_of_one() -> None:
    declared = ("n", "n - 2"), ("n",)
    infos = infos_of(declared)
    shapes: list[tuple[int, ...]] = [(3, 1), (3,)]
    pattern = SizePattern.of(infos, shapes, ["n"])
    assert likeness_of(key_of(shapes), pattern) is None
    shapes = [(6, 4), (6,)]
    likeness = likeness_of(key_of(shapes), SizePattern.of(infos, shapes, ["n"]))
    assert likeness is not None
    assert likeness.sizes(key_of([(7, 5), (7,)])) is not None
    assert likeness.sizes(key_of([(3, 1), (3,)])) is None


def test_calls_of_two_kinds_alternate_in_buckets() -> None:
    graph = parser.parse_model("""<ir_version: 10, opset_import: ["" : 22]>
        g (float[b, n] x, float[n, m] y) => (float[b, m] z, float[n, all] both)
        { z = MatMul(x, y) both = Concat<axis = 1>(y, y) }""")
    options: dict[str, Any] = {"compile": "now", "buckets": {"n": [32]}}
    loaded = sardonyx.load(graph, backend="jax", **options)
    rng = np.random.default_rng(0)
    for size in (5, 6, 7, 8, 5, *rng.permutation(range(9, 32)).tolist()):
        for batch, columns in ((1, 4), (3, 4), (3, 6)):
            x = rng.standard_normal((batch, size), np.float32)
            y = rng.standard_normal((size, columns), np.float32)
            for inputs in ((x, y), (np.asfortranarray(x), y)):
                z, both = loaded(*inputs)
                np.testing.assert_allclose(z, x @ y, rtol=1e-4, atol=1e-5)
                np.testing.assert_array_equal(both, np.concatenate([y, y], 1))
    # Three programs, each traced at a few sizes, serve all of the 27 sizes.
    assert loaded.stats().traces <= 3 * 5
