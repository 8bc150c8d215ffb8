from __future__ import annotations

from math import isnan
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST
from sardonyx.ops import selection as ops
from tests.property.case import Case
from tests.support.onnx_builders import INT64, model, node, value
from tests.support.types_present import needs

NARROW = [np.float16, ml_dtypes.bfloat16]
NAN = float("nan")


def run(xp: Backend, op: str, *inputs: Any, opset: int, outputs: int = 1, **given: Any) -> Any:
    """One operator as a model, which runs on the host what has no known shape."""
    arrays = tuple(None if value is None else np.asarray(value) for value in inputs)
    case = Case(op, opset, arrays, given, outputs)
    results = sardonyx.load(case.model, backend=xp).run(None, case.feeds)
    return results[0] if outputs == 1 else results


# -- TopK -----------------------------------------------------------------------------------------


def first_by_value(x: np.ndarray, k: int, axis: int, largest: int) -> tuple[Any, Any]:
    """Python's sort is stable, also in reverse; NaN is taken for more than infinity."""

    def order(row: np.ndarray) -> list[int]:
        keys = [(isnan(value), 0 if isnan(value) else value) for value in row.tolist()]
        return sorted(range(len(keys)), key=keys.__getitem__, reverse=bool(largest))[:k]

    moved = np.moveaxis(x, axis, -1)
    rows = moved.reshape(-1, x.shape[axis]).astype(object if x.dtype.kind != "V" else np.float32)
    places = np.array([order(row) for row in rows], np.int64).reshape(*moved.shape[:-1], k)
    places = np.moveaxis(places, -1, axis)
    return np.take_along_axis(x, places, axis), places


TYPES = [*NARROW, np.float32, np.float64, np.int8, np.uint8, np.int64, np.uint64, np.int32]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("axis", [-2, 0, 2])
def test_equal_values_keep_their_order(xp: Backend, dtype: Any, largest: int, axis: int) -> None:
    needs(xp, dtype)
    x = np.random.default_rng(0).integers(0, 4, (5, 6, 7)).astype(dtype)
    x[0, 0, 0] = x[3, 3, 3] = 127
    if dtype not in (np.int8, np.uint8):
        x = x * np.array(3).astype(dtype)
    if np.dtype(dtype).kind in "iu":
        limits = np.iinfo(dtype)
        x[1, 2, 3], x[2, 1, 0], x[0, 1, 1] = limits.min, limits.max, limits.max - 1
    values, places = run(
        xp, "TopK", x, np.array([4]), axis=axis, largest=largest, opset=24, outputs=2
    )
    expected = first_by_value(x, 4, axis, largest)
    assert (values.dtype, places.dtype) == (x.dtype, np.int64)
    np.testing.assert_array_equal(places, expected[1])
    np.testing.assert_array_equal(values, expected[0])


@pytest.mark.parametrize("dtype", [*NARROW, np.float32, np.float64])
@pytest.mark.parametrize("largest", [0, 1])
def test_nan_is_the_greatest_and_both_zeros_are_equal(
    xp: Backend, dtype: Any, largest: int
) -> None:
    needs(xp, dtype)
    x = np.array([0.0, -0.0, NAN, -NAN, np.inf, -np.inf, -0.0, 0.0, NAN, -1]).astype(dtype)
    values, places = run(xp, "TopK", x, np.array([10]), largest=largest, opset=24, outputs=2)
    forwards = [5, 9, 0, 1, 6, 7, 4, 2, 3, 8]
    backwards = [2, 3, 8, 4, 0, 1, 6, 7, 9, 5]
    assert places.tolist() == (backwards if largest else forwards)
    bits = f"u{x.itemsize}"
    np.testing.assert_array_equal(
        values[4 if largest else 0 :][:4].view(bits),
        x[places][4 if largest else 0 :][:4].view(bits),
    )


@pytest.mark.parametrize("opset", [1, 10, 11])
def test_k_is_an_attribute_or_an_input(xp: Backend, opset: int) -> None:
    x = np.array([[3, 1, 2], [4, 6, 5]], np.float32)
    inputs, given = ([], {"k": 2}) if opset < 10 else ([np.array([2])], {})
    values, places = run(xp, "TopK", x, *inputs, **given, opset=opset, outputs=2, axis=1)
    np.testing.assert_array_equal(values, [[3, 2], [6, 5]])
    np.testing.assert_array_equal(places, [[0, 2], [1, 2]])


def test_none_of_the_elements_and_all_of_them_are_chosen(xp: Backend) -> None:
    x = np.array([[2, 3, 1]], np.float32)
    values, _ = run(xp, "TopK", x, np.array([0]), opset=11, outputs=2)
    assert values.shape == (1, 0)
    values, _ = run(xp, "TopK", x, np.array([3]), sorted=0, opset=11, outputs=2)
    assert sorted(values[0].tolist()) == [1, 2, 3]
    values, places = run(xp, "TopK", x[:0], np.array([2]), opset=11, outputs=2)
    assert values.shape == places.shape == (0, 2)


