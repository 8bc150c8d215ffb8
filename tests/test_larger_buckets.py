"""Until the program of a bucket is compiled, that of a larger one serves its calls."""

from __future__ import annotations

import threading
import time
from itertools import cycle
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import sardonyx
from sardonyx import Model
from sardonyx.graph.buckets import learned_calls
from sardonyx.graph.buckets.families import Family
from sardonyx.graph.buckets.recording import PaddedRecording
from tests.support.poisoned_padding import PoisonedJax
from tests.test_buckets import GRAPHS, model, normal
from tests.test_changing_sizes import slicing

PATIENCE = 120.0

pytestmark = pytest.mark.usefixtures("compiles_all")


def loaded(body: str) -> Model:
    """Return a model whose bucket of 64 is compiled, and everything else that was to be."""
    changing = sardonyx.load(model(body), backend=PoisonedJax(), compile="background")
    end = time.monotonic() + PATIENCE
    for size in (61, 62, 63, 64):
        changing(normal(2, size, 6))
    while interprets(changing, 60):
        assert time.monotonic() < end
        time.sleep(0.02)
    while any(thread.name == "sardonyx-compile" for thread in threading.enumerate()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return changing


def interprets(changing: Model, size: int) -> bool:
    before = changing.stats().interpreted
    changing(normal(2, size, 6))
    return changing.stats().interpreted > before


@pytest.mark.parametrize("name", ["softmax", pytest.param("attention", marks=pytest.mark.slow)])
def test_smaller_sizes_are_neither_traced_nor_compiled(name: str) -> None:
    changing = loaded(GRAPHS[name])
    plain = sardonyx.load(model(GRAPHS[name]), backend="numpy")
    before = changing.stats()
    for size in (16, 17, 31, 32, 33, 40, 48, 49, 63, 16):
        x = normal(2, size, 6)
        assert_allclose(changing(x), plain(x), rtol=2e-5, atol=2e-5)
    after = changing.stats()
    counts = "traces", "compiles", "interpreted"
    assert [getattr(after, c) for c in counts] == [getattr(before, c) for c in counts]
    # A quarter of the bucket is the smallest that it serves.
    assert interprets(changing, 15)


def test_a_bucket_is_compiled_when_its_calls_have_wasted_as_much_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changing = loaded(GRAPHS["softmax"])
    before = changing.stats().compiles
    for _ in range(3):
        changing(normal(2, 20, 6))
    assert changing.stats().compiles == before

    original = Family.is_worth_compiling
    monkeypatch.setattr(
        Family,
        "is_worth_compiling",
        lambda family, shapes, seconds: original(family, shapes, 1e9 * seconds),
    )
    x, y = normal(2, 21, 6), normal(2, 23, 6)
    expected = changing(x), changing(y)
    end = time.monotonic() + PATIENCE
    while changing.stats().compiles == before:
        assert time.monotonic() < end
        time.sleep(0.02)
        assert_allclose(changing(x), expected[0], rtol=2e-5, atol=2e-5)
    # Once, for all sizes of the bucket.
    for size in (21, 23, 24, 20, 19, 23):
        changing(normal(2, size, 6))
    assert_allclose(changing(y), expected[1], rtol=2e-5, atol=2e-5)
    time.sleep(0.2)
    assert changing.stats().compiles == before + 1


@pytest.mark.parametrize(
    "body",
    [
        # The graph does something else below 40, at 30 alone, and for every other size.
        """t = Constant<value_ints = [40]>() n = Shape<start = 1, end = 2>(x) m = Min(n, t)
        f = Cast<to = 1>(m) y = Mul(x, f)""",
        """t = Constant<value_ints = [30]>() n = Shape<start = 1, end = 2>(x) e = Equal(n, t)
        f = Cast<to = 1>(e) y = Add(x, f)""",
        """two = Constant<value_ints = [2]>() n = Shape<start = 1, end = 2>(x) m = Mod(n, two)
        f = Cast<to = 1>(m) y = Mul(x, f)""",
    ],
)
def test_graphs_that_do_something_else_for_smaller_sizes_are_right(body: str) -> None:
    plain: Any = sardonyx.load(model(body), backend="numpy")
    changing = sardonyx.load(model(body), backend=PoisonedJax(), compile="background")
    for size in (61, 62, 63, 64, 64, 60, 59, *range(16, 65, 3), 30, 39, 40, 41):
        x = normal(2, size, 6)
        assert_allclose(changing(x), plain(x), rtol=2e-5, atol=2e-5)
        if size == 64:
            time.sleep(0.5)


def test_empty_arrays_and_single_rows_are_not_padded() -> None:
    changing = loaded(GRAPHS["softmax"])
    for size in (0, 1):
        assert changing(np.zeros((2, size, 6), np.float32)).shape == (2, size, 6)


def test_a_weight_that_is_replaced_during_a_compile_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proto = slicing("y = Slice (x, start, end, axis)")
    changing = sardonyx.load(proto, backend=PoisonedJax(), compile="background")
    original, compiled = PaddedRecording.compile, threading.Event()

    def compile_slowly(recording: PaddedRecording, weights: Any) -> None:
        if not compiled.is_set():
            changing.params["end"] = np.array([9])
            assert changing(normal(2, 60, 6)).shape == (2, 8, 6)
        original(recording, weights)
        compiled.set()

    monkeypatch.setattr(PaddedRecording, "compile", compile_slowly)
    monkeypatch.setattr(learned_calls, "SECONDS_PER_STEP", 0.0)
    end, sizes = time.monotonic() + PATIENCE, cycle((61, 62, 63))
    while not compiled.wait(0.05):
        assert time.monotonic() < end
        changing(normal(2, next(sizes), 6))
    time.sleep(0.2)  # Until the program has been published.
    for size in (60, 59, 63):
        x = normal(2, size, 6)
        assert_array_equal(changing(x), x[:, 1:9])
