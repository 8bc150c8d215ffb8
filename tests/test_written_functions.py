"""Functions of a backend, written out as calls of NumPy, give what they give step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from sardonyx.backends.conditions import NonZero, Within
from sardonyx.backends.executable import Executable, Spec, WrittenOut
from sardonyx.backends.numpy import HOST
from sardonyx.backends.written_out.notes import Unnoted
from sardonyx.backends.written_out.program import written_out
from sardonyx.graph.programs.written_segment import WrittenSegment
from sardonyx.ops.indexing import Gather, GatherElements, GatherND
from sardonyx.ops.scattering import ScatterElements, ScatterND

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def written(
    function: Callable[..., Sequence[Any]], *arrays: Any, inputs: int | None = None
) -> WrittenOut | None:
    expected = [HOST.spec(np.asarray(result)) for result in function(HOST, *arrays)]
    specs = [Spec(array.shape, array.dtype) for array in arrays]
    count = len(arrays) if inputs is None else inputs
    return written_out(function, specs, count, expected)


def run(function: WrittenOut, *inputs: Any, weights: Sequence[Any] = ()) -> Any:
    return function.run(lambda: False, _fail, *function.ahead(*weights), *inputs)


def _fail(*inputs: Any) -> Any:
    raise AssertionError("NumPy raised an error")


def test_results_are_those_of_the_function() -> None:
    def function(xp: Any, x: Any, w: Any) -> Sequence[Any]:
        scores = xp.matmul(x, w) + 1
        parts = xp.exp(scores - xp.max(scores, axis=1, keepdims=True))
        shares = parts / xp.sum(parts, axis=1, keepdims=True)
        return [shares, xp.argmax(scores, axis=1), xp.stack([scores, scores])[1], scores[:, ::-1].T]

    w = np.array([[1, -1], [2, 0.5], [-3, 4]], np.float32)
    found = written(function, X, w, inputs=1)
    assert found is not None
    for x in (X, -X, 3 * X):
        for one, other in zip(run(found, x, weights=[w]), function(HOST, x, w), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "read",
    [
        lambda x: bool(x[0, 0]),
        lambda x: float(x[0, 0]),
        lambda x: int(x[0, 0]),
        lambda x: [1, 2, 3][x[0, 0]],
        list,
        np.asarray,
        lambda x: np.array([x, x]),
        lambda x: x.tolist(),
        lambda x: x.item(0),
        lambda x: x.flags,
        lambda x: x.ctypes,
        lambda x: 1.0 in x,
        np.nonzero,
        np.unique,
        lambda x: np.where(x > 0),
        lambda x: x[x > 0],
        lambda x: x[:, x[0] > 0],
        lambda x: X[: x.astype(np.int64)[0, 0]],
        lambda x: x[: x.astype(np.int64)[0, 0]],
        lambda x: np.reshape(X, x.astype(np.int64)),
        lambda x: np.repeat(X, x.astype(np.int64)),
        lambda x: np.add(X, x, out=X.copy()),
        lambda x: np.shares_memory(x, x),
    ],
)
def test_what_depends_on_elements_is_not_written(read: Callable[[Any], Any]) -> None:
    def function(xp: Any, x: Any) -> Sequence[Any]:
        if not isinstance(x, np.ndarray):
            read(x)
        return [x + 1]

    assert written(function, X) is None


def test_arrays_that_a_call_changes_are_its_own() -> None:
    def function(xp: Any, x: Any, w: Any) -> Sequence[Any]:
        buffer = xp.zeros((2, 3), dtype=x.dtype)
        buffer[0] = w
        buffer[1] += x[0]
        total = xp.asarray(w, copy=True)
        part = total[1:]
        part *= x[0, 1:]
        return [buffer, total]

    w = np.array([5, 6, 7], np.float32)
    found = written(function, X, w, inputs=1)
    assert found is not None
    for x in (X + 1, X + 2, X + 1):
        buffer, total = run(found, x, weights=[w])
        np.testing.assert_array_equal(buffer, [w, x[0]])
        np.testing.assert_array_equal(total, [5, 6 * x[0, 1], 7 * x[0, 2]])
    np.testing.assert_array_equal(w, [5, 6, 7])


def test_what_is_read_before_it_changes_stays_as_it_was() -> None:
    def function(xp: Any, x: Any, w: Any) -> Sequence[Any]:
        buffer = xp.zeros((3,), dtype=x.dtype)
        view = buffer[1:]
        before = x + buffer
        buffer[1] = w[0]
        return [before, x[:, 1:] + view, buffer]

    w = np.array([5, 6, 7], np.float32)
    found = written(function, X, w, inputs=1)
    assert found is not None
    for _ in range(2):
        for one, other in zip(run(found, X, weights=[w]), function(HOST, X, w), strict=True):
            np.testing.assert_array_equal(one, other)


def test_results_belong_to_the_caller() -> None:
    def function(xp: Any, x: Any, w: Any) -> Sequence[Any]:
        return [x, x[0], w, w + 1, xp.asarray(np.ones(3, np.float32)), xp.reshape(x + 1, (3, 2))]

    w = np.array([5, 6, 7], np.float32)
    found = written(function, X, w, inputs=1)
    assert found is not None
    first, again = (run(found, X, weights=[w]) for _ in range(2))
    for one, other in zip(first, again, strict=True):
        assert not one.flags.writeable
        assert not any(np.shares_memory(one, array) for array in (X, w, other))


@pytest.mark.parametrize(
    "function",
    [
        lambda xp, x: xp.broadcast_arrays(x, x),
        lambda xp, x: [xp.real(x)],
        lambda xp, x: [np.round(xp.astype(x, np.dtype(np.int32)))],
        lambda xp, x: [x.astype(x.dtype, copy=False)],
    ],
)
def test_arguments_that_numpy_returns(function: Any) -> None:
    found = written(function, X)
    assert found is not None
    x = X.copy()
    for result in run(found, x):
        np.testing.assert_array_equal(result, X)
        assert not np.shares_memory(result, x)
    assert x.flags.writeable


def test_a_step_that_returns_its_argument() -> None:
    def step(xp: Any, arrays: Sequence[Any]) -> Sequence[Any]:
        return [arrays[0] if bool(arrays[0].any()) else arrays[0] + 1]

    def replay(xp: Any, x: Any) -> Sequence[Any]:
        xp.begin_step()
        try:
            return step(xp, [x])
        except Unnoted:
            return list(xp.deferred(step, [x], [Spec(x.shape, x.dtype)]))

    spec = Spec(X.shape, X.dtype)
    found = written_out(replay, [spec], 1, [spec], steps=HOST)
    assert found is not None
    x = X.copy()
    (result,) = run(found, x)
    assert not np.shares_memory(result, x)
    assert x.flags.writeable


def test_results_that_are_the_same_array_share_no_memory() -> None:
    def function(xp: Any, x: Any) -> Sequence[Any]:
        y = x + 1
        return [y, xp.reshape(y, (2, 3)), y, xp.astype(y, y.dtype)]

    found = written(function, X)
    assert found is not None
    results = run(found, X)
    for i, one in enumerate(results):
        np.testing.assert_array_equal(one, X + 1)
        assert not any(np.shares_memory(one, other) for other in results[:i])


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("number", [0, 3, -1, 300, 2.5, float("nan"), np.float32(1.5), np.int8(7)])
def test_numbers_beside_arrays(dtype: Any, number: Any) -> None:
    """They become arrays of no axes, with results of the same types and bits."""
    operations = (np.add, np.multiply, np.divide, np.maximum, np.equal, np.less, np.power)
    x = np.arange(6).reshape(2, 3).astype(dtype)
    for operation in operations:
        for order in (1, -1):

            def function(xp: Any, x: Any, operation: Any = operation, order: int = order) -> Any:
                return [operation(*(x, number)[::order])]

            try:
                with np.errstate(all="ignore"):
                    (expected,) = function(np, x)
                    found = written(function, x)
            except (OverflowError, ValueError):
                continue
            assert found is not None
            (result,) = run(found, x)
            assert result.dtype == expected.dtype
            np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("left", "right"),
    [((2, 3), (3, 4)), ((1, 3), (3, 1)), ((5, 2, 3), (3, 4)), ((2, 0, 3), (3, 4)), ((3,), (3, 4)),
     ((2, 2, 3), (2, 3, 4)), ((2, 0), (0, 4)), ((4, 2, 0), (0, 3))],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [np.int32, np.float16, np.float32, np.float64])
def test_products(left: tuple[int, ...], right: tuple[int, ...], dtype: Any) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, left).astype(dtype), rng.integers(-4, 5, right).astype(dtype)
    for x, y in ((a, b), (np.asfortranarray(a), np.ascontiguousarray(b.T).T)):
        found = written(lambda xp, x, y: [xp.matmul(x, y)], x, y)
        assert found is not None
        (result,) = run(found, x, y)
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, np.matmul(x, y))


def test_work_on_weights_is_done_ahead() -> None:
    def function(xp: Any, x: Any, w: Any) -> Sequence[Any]:
        return [x + xp.sum(xp.exp(w), axis=0)]

    w = np.ones((4, 3), np.float32)
    found = written(function, X, w, inputs=1)
    assert found is not None
    (ahead,) = found.ahead(w)
    np.testing.assert_allclose(ahead, np.full((2, 3), 4 * np.e), rtol=1e-6)
    every, only = written(function, X, w), found
    assert every is not None
    assert only.price < every.price


@pytest.mark.parametrize(
    "made",
    [
        lambda xp, x, w: xp.matmul(x, w),
        lambda xp, x, w: x[:, :1] * w[0],
        lambda xp, x, w: xp.concat([x[:, :1], xp.reshape(w[0, :1], (1, 1)) + x[:, 2:]], axis=1),
        lambda xp, x, w: xp.where(x > 1, x, w[0, 0]),
    ],
    ids=["product", "ufunc", "joined", "selected"],
)
def test_work_on_weights_is_done_ahead_where_new_arrays_are_changed(made: Any) -> None:
    """Attention changes scores in place, which are made of products with weights."""

    def function(xp: Any, x: Any, w: Any) -> Sequence[Any]:
        result = made(xp, x, xp.exp(w))
        result -= 1
        return [result]

    w = np.ones((3, 4), np.float32)
    found = written(function, X, w, inputs=1)
    assert found is not None
    for _ in range(2):
        np.testing.assert_array_equal(run(found, X, weights=[w])[0], function(HOST, X, w)[0])
    assert all(np.all(np.asarray(each) == np.exp(np.float32(1))) for each in found.ahead(w))


@pytest.mark.parametrize(
    "function",
    [
        lambda xp, x: [xp.take(xp.asarray(np.arange(4)), xp.astype(x, np.dtype(np.int64)), axis=0)],
        lambda xp, x: [xp.require(x, Within("x", 0, 3)), x + 1][1:],
        lambda xp, x: [xp.require(x, NonZero("x")), x + 1][1:],
    ],
    ids=["an index", "a range", "a divisor"],
)
@pytest.mark.parametrize("shape", [(1,), (3,)])
def test_an_error_runs_the_other_function(function: Any, shape: tuple[int, ...]) -> None:
    good, bad = np.full(shape, 3, np.float32), np.full(shape, 3, np.float32)
    bad[-1] = 0 if "NonZero" in function.__code__.co_names else 9
    found = written(function, good)
    assert found is not None
    np.testing.assert_array_equal(run(found, good), function(HOST, good))
    ahead = found.ahead()
    assert found.run(lambda: False, lambda x: ["other", x], *ahead, bad) == ["other", bad]
    assert found.run(lambda: True, lambda x: ["other", x], *ahead, good) == ["other", good]


@pytest.mark.parametrize("place", [3, -4, 2**40])
@pytest.mark.parametrize(
    "function",
    [
        lambda xp, i: Gather(xp, xp.asarray(X.T.copy()), i),
        lambda xp, i: GatherElements(xp, xp.asarray(X), i[None, :], axis=1),
        lambda xp, i: GatherND(xp, xp.asarray(X), xp.stack([i % 2, i], axis=1)),
        lambda xp, i: GatherND(xp, xp.asarray(X.T[:, :0].copy()), i[:, None]),
        lambda xp, i: ScatterElements(xp, xp.asarray(X[0]), i, xp.asarray(X[1])),
        lambda xp, i: ScatterND(xp, xp.asarray(X.T), i[:, None], xp.asarray(X.T), reduction="add"),
    ],
    ids=["gather", "elements", "nd", "empty", "scatter", "scatter nd"],
)
def test_an_index_out_of_range_runs_the_other_function(function: Any, place: int) -> None:
    """NumPy refuses it by itself, so that no call looks at the range before."""
    good, bad = np.array([2, 0, -1]), np.array([2, place, 0])
    found = written(lambda xp, i: [function(xp, i)], good)
    assert found is not None
    np.testing.assert_array_equal(run(found, good)[0], function(HOST, good))
    ahead = found.ahead()
    assert found.run(lambda: False, lambda i: ["other", i], *ahead, bad) == ["other", bad]


def test_weights_that_numpy_refuses() -> None:
    def function(xp: Any, x: Any, w: Any) -> Sequence[Any]:
        return [x + xp.take(xp.asarray(np.arange(4)), w, axis=0)]

    x, w = np.ones(2, np.int64), np.array([1, 3])
    found = written(function, x, w, inputs=1)
    assert found is not None
    segment = WrittenSegment(found, 1, HOST, lambda: Executable(lambda *arrays: arrays))
    for weights, expected in ((w, [np.array([2, 4])]), (w + 2, (x, w + 2))):
        assert segment.executable.on_numpy is not None
        for one, other in zip(segment.executable.on_numpy([weights])(x), expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_large_programs_are_not_written() -> None:
    def function(xp: Any, x: Any) -> Sequence[Any]:
        return [xp.tanh(x)]

    for size, is_small in ((10, True), (100_000, False)):
        spec = Spec((size,), np.dtype(np.float32))
        assert (written_out(function, [spec], 1, [spec], limit=10) is not None) == is_small