@pytest.mark.parametrize(("k", "axis"), [(4, -1), (-1, -1), (1, 2), (1, -3)])
def test_there_must_be_as_many(k: int, axis: int) -> None:
    with pytest.raises(ValueError, match=r"must lie between|out of range"):
        ops.TopK(HOST, np.zeros((2, 3), np.float32), k, axis=axis)


# -- Compress -------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [None, *range(-3, 3)])
@pytest.mark.parametrize("dtype", [np.float32, np.bool_, np.complex64, *NARROW])
def test_compress(xp: Backend, axis: int | None, dtype: Any) -> None:
    needs(xp, dtype)
    x = np.arange(24).reshape(2, 3, 4).astype(dtype)
    size = x.size if axis is None else x.shape[axis]
    condition = np.random.default_rng(0).random(size - 1) < 0.5
    given = {} if axis is None else {"axis": axis}
    result = run(xp, "Compress", x, condition, **given, opset=28)
    assert result.dtype == x.dtype
    np.testing.assert_array_equal(result, np.compress(condition, x, axis=axis))


def test_compress_strings_and_nothing(xp: Backend) -> None:
    words = np.array(["a", "b", "c"], object)
    assert run(HOST, "Compress", words, [True, False, True], opset=11).tolist() == ["a", "c"]
    for shape, condition, attributes, expected in (
        ((2, 3), np.zeros(0, bool), {}, (0,)),
        ((2, 0), [True], {"axis": 0}, (1, 0)),
        # What does not hold chooses nothing, also where there is nothing to choose.
        ((1,), [True, False], {}, (1,)),
    ):
        result = run(xp, "Compress", np.ones(shape, np.float32), condition, opset=11, **attributes)
        assert result.shape == expected


@pytest.mark.parametrize(
    ("condition", "given", "message"),
    [
        (np.ones((1, 1), bool), {}, "one axis"),
        (np.ones(7, bool), {}, "beyond the 6"),
        (np.ones(3, bool), {"axis": 0}, "beyond the 2"),
        (np.ones(1, bool), {"axis": 2}, "out of range"),
    ],
)
def test_compress_refuses_what_does_not_fit(condition: Any, given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ops.Compress(HOST, np.zeros((2, 3), np.float32), condition, **given)


# -- NonZero --------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 0, 2), (2, 1, 3, 2), (0,)])
@pytest.mark.parametrize("dtype", [np.float32, np.bool_, np.int8, np.complex64, *NARROW])
def test_non_zero(xp: Backend, shape: tuple[int, ...], dtype: Any) -> None:
    needs(xp, dtype)
    x = np.random.default_rng(0).integers(-1, 2, shape).astype(dtype)
    result = run(xp, "NonZero", x, opset=13)
    expected = np.stack(np.nonzero(x.astype(np.complex64)))
    assert result.dtype == np.int64
    np.testing.assert_array_equal(result, expected)


def test_non_zero_of_a_scalar_has_no_rows(xp: Backend) -> None:
    assert run(xp, "NonZero", np.float32(2), opset=13).shape == (0, 1)
    assert run(xp, "NonZero", np.float32(0), opset=13).shape == (0, 0)


def test_a_negative_zero_is_zero_and_nan_is_not(xp: Backend) -> None:
    assert run(xp, "NonZero", np.array([-0.0, NAN, 1], np.float32), opset=13).tolist() == [[1, 2]]
    narrow = np.array([-0.0, NAN, 1], ml_dtypes.bfloat16)
    assert run(HOST, "NonZero", narrow, opset=13).tolist() == [[1, 2]]
    assert run(HOST, "NonZero", np.array(["", "0"], object), opset=13).tolist() == [[1]]


def test_what_follows_knows_the_shape(xp: Backend) -> None:
    """A second call with as many, and one with more."""
    nodes = [node("Relu", ["x"], ["r"]), node("NonZero", ["r"], ["n"])]
    chained = model([*nodes, node("Add", ["n", "n"], ["y"])], ["x"], [value("y", None, INT64)])
    loaded = sardonyx.load(chained, backend=xp)
    for x in ([1, 0, 3], [0, 2, 3], [4, 5, 6], [0, 0, 0]):
        (result,) = loaded.run(None, {"x": np.array(x, np.float32)})
        np.testing.assert_array_equal(result, 2 * np.flatnonzero(x)[None])


# -- Unique ---------------------------------------------------------------------------------------


def one_of_each(slices: list[Any], in_order: bool) -> tuple[list[int], list[int], list[int]]:
    """The first place of each different value, which one each is, and how many there are."""
    values = sorted(set(slices)) if in_order else list(dict.fromkeys(slices))
    first = [slices.index(value) for value in values]
    return first, [values.index(s) for s in slices], [slices.count(value) for value in values]


def assert_one_of_each(xp: Backend, x: np.ndarray, axis: int | None, in_order: int) -> None:
    given = {} if axis is None else {"axis": axis}
    found = run(xp, "Unique", x, **given, sorted=in_order, opset=28, outputs=4)
    moved = x.reshape(-1, 1) if axis is None else np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1)
    first, inverse, counts = one_of_each([tuple(s) for s in moved.tolist()], bool(in_order))
    chosen = np.take(x if axis is not None else x.reshape(-1), np.array(first, int), axis or 0)
    for result, expected in zip(found, (chosen, first, inverse, counts), strict=True):
        np.testing.assert_array_equal(result, expected)
    assert [r.dtype for r in found] == [x.dtype, *[np.dtype(np.int64)] * 3]
    alone = run(xp, "Unique", x, **given, sorted=in_order, opset=28)
    assert alone.dtype == x.dtype
    np.testing.assert_array_equal(alone, chosen)


