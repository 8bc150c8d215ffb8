"""Plans of products on CuPy: what cuBLAS would do by them, done by NumPy. No GPU is needed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sardonyx.backends.cupy import product_plans
from sardonyx.backends.cupy.product_plans import Copied, Matrix, Plan, TooLarge, planned

Pair = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


def in_elements(x: np.ndarray[Any, Any]) -> tuple[int, ...]:
    return tuple(step // x.itemsize for step in x.strides)


def planned_for(a: Any, b: Any) -> Plan | Copied:
    return planned((a.shape, b.shape), (in_elements(a), in_elements(b)))


def read(start: int, matrix: Matrix, rows: int, columns: int) -> Any:
    """The places of a matrix's elements in memory, as cuBLAS takes them."""
    if matrix.is_transposed:
        assert matrix.leading >= rows
        return start + np.arange(rows)[:, None] + np.arange(columns) * matrix.leading
    assert matrix.leading >= columns
    return start + np.arange(rows)[:, None] * matrix.leading + np.arange(columns)


def memory_of(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The elements from the array's first one on; plans of arrays that go backwards are copies."""
    length = 1 + sum((n - 1) * step for n, step in zip(x.shape, in_elements(x), strict=True))
    return np.lib.stride_tricks.as_strided(x, (length,), (x.itemsize,))


def computed(plan: Plan, a: Any, b: Any) -> np.ndarray[Any, Any]:
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = (*batch, a.shape[-2], b.shape[-1])
    result = np.full(math.prod(shape), -1)
    of_a, of_b = memory_of(a), memory_of(b)
    for call in plan.calls:
        assert 0 < call.matrices <= product_plans.LARGEST_STACK
        for i in range(call.matrices):
            at = [start + i * step for start, step in zip(call.starts, call.strides, strict=True)]
            left = of_a[read(at[0], plan.a, plan.m, plan.k)]
            right = of_b[read(at[1], plan.b, plan.k, plan.n)]
            places = read(at[2], plan.c, plan.m, plan.n)
            assert (result[places] == -1).all(), "an element is written twice"
            result[places] = left @ right
    return result.reshape(shape)


def check(a: Any, b: Any) -> None:
    plan = planned_for(a, b)
    copies = 0
    while isinstance(plan, Copied):
        copies += 1
        assert copies <= 2
        assert plan.a or plan.b
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2]) if plan.is_repeated else None
        a, b = (
            x if not is_copied else _copied(x, batch) for x, is_copied in ((a, plan.a), (b, plan.b))
        )
        plan = planned_for(a, b)
    np.testing.assert_array_equal(computed(plan, a, b), a @ b)


def _copied(x: Any, batch: Any) -> Any:
    whole = x if batch is None else np.broadcast_to(x, (*batch, *x.shape[-2:]))
    return np.array(whole, order="C")


@st.composite
def pairs(draw: Any) -> Pair:
    sizes = st.integers(1, 3)
    batch = draw(st.lists(st.integers(1, 4), max_size=3))
    m, k, n = draw(sizes), draw(sizes), draw(sizes)
    return tuple(draw(laid_out(batch, matrix)) for matrix in ((m, k), (k, n)))


@st.composite
def laid_out(draw: Any, batch: list[int], matrix: tuple[int, int]) -> np.ndarray[Any, Any]:
    """An array of some of the batch's axes, with axes in any order, steps, and sides cut off."""
    own = batch[draw(st.integers(0, len(batch))) :]
    own = [1 if draw(st.booleans()) else size for size in own]
    shape = (*own, *matrix)
    order = draw(st.permutations(range(len(shape))))
    steps = [draw(st.sampled_from([1, 1, 1, 2, -1])) for _ in shape]
    wider = [n * abs(step) + draw(st.integers(0, 1)) for n, step in zip(shape, steps, strict=True)]
    x = np.arange(1, math.prod(wider) + 1).reshape([wider[axis] for axis in order])
    x = x.transpose(np.argsort(order))
    x = x[tuple([slice(None, None, step) for step in steps])]
    x = x[tuple([slice(n) for n in shape])]
    repeated = draw(st.sampled_from([None, None, *range(len(shape))]))
    if repeated is not None:
        first = x[tuple([slice(1) if i == repeated else slice(None) for i in range(x.ndim)])]
        x = np.broadcast_to(first, shape)
    return x


@given(pairs())
def test_plans_multiply_what_arrays_hold(pair: Pair) -> None:
    check(*pair)


@given(pairs(), st.integers(1, 3), st.integers(1, 4))
def test_plans_of_few_calls_and_short_stacks(pair: Pair, calls: int, stack: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(product_plans, "MOST_CALLS", calls)
        patch.setattr(product_plans, "LARGEST_STACK", stack)
        check(*pair)


def test_copies_that_are_too_large_are_calls_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = np.ones((20, 1, 2, 3)), np.ones((1, 30, 3, 4))
    assert planned_for(a, b) == Copied(True, True, True)
    monkeypatch.setattr(product_plans, "LARGEST_COPY", 1000)
    plan = planned_for(a, b)
    assert isinstance(plan, Plan)
    assert len(plan.calls) == 20
    check(a, b)


def test_sizes_beyond_int32_are_refused() -> None:
    whole = 2**31
    with pytest.raises(TooLarge):
        planned(((whole, 1), (1, 1)), ((1, 1), (1, 1)))
    with pytest.raises(TooLarge):
        planned(((2, 1), (1, 1)), ((whole, 1), (1, 1)))
    # Rows of a stack are put below each other only as far as they can be counted.
    plan = planned(((2**16, 2**15, 1), (1, 1)), ((2**15, 1, 1), (1, 1)))
    assert isinstance(plan, Plan)
    assert plan.m == 2**15
    assert [call.matrices for call in plan.calls] == [2**16 - 1, 1]
