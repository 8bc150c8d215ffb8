"""Attention of the first tier by one kernel, instead of two products and what lies between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import sardonyx
from sardonyx.backends.interpreter import Interpreter
from sardonyx.backends.jax.onednn import HostKernels, attention, loaded
from sardonyx.backends.jax.onednn.attention import attended
from sardonyx.backends.written_out.noted_steps import noted_steps
from sardonyx.backends.written_out.notes import NotedCall
from sardonyx.backends.written_out.program import written
from sardonyx.graph.programs import compiler
from tests.support.background import wait_for_background
from tests.support.kernels import NEEDS_ONEDNN
from tests.support.onnx_builders import model, node, value, weight
from tests.test_onednn import drawn

pytestmark = NEEDS_ONEDNN

INF, NAN = np.inf, np.nan
STACKS: list[tuple[int, ...]] = [(), (3,), (2, 3), (2, 1, 3)]
# Queries, the numbers of each, keys, and the numbers of a result.
SIZES = [(1, 3, 1, 1), (1, 64, 50, 64), (1, 33, 7, 45), (9, 5, 4, 3), (65, 64, 129, 64)]


@pytest.fixture
def small_ones_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert loaded.shared_library() is not None
    for limit in ("FEWEST_PAIRS", "FEWEST_PAIRS_OF_ONE", "FEWEST_QUERIES"):
        monkeypatch.setattr(attention, limit, 0)
    attention._planned.cache_clear()


def exact(q: Any, k: Any, v: Any, mask: Any = None, scale: float = 1.0) -> Any:
    with np.errstate(all="ignore"):
        scores = q.astype(np.float64) @ k * scale
        scores = scores if mask is None else scores + mask
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return weights / weights.sum(axis=-1, keepdims=True) @ v


def by_rows(*shape: int, seed: int = 0) -> Any:
    return drawn(*shape, seed=seed)


def by_columns(*shape: int, seed: int = 0) -> Any:
    *stack, rows, columns = shape
    return drawn(*stack, columns, rows, seed=seed).swapaxes(-1, -2)


def heads_last(*shape: int, seed: int = 0) -> Any:
    """As projections leave them: all heads of a row lie together."""
    if len(shape) < 3:
        return drawn(*shape, seed=seed)
    *outer, heads, rows, columns = shape
    return drawn(*outer, rows, heads, columns, seed=seed).swapaxes(-2, -3)


def with_gaps(*shape: int, seed: int = 0) -> Any:
    *stack, rows, columns = shape
    return drawn(*stack, 2 * rows, columns + 3, seed=seed)[..., ::2, 2:-1]


@pytest.mark.usefixtures("small_ones_too")
@pytest.mark.sampled(24)
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("layout", [by_rows, by_columns, heads_last, with_gaps])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("stack", STACKS, ids=str)
def test_results_are_those_of_the_steps(
    stack: tuple[int, ...],
    sizes: tuple[int, int, int, int],
    layout: Callable[..., Any],
    threads: int,
) -> None:
    count, inner, known, columns = sizes
    q, v = layout(*stack, count, inner), layout(*stack, known, columns, seed=2)
    for mask_shape in (None, (known,), (count, 1), (*stack, count, known), (1, 1)):
        mask = None if mask_shape is None else drawn(*mask_shape, seed=3)
        for k in (layout(*stack, inner, known, seed=1), by_columns(*stack, inner, known)):
            y = attended(q, k, v, mask, scale=0.3, or_zero=False, threads=threads)
            assert_allclose(y, exact(q, k, v, mask, 0.3), rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("small_ones_too")
def test_masks_in_any_order() -> None:
    q, k, v = by_rows(2, 3, 9, 4), by_columns(2, 3, 4, 5), by_rows(2, 3, 5, 6)
    for mask in (
        drawn(3, 2, 9, 5).swapaxes(0, 1),
        drawn(2, 3, 18, 5)[::-1, :, ::-2],
        np.broadcast_to(drawn(2, 1, 9, 1), (2, 3, 9, 5)),
        drawn(2, 1, 1, 5),
        drawn(1),
    ):
        y = attended(q, k, v, mask, scale=0.5, or_zero=False)
        assert_allclose(y, exact(q, k, v, mask, 0.5), rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("small_ones_too")
@pytest.mark.parametrize("count", [1, 8])
@pytest.mark.parametrize("special", [[-INF, 0, 1], [NAN, 0, 1], [INF, 0, 1], [-3e38, 3e38, 0]])
def test_scores_that_are_not_finite(special: list[float], count: int) -> None:
    q, k, v = by_rows(2, count, 4), by_columns(2, 4, 3), by_rows(2, 3, 5, seed=1)
    mask = np.array(special, np.float32)
    y = attended(q, k, v, mask, scale=1, or_zero=False)
    assert_allclose(y, exact(q, k, v, mask), rtol=1e-5)
    zeros = attended(q, k, v, mask, scale=1, or_zero=True)
    assert_array_equal(np.isnan(zeros), False)
    hidden = attended(q, k, v, np.full((1, 3), -INF, np.float32), scale=1, or_zero=True)
    assert_array_equal(hidden, 0)


@pytest.mark.usefixtures("small_ones_too")
def test_what_has_another_form_is_left_to_the_steps() -> None:
    q, k, v = by_rows(2, 8, 4), by_columns(2, 4, 3), by_rows(2, 3, 5)
    options: Any = {"scale": 1.0, "or_zero": False}
    assert attended(q, k, v, None, **options) is not None
    assert attended(q.astype(np.float64), k, v, None, **options) is None
    assert attended(q, k, v, drawn(7, 2, 8, 3), **options) is None
    assert attended(q, k, v, np.zeros((8, 3)), **options) is None
    assert attended(q, k, v, drawn(8, 6)[:, ::2], **options) is None
    assert attended(q, k[:1], v, None, **options) is None
    assert attended(q[0], k, v, None, **options) is None
    # Neither the rows nor the columns of these are whole in memory.
    for place in range(3):
        arrays = [q, k, v]
        arrays[place] = arrays[place].repeat(2, axis=-1).repeat(2, axis=-2)[..., ::2, ::2]
        assert attended(*arrays, None, **options) is None


def test_few_numbers_are_left_to_the_steps() -> None:
    q, k, v = by_rows(1, 1, 8), by_columns(1, 8, 3), by_rows(1, 3, 5)
    assert attended(q, k, v, None, scale=1, or_zero=False) is None


# -- who calls it ---------------------------------------------------------------------------------


def torchs_attention(xp: Any, q: Any, k: Any, v: Any, mask: Any) -> Any:
    root = np.float32(0.5)
    scores = xp.matmul(q * root, k * root) + mask
    return [xp.matmul(xp.softmax_of_rows(scores, or_zero=True), v)]


def divided(xp: Any, q: Any, k: Any, v: Any, mask: Any) -> Any:
    return [xp.matmul(xp.softmax_of_rows(mask + xp.matmul(q, k) / np.float32(4)), v)]


def without_mask(xp: Any, q: Any, k: Any, v: Any, mask: Any) -> Any:
    return [xp.matmul(xp.softmax_of_rows(np.float32(0.25) * xp.matmul(q, k)), v)]


def shows_scores(xp: Any, q: Any, k: Any, v: Any, mask: Any) -> Any:
    scores = xp.matmul(q, k) + mask
    return [xp.matmul(xp.softmax_of_rows(scores), v), scores]


def shows_weights(xp: Any, q: Any, k: Any, v: Any, mask: Any) -> Any:
    weights = xp.softmax_of_rows(xp.matmul(q, k) + mask)
    return [xp.matmul(weights, v), xp.max(weights, axis=-1)]


def changes_queries(xp: Any, q: Any, k: Any, v: Any, mask: Any) -> Any:
    own = xp.zeros(q.shape, dtype=q.dtype)
    own[:] = q
    scores = xp.matmul(own, k)
    own[:] = 0
    return [xp.matmul(xp.softmax_of_rows(scores + mask), v), own]


def noted(function: Any, arrays: list[Any]) -> tuple[list[NotedCall], Callable[..., Any]]:
    assert loaded.shared_library() is not None
    xp = Interpreter(lambda: False, HostKernels())
    steps = noted_steps(function, xp, [xp.spec(x) for x in arrays], lambda call: None)
    assert steps is not None
    found = written(steps.calls, steps.arguments, {}, steps.results, 0)

    def run(*inputs: Any) -> Any:
        return found.run(lambda: False, lambda *_: None, *found.ahead(), *inputs)

    return [call for call in steps.calls if call.function == xp.attended], run


@pytest.mark.parametrize("sizes", [(64, 32, 96, 48), (1, 32, 96, 48), (3, 4, 5, 6)], ids=str)
@pytest.mark.parametrize(
    ("function", "joins"),
    [
        (torchs_attention, True),
        (divided, True),
        (without_mask, True),
        (shows_scores, False),
        (shows_weights, False),
        (changes_queries, False),
    ],
)
def test_steps_become_one_call_unless_something_else_reads_between(
    function: Any, joins: bool, sizes: tuple[int, int, int, int]
) -> None:
    count, inner, known, columns = sizes
    q, v = heads_last(2, 6, count, inner), by_rows(2, 6, known, columns, seed=2)
    k, mask = by_columns(2, 6, inner, known, seed=1), drawn(2, 1, 1, known, seed=3)
    calls, run = noted(function, [q, k, v, mask])
    assert bool(calls) is joins
    wanted = function(Interpreter(lambda: False, HostKernels()), q, k, v, mask)
    for one, other in zip(run(q, k, v, mask), wanted, strict=True):
        assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_factors_that_are_no_number_as_one_stay_apart() -> None:
    assert loaded.shared_library() is not None
    xp, tiny = Interpreter(lambda: False, HostKernels()), np.asarray(1e-30, np.float32)
    q, k, v = by_rows(1, 1, 32), by_columns(1, 32, 300), by_rows(1, 300, 5)
    found = xp.attended(
        q * np.float32(1e30), k * np.float32(1e30), v, None, (tiny, tiny, None, None)
    )
    assert_allclose(found, exact(q, k, v), rtol=1e-4, atol=1e-5)
    assert_allclose(xp.attended(q, k, v, None, (None,) * 4), exact(q, k, v), rtol=1e-4, atol=1e-5)


def attention_model() -> onnx.ModelProto:
    """Two heads' queries, keys and values from one product, as exporters write it."""
    w = drawn(64, 3 * 128, seed=4) / 8
    nodes = [
        node("MatMul", ["x", "w"], ["qkv"]),
        node("Reshape", ["qkv", "apart"], ["parts"]),
        node("Split", ["parts"], ["a", "b", "c"], axis=2, num_outputs=3),
        *[node("Squeeze", [x, "two"], [f"{x}1"]) for x in "abc"],
        node("Transpose", ["a1"], ["q"], perm=[0, 2, 1, 3]),
        node("Transpose", ["b1"], ["k"], perm=[0, 2, 3, 1]),
        node("Transpose", ["c1"], ["v"], perm=[0, 2, 1, 3]),
        node("Mul", ["q", "scale"], ["scaled"]),
        node("MatMul", ["scaled", "k"], ["scores"]),
        node("Add", ["scores", "mask"], ["masked"]),
        node("Softmax", ["masked"], ["weights"], axis=-1),
        node("MatMul", ["weights", "v"], ["heads"]),
        node("Transpose", ["heads"], ["rows"], perm=[0, 2, 1, 3]),
        node("Reshape", ["rows", "joined"], ["flat"]),
        node("MatMul", ["flat", "w2"], ["y"]),
    ]
    weights = [
        weight("w", w),
        weight("w2", drawn(128, 64, seed=5) / 8),
        weight("apart", np.array([0, 0, 3, 2, 64])),
        weight("joined", np.array([0, 0, 128])),
        weight("two", np.array([2])),
        weight("scale", np.float32(0.125)),
    ]
    inputs = [value("x", ["n", "length", 64]), value("mask", ["n", 1, 1, "length"])]
    return model(nodes, inputs, ["y"], weights, opset=18)


@pytest.mark.parametrize("changes", [False, True])
def test_models_give_the_same_with_it(changes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert loaded.shared_library() is not None
    kinds, compute = set(), loaded.compute

    def noted(kind: loaded.Kind, *arguments: Any) -> None:
        kinds.add(kind)
        compute(kind, *arguments)

    monkeypatch.setattr(loaded, "compute", noted)
    # Steps are written out even if a slow moment hides what that saves.
    monkeypatch.setattr(compiler, "LEAST_SAVED", 0.0)
    made = attention_model()
    found, wanted = (
        sardonyx.load(made, backend="jax", compile="never"),
        sardonyx.load(made, backend="numpy"),
    )
    for turn in range(10):
        length = 200 + 7 * turn if changes else 200
        x, mask = drawn(3, length, 64, seed=turn), drawn(3, 1, 1, length, seed=turn)
        mask[:, :, :, length // 2 :] = -INF
        assert_allclose(found(x, mask), wanted(x, mask), rtol=1e-4, atol=1e-4)
        wait_for_background()
    assert loaded.Kind.ATTENTION in kinds
