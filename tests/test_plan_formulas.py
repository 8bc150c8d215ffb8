"""Plans of joined kernels for new sizes come from formulas, with the same results."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from sardonyx.backends.executable import CallPlans, Spec
from sardonyx.backends.jax import onednn
from sardonyx.backends.jax.onednn import HostKernels, plan_formulas
from sardonyx.backends.jax.onednn.one_call import OneCallBySizes
from sardonyx.backends.jax.onednn.plans import Plan
from tests.support.kernels import NEEDS_ONEDNN
from tests.test_one_call import assert_same, library
from tests.test_onednn import drawn

__all__ = ["library"]
pytestmark = NEEDS_ONEDNN
HEADS, DEPTH = 4, 16
WIDTH = HEADS * DEPTH
KERNELS = HostKernels()
# Batches and lengths that decide the formulas: 8 terms, and two more.
SAMPLED = [(2, 9), (3, 11), (5, 7), (2, 30), (4, 4), (7, 12), (6, 25), (5, 21), (3, 2), (8, 17)]


def product(rows: int) -> Any:
    dtype = np.dtype(np.float32)
    found = onednn.matrix_product(Spec((rows, WIDTH), dtype), Spec((WIDTH, WIDTH), dtype))
    assert found is not None
    return found


def weights(seed: int) -> list[Any]:
    matrix = drawn(WIDTH, WIDTH, seed=seed) / WIDTH**0.5
    return [product(8).form.pack(matrix), drawn(WIDTH, seed=seed + 1), drawn(WIDTH, seed=seed + 2)]


def multiplied(a: Any, b: Any) -> Any:
    found = KERNELS.multiplied(a, b)
    return np.matmul(a, b) if found is None else found


def assert_close(found: Sequence[Any], wanted: Sequence[Any]) -> None:
    """By themselves NumPy computes small products."""
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


class Layer:
    """A function of variables that calls kernels of most kinds, as layers of transformers do."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, product: Any, batch: int, rows: int, *arrays: Any) -> Sequence[Any]:
        self.calls += 1
        weight, scale, bias, x = arrays
        y = product.run(x, weight)
        y, mean, _ = KERNELS.standardized(y, scale, bias, epsilon=1e-5)
        heads = y.reshape(batch, rows, HEADS, DEPTH).transpose(0, 2, 1, 3)
        scores = multiplied(heads, heads.swapaxes(-1, -2))
        likely = KERNELS.softmax(scores, or_zero=False)
        found = multiplied(likely, heads).transpose(0, 2, 1, 3)
        found = KERNELS.reshaped(found, (batch * rows, WIDTH))
        rest = KERNELS.of_elements(np.add, product.run(found, weight), x)
        sums = KERNELS.summed(rest.reshape(batch, rows, WIDTH), (1,), keepdims=False)
        return [rest, sums, likely[:, :, rows - 1 :], mean, y[1:, :7]]


class Calls:
    """Calls of it, one plan for each choice of sizes, and the results that they are to have."""

    def __init__(self, *, knows_sizes: bool = True) -> None:
        self.layer, self.knows_sizes = Layer(), knows_sizes
        self.joined = OneCallBySizes(self.layer, 3, 3, (0,))

    def check(self, sizes: tuple[int, int], constants: Sequence[Any], times: int = 2) -> bool:
        """Whether one of these calls had to make a plan."""
        plans = CallPlans(sizes if self.knows_sizes else ())
        made = [self.check_one(plans, sizes, constants, seed) for seed in range(times)]
        assert isinstance(plans.of_functions[self.joined].plan, Plan)
        return any(made)

    def check_one(
        self, plans: CallPlans, sizes: tuple[int, int], constants: Sequence[Any], seed: int
    ) -> bool:
        batch, rows = sizes
        before = self.layer.calls
        x = drawn(batch * rows, WIDTH, seed=seed)
        arguments = product(batch * rows), batch, rows, *constants, x
        wanted = Layer()(*arguments)
        assert_close(self.joined(plans, *arguments), wanted)
        return self.layer.calls > before


def test_formulas_say_plans_of_other_sizes() -> None:
    calls, constants = Calls(), weights(0)
    assert [calls.check(sizes, constants) for sizes in SAMPLED] == [True] * len(SAMPLED)
    # Between the sizes, below them, and up to twice as large.
    for sizes in ((3, 9), (2, 2), (8, 30), (7, 3), (16, 60), (2, 59), (15, 2)):
        assert not calls.check(sizes, constants)


def test_one_size_that_changes_takes_four_plans() -> None:
    calls, constants = Calls(), weights(0)
    made = [calls.check((2, rows), constants) for rows in (40, 12, 33, 25, 24, 13, 3, 39, 80)]
    assert made == [True] * 4 + [False] * 5


def test_much_larger_sizes_are_planned_for() -> None:
    calls, constants = Calls(), weights(0)
    lengths = 40, 12, 33, 25, 81, 161, 162, 163, 320
    made = [calls.check((2, rows), constants) for rows in lengths]
    assert made == [True] * 5 + [False, False, True, False]


