"""Kernels of a function for all sizes run in one call."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from sardonyx.backends import processors
from sardonyx.backends.executable import CallPlans, KernelCalls
from sardonyx.backends.interpreter import Interpreter
from sardonyx.backends.jax.onednn import HostKernels
from sardonyx.backends.jax.onednn.loaded import Kind
from sardonyx.backends.jax.onednn.one_call import OneCallBySizes
from sardonyx.graph.buckets import foreseen, learned_calls
from tests.support.background import wait_for_background
from tests.support.kernels import NEEDS_ONEDNN
from tests.test_buckets import normal
from tests.test_foreseen_sizes import BODY, WIDTH, right
from tests.test_foreseen_sizes import loaded as loaded_model
from tests.test_one_call import ROWS, assert_same, library, product, ran
from tests.test_onednn import drawn

__all__ = ["library", "ran"]
pytestmark = NEEDS_ONEDNN
KERNELS = HostKernels()
# Of the products.
INNER = 64


def halves(kernel: Any, packed: Any) -> Any:
    """A function of two variables, of a weight, and of one more array."""

    def function(rows: int, turned: bool, weight: Any, x: Any) -> Sequence[Any]:
        y = KERNELS.softmax(kernel.run(x, weight), or_zero=False)
        y = KERNELS.reshaped(y, (2, rows // 2, y.shape[-1]))
        return [KERNELS.softmax(y.swapaxes(0, 1) if turned else y, or_zero=False)]

    return function


def test_kernels_run_in_one_call(ran: list[Kind]) -> None:
    kernel, packed = product()
    function = halves(kernel, packed)
    joined = OneCallBySizes(function, 2, 1, ())
    for turned in (False, True):
        plans = CallPlans()
        x = drawn(ROWS, INNER)
        wanted = function(ROWS, turned, packed, x)
        for _ in range(4):
            ran.clear()
            assert_same(joined(plans, ROWS, turned, packed, x), wanted)
            assert ran == [Kind.SEQUENCE]
            x = x.copy()
        assert len(plans.of_functions) == 1


def test_each_size_keeps_its_plan(ran: list[Kind]) -> None:
    """Calls of two sizes take turns, as those of a service do."""
    kernel, packed = product()
    function = halves(kernel, packed)
    joined, both = OneCallBySizes(function, 2, 1, ()), (CallPlans(), CallPlans())
    x = drawn(ROWS, INNER)
    for call in range(6):
        turned = bool(call % 2)
        ran.clear()
        found = joined(both[turned], ROWS, turned, packed, x)
        assert ran == [Kind.SEQUENCE]
        assert_same(found, function(ROWS, turned, packed, x))


def test_another_weight_is_planned_for_anew() -> None:
    (kernel, packed), (_, other) = product(seed=1), product(seed=2)
    function = halves(kernel, packed)
    joined, plans = OneCallBySizes(function, 2, 1, ()), CallPlans()
    x = drawn(ROWS, INNER)
    for weight in (packed, packed, other, packed, other):
        found = joined(plans, ROWS, False, weight, x)
        assert_same(found, function(ROWS, False, weight, x))


def test_what_does_more_runs_as_it_is(ran: list[Kind]) -> None:
    kernel, packed = product()

    def function(added: float, weight: Any, x: Any) -> Sequence[Any]:
        return [KERNELS.softmax(kernel.run(x, weight) + np.float32(added), or_zero=False)]

    joined, plans, x = OneCallBySizes(function, 1, 1, ()), CallPlans(), drawn(ROWS, INNER)
    for _ in range(3):
        assert_same(joined(plans, 1.0, packed, x), function(1.0, packed, x))
    assert Kind.SEQUENCE not in ran


def test_new_sizes_are_not_planned_where_that_was_in_vain(ran: list[Kind]) -> None:
    kernel, packed = product()
    called = []

    def function(added: float, weight: Any, x: Any) -> Sequence[Any]:
        called.append(added)
        y = kernel.run(x, weight)
        return [KERNELS.softmax(y if added == 0 else y + np.float32(added), or_zero=False)]

    joined, plans = OneCallBySizes(function, 1, 1, ()), [CallPlans() for _ in range(3)]
    x = drawn(ROWS, INNER)
    for added, calls in ((1, 2), (1, 1), (2, 1), (2, 2), (2, 1), (0, 1), (0, 1)):
        called.clear()
        found = joined(plans[added], float(added), packed, x)
        assert len(called) == calls
        assert_same(found, function(added, packed, x))
    ran.clear()
    called.clear()
    assert_same(joined(plans[0], 0.0, packed, x), function(0.0, packed, x))
    assert (ran[0], called) == (Kind.SEQUENCE, [0.0])


def test_without_kernels_the_function_is_called() -> None:
    xp = Interpreter(lambda: False, None)
    joined = xp.in_one_call(KernelCalls(lambda n, x: [n * x], 0, variables=1))
    assert joined(CallPlans(), 3, 4) == [12]


@pytest.fixture
def all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned_calls, "SECONDS_PER_STEP", 1e9)
    monkeypatch.setattr(foreseen, "LEAST_NODES", 1)
    monkeypatch.setattr(processors, "available", lambda: 2)


@pytest.mark.usefixtures("all_sizes")
def test_a_model_joins_the_kernels_of_each_size(ran: list[Kind]) -> None:
    model = loaded_model(BODY)
    model(normal(1, 33, WIDTH))
    wait_for_background()
    for call in range(4):
        for length in (40, 70, 12):
            x = normal(1, length, WIDTH) / (1 + call)
            ran.clear()
            assert_allclose(model(x), right(x), rtol=1e-4, atol=1e-5)
            assert Kind.SEQUENCE in ran
    model.params["w"] = 2 * np.asarray(model.params["w"])
    x = normal(1, 40, WIDTH)
    for _ in range(3):
        assert_allclose(model(x), model(x), rtol=1e-6)
    assert model.stats().traces == 5


@pytest.mark.usefixtures("all_sizes")
def test_threads_share_the_plans_of_a_size() -> None:
    model = loaded_model(BODY)
    model(normal(1, 33, WIDTH))
    wait_for_background()
    arrays = {length: normal(1, length, WIDTH) for length in (40, 70, 12)}
    wanted = {length: right(x) for length, x in arrays.items()}
    faults: list[int] = []

    def call() -> None:
        for _ in range(30):
            for length, x in arrays.items():
                if not np.allclose(model(x), wanted[length], rtol=1e-4, atol=1e-5):
                    faults.append(length)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


@pytest.mark.usefixtures("all_sizes")
def test_a_cache_that_grows_has_no_plans(ran: list[Kind]) -> None:
    """Each call has another size: to plan would take longer than it saves."""
    body = """n = Slice(x, zero, one, one) m = MatMul(n, w) p = MatMul(m, w)
        y = Concat<axis = 1>(x, p)"""
    model = loaded_model(body, f"float[1,past,{WIDTH}] x", zero=np.array([0]), one=np.array([1]))
    cache = normal(1, 5, WIDTH)
    for _ in range(20):
        cache = model(cache)
        wait_for_background()
    ran.clear()
    for _ in range(5):
        cache = model(cache)
    assert Kind.SEQUENCE not in ran