@given(st.data())
@settings(deadline=None, max_examples=50)
def test_unique(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    axis = data.draw(st.sampled_from([None, *range(-len(shape), len(shape))]))
    most = data.draw(st.integers(0, 4))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    dtype = data.draw(st.sampled_from([np.int64, np.float32, np.uint8, np.bool_, np.float16]))
    x = rng.integers(0, most, shape, endpoint=True).astype(dtype)
    for xp in (HOST, JaxBackend()):
        assert_one_of_each(xp, x, axis, data.draw(st.integers(0, 1)))


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("in_order", [0, 1])
@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.uint64, np.bool_, *NARROW])
def test_unique_everywhere(xp: Backend, axis: int | None, in_order: int, dtype: Any) -> None:
    needs(xp, dtype)
    x = np.array([[2, 1, 2, 0], [1, 1, 2, 3], [2, 1, 2, 0], [0, 0, 0, 0]]).astype(dtype)
    assert_one_of_each(xp, x, axis, in_order)


@pytest.mark.parametrize("in_order", [0, 1])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_unique_strings(in_order: int, axis: int | None) -> None:
    words = np.array([["b", "", "b"], ["Ä", "a", "Ä"], ["b", "", "b"]], object)
    assert_one_of_each(HOST, words, axis, in_order)


def test_all_nan_are_one_value_and_so_are_both_zeros(xp: Backend) -> None:
    x = np.array([NAN, 0.0, -0.0, 1, NAN, -1], np.float32)
    values, first, inverse, counts = run(xp, "Unique", x, opset=11, outputs=4)
    np.testing.assert_array_equal(values, np.array([-1, 0, 1, NAN], np.float32))
    assert first.tolist() == [5, 1, 3, 0]
    assert inverse.tolist() == [3, 1, 1, 2, 3, 0]
    assert counts.tolist() == [1, 2, 1, 2]
    # Of equal values the first one counts.
    for zeros in ([0.0, -0.0], [-0.0, 0.0]):
        x = np.array([NAN, *zeros, 1, NAN, *zeros], np.float32)
        alone = run(xp, "Unique", x, opset=11)
        assert str(alone.tolist()) == str([zeros[0], 1.0, NAN])
        assert str(run(xp, "Unique", x, opset=11, outputs=4)[0].tolist()) == str(alone.tolist())
    rows = np.array([[NAN, 1], [0.0, 1], [NAN, 1], [-0.0, 1]], np.float32)
    assert run(xp, "Unique", rows, axis=0, sorted=0, opset=11, outputs=4)[2].tolist() == [
        0,
        1,
        0,
        1,
    ]


@pytest.mark.parametrize(
    ("shape", "axis", "expected"),
    [
        ((0,), None, (0,)),
        ((2, 0), None, (0,)),
        ((2, 0), 0, (1, 0)),
        ((2, 0), 1, (2, 0)),
        ((), None, (1,)),
    ],
)
def test_unique_of_little(xp: Backend, shape: Any, axis: int | None, expected: Any) -> None:
    given = {} if axis is None else {"axis": axis}
    result = run(xp, "Unique", np.zeros(shape, np.float32), **given, opset=11)
    assert result.shape == expected
    with pytest.raises(ValueError, match="out of range"):
        ops.Unique(HOST, np.zeros(shape), axis=len(shape))


def test_unique_takes_few_sorts() -> None:
    """Thousands of columns: a sort for each would take minutes."""
    rows = np.random.default_rng(0).integers(0, 2, (50, 20_000))
    rows[::2] = rows[0]
    _, _, inverse, counts = ops.Unique(HOST, rows, axis=0)
    assert counts.max() == 25
    assert len(set(inverse[::2].tolist())) == 1