def test_sizes_of_one_are_planned_for_apart() -> None:
    """Axes of one element lie in several ways."""
    calls, constants = Calls(), weights(0)
    assert [calls.check((1, rows), constants) for rows in (40, 12, 33, 25)] == [True] * 4
    assert not calls.check((1, 30), constants)
    for sizes in SAMPLED:
        assert calls.check(sizes, constants)
    for sizes in ((1, 1), (2, 1), (3, 1)):
        assert calls.check(sizes, constants)
    assert not calls.check((1, 31), constants)
    assert not calls.check((3, 31), constants)


@pytest.mark.parametrize("rows", [5, 1])
def test_the_first_call_of_a_batch_of_one_needs_no_plan_of_its_own(rows: int) -> None:
    """Where one that is made for it has other strides, as that of other batches has as well."""
    calls, constants = Calls(), weights(0)
    for batch in (40, 12, 33, 25):
        plans = CallPlans((batch,))
        assert calls.check_one(plans, (batch, rows), constants, 0)
    plans = CallPlans((1,))
    made = [calls.check_one(plans, (1, rows), constants, seed) for seed in range(4)]
    # Where nothing would be left of a part without the first row, a plan is made at once.
    assert made == ([False, True, False, False] if rows > 1 else [True, False, False, False])
    assert isinstance(plans.of_functions[calls.joined].plan, Plan)


def test_few_batches_decide_nothing_for_others() -> None:
    """The same formulas would hold for lengths of these batches, whatever batches do."""
    calls, constants = Calls(), weights(0)
    for sizes in ((2, 40), (2, 12), (2, 33), (2, 25)):
        assert calls.check(sizes, constants)
    assert not calls.check((2, 30), constants)
    assert calls.check((3, 30), constants)
    assert calls.check((4, 30), constants)
    assert not calls.check((2, 31), constants)


def test_other_constants_are_planned_for_anew() -> None:
    calls, lengths = Calls(), (40, 12, 33, 25)
    for seed in (0, 10):
        constants = weights(seed)
        assert [calls.check((2, rows), constants, 1) for rows in lengths] == [True] * 4
        assert not calls.check((2, 30), constants)


def test_without_sizes_each_call_is_planned_for() -> None:
    calls, constants = Calls(knows_sizes=False), weights(0)
    assert all(calls.check((2, rows), constants) for rows in range(9, 19))


def test_arrays_that_lie_in_another_way_are_planned_for() -> None:
    calls, constants = Calls(), weights(0)
    for rows in (40, 12, 33, 25):
        calls.check((2, rows), constants)
    x, plans = drawn(2 * 30, 2 * WIDTH)[:, ::2], CallPlans((2, 30))
    arguments = product(2 * 30), 2, 30, *constants, x
    assert_close(calls.joined(plans, *arguments), Layer()(*arguments))


def test_what_follows_no_formula_is_planned_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor are formulas looked for without end, and none of them is lost."""
    searched = []
    fitted = plan_formulas.Formulas.fitted

    def noted(*arguments: Any) -> Any:
        searched.append(len(arguments[0]))
        return fitted(*arguments)

    monkeypatch.setattr(plan_formulas.Formulas, "fitted", noted)
    called = []

    def function(rows: int, x: Any) -> Sequence[Any]:
        called.append(rows)
        return [KERNELS.softmax(x[: 1 + rows**3 % 101], or_zero=False)]

    joined, x = OneCallBySizes(function, 1, 0, ()), drawn(200, WIDTH)
    for rows in range(2, 60):
        found = joined(CallPlans((rows,)), rows, x)
        assert called == [*range(2, rows + 1)]
        assert_same(found, [KERNELS.softmax(x[: 1 + rows**3 % 101], or_zero=False)])
    assert len(searched) == plan_formulas.MOST_SEARCHES
    assert max(searched) == plan_formulas.MOST_SAMPLES


def test_a_size_with_other_kernels_leaves_the_formulas() -> None:
    calls = []

    def function(rows: int, x: Any) -> Sequence[Any]:
        calls.append(rows)
        y = KERNELS.softmax(x[:rows], or_zero=False)
        return [KERNELS.softmax(y, or_zero=False) if rows in (50, 300) else y]

    joined, x = OneCallBySizes(function, 1, 0, ()), drawn(300, WIDTH)
    for rows in (50, 80, 41, 52, 75, 60, 300, 61):
        found = joined(CallPlans((rows,)), rows, x)
        assert_same(found, function(rows, x))
        calls.pop()
    assert calls == [50, 80, 41, 52, 75, 300]


def test_nothing_is_planned_for_empty_arrays() -> None:
    def function(rows: int, x: Any) -> Sequence[Any]:
        return [KERNELS.softmax(x[: rows - 9], or_zero=False)]

    joined, x = OneCallBySizes(function, 1, 0, ()), drawn(200, WIDTH)
    for rows in (30, 41, 52, 75, 29, 10, 9):
        joined(CallPlans((0, rows)), rows, x)  # As with a cache of no rows yet.
        found = joined(CallPlans((rows,)), rows, x)
        assert_same(found, [KERNELS.softmax(x[: rows - 9], or_zero=False)])


def test_threads_learn_at_the_same_time() -> None:
    calls, constants = Calls(), weights(0)
    sizes = [(2 + i % 5, 2 + i * 7 % 40) for i in range(200)]
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(lambda each: calls.check(each, constants), sizes))
    assert calls.layer.calls < len(sizes)
