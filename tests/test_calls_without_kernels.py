"""Large calls of changing sizes that run on NumPy, without kernels: when a program pays."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import sardonyx
from sardonyx.graph.buckets import learned_calls
from sardonyx.graph.buckets.derived import Derivation, Merged
from sardonyx.graph.buckets.savings import part_beside_products
from sardonyx.graph.programs import background
from tests.support.background import wait_for_background
from tests.test_buckets import model, normal
from tests.test_derived_recordings import loaded_in_background, stages_of, use_no_kernels
from tests.test_second_sizes import with_weights

pytest.importorskip("jax")

WIDTH = 512
# Large enough that few rows are multiplied one by one.
MATRIX = np.random.default_rng(1).integers(-2, 3, (WIDTH, WIDTH)).astype(np.float32)
INPUTS = f"float[batch,length,{WIDTH}] x"
PRODUCTS = """a = MatMul(x, w) s = Sigmoid(a) b = MatMul(s, w) t = Softmax<axis = 1>(b)
    y = MatMul(t, w)"""
SIZES = (33, 40, 36, 35)


@pytest.fixture(autouse=True)
def no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls run step by step all the time, as without oneDNN."""
    use_no_kernels(monkeypatch)
    monkeypatch.setattr(learned_calls, "SECONDS_PER_STEP", 1e9)


def called(changing: sardonyx.Model, numpy: sardonyx.Model, size: int) -> int:
    """Compare a call of a size with NumPy's; return the traces that it took."""
    x = normal(1, size, WIDTH)
    before = changing.stats().traces
    assert_allclose(changing(x), numpy(x), rtol=1e-4, atol=1e-4)
    wait_for_background()
    return changing.stats().traces - before


def notes_derivations(monkeypatch: pytest.MonkeyPatch) -> list[Derivation]:
    """Write no function of sizes; return what would be written, as it comes."""
    found: list[Derivation] = []

    def note(derivation: Derivation) -> None:
        found.append(derivation)

    monkeypatch.setattr(Derivation, "write_out", note)
    return found


@pytest.mark.parametrize(
    ("body", "least", "most"),
    [
        ("a = MatMul(x, w) y = MatMul(a, w)", 0.0, 0.0),
        ("a = Gemm(f, w) y = Relu(a)", 0.0, 0.5),
        ("a = MatMul(x, w) y = Exp(a)", 0.0, 0.5),
        ("a = Exp(x) y = Sigmoid(a)", 1.0, 1.0),
        ("t = Transpose<perm = [0, 2, 1]>(x) y = Conv<group = 1>(t, k)", 1.0, 1.0),
    ],
    ids=["products", "a product of rows", "a product and more", "elements", "a convolution"],
)
def test_products_take_as_long_in_programs(body: str, least: float, most: float) -> None:
    body = f"d = Constant<value_ints = [-1, {WIDTH}]>() f = Reshape(x, d) {body}"
    kernel = np.ones((4, WIDTH, 1), np.float32)
    loaded = loaded_in_background(with_weights(body, INPUTS, w=MATRIX, k=kernel))
    stages = stages_of(loaded, normal(1, 40, WIDTH))
    assert least <= part_beside_products(stages, loaded._plain._weights.now()) <= most


def test_a_call_counts_by_what_a_program_would_save(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the products of a transformer that is little, and a compile takes long."""
    found = notes_derivations(monkeypatch)
    changing = loaded_in_background(with_weights(PRODUCTS, INPUTS, w=MATRIX))
    numpy = sardonyx.load(with_weights(PRODUCTS, INPUTS, w=MATRIX), backend="numpy")
    for size in SIZES:
        called(changing, numpy, size)
    (learned,) = changing._plain._padded_calls._learned.values()
    shapes = [(1, 40, WIDTH)]
    assert 0 < found[0].savable < 0.5
    assert learned.savable(shapes, 10.0) == pytest.approx(10 * found[0].savable)
    # A call that cannot run so saves all that it takes.
    assert learned.savable(shapes, float("inf")) == float("inf")


def test_one_function_serves_few_rows_and_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """How few rows are multiplied is decided in each call."""
    found: list[Derivation] = []
    write_out = Derivation.write_out
    monkeypatch.setattr(Derivation, "write_out", lambda d: (write_out(d), found.append(d)))
    proto = with_weights(PRODUCTS, INPUTS, w=MATRIX)
    changing, numpy = loaded_in_background(proto), sardonyx.load(proto, backend="numpy")
    for size in SIZES:
        called(changing, numpy, size)
    assert found[0].written is not None
    assert [called(changing, numpy, size) for size in (5, 6, 7, 8, 9, 37)] == [0] * 6


def test_sizes_share_what_prepares_their_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    notes_derivations(monkeypatch)
    proto = with_weights(PRODUCTS, INPUTS, w=MATRIX)
    changing, numpy = loaded_in_background(proto), sardonyx.load(proto, backend="numpy")
    for size in SIZES:
        called(changing, numpy, size)
    first, second = (stages_of(changing, normal(1, size, WIDTH))[0] for size in (36, 35))
    assert first.segment.steps[0] is not second.segment.steps[0]
    groups = first.binding.prepared, second.binding.prepared
    assert groups[0]
    assert all(a is b for a, b in zip(*groups, strict=True))


def test_ends_that_differ_need_no_other_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the steps depend on whether the size is larger than 30."""
    counts: list[int] = []
    merge = Merged.of
    monkeypatch.setattr(
        Merged, "of", lambda samples, *rest: (counts.append(len(samples)), merge(samples, *rest))[1]
    )
    changing = loaded_in_background(model(BRANCH))
    for size in SIZES:
        x = normal(2, size, 6)
        assert_allclose(changing(x), np.exp(x), rtol=1e-5)
        wait_for_background()
    assert counts
    assert counts[0] == 2


BRANCH = """n = Shape<start = 1, end = 2>(x) l = Constant<value_ints = [30]>()
    s = Greater(n, l) z = Constant<value_ints = [0]>() c = Squeeze(s, z)
    y = If(c) <then_branch = a () => (float[n] p) { p = Exp(x) },
               else_branch = b () => (float[n] q) { q = Neg(x) }>"""


def test_only_the_background_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(background, "time", SimpleNamespace(sleep=slept.append))
    background.give_way()
    assert not slept
    background.COMPILES.submit(background.give_way)
    wait_for_background()
    assert slept == [background.MOMENT]


def test_calls_go_on_while_a_function_of_sizes_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    ways: list[Any] = []
    monkeypatch.setattr(background, "in_background", lambda: ways.append(None) or False)
    proto = with_weights(PRODUCTS, INPUTS, w=MATRIX)
    changing, numpy = loaded_in_background(proto), sardonyx.load(proto, backend="numpy")
    for size in SIZES:
        called(changing, numpy, size)
    # Before each step of four traces, at least.
    assert len(ways) >= 16
