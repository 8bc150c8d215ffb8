from __future__ import annotations

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
from sardonyx.ops import scattering as ops
from tests.ops.oracle import onnxruntime_run, run
from tests.support.types_present import needs

CUBE = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
WORDS = np.array(["a", "b", "c"], object)
COMBINE = {
    "none": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": max,
    "min": min,
}


def random_places(size: int, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Places on an axis, from either end, some of them twice."""
    return np.random.default_rng(seed).integers(-size, size, shape)


def scattered(data: np.ndarray, places: Any, updates: np.ndarray, reduction: str) -> np.ndarray:
    """What the standard's loop over the updates makes, in float64 where it is a float."""
    wide = np.float64 if data.dtype.kind in "fV" else data.dtype
    result = data.astype(wide)
    for place, update in zip(places, updates.reshape(-1).astype(wide), strict=True):
        result[place] = COMBINE[reduction](result[place], update)
    return result.astype(data.dtype)


def element_places(indices: np.ndarray, axis: int) -> list[tuple[int, ...]]:
    everywhere = list(np.ndindex(indices.shape))
    return [(*p[:axis], int(indices[p]), *p[axis + 1 :]) for p in everywhere]


# -- ScatterElements ------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", range(-3, 3))
@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
def test_elements_combine_also_where_places_repeat(xp: Backend, axis: int, reduction: str) -> None:
    shape = [1, 2, 3]
    shape[axis] = 5
    indices = random_places(CUBE.shape[axis], tuple(shape))
    updates = np.random.default_rng(1).integers(-3, 4, shape).astype(np.float32)
    result = run(xp, ops.ScatterElements, CUBE, indices, updates, axis=axis, reduction=reduction)
    expected = scattered(CUBE, element_places(indices, axis % 3), updates, reduction)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("axis", range(-3, 3))
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_elements_are_replaced(xp: Backend, axis: int, kind: Any) -> None:
    size = CUBE.shape[axis]
    order = np.argsort(np.random.default_rng(0).random((2, 2, 2)), axis=axis)
    indices = (order - size * (order % 2)).astype(kind)
    updates = -np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    expected = onnxruntime_run("ScatterElements", CUBE, indices, updates, opset=18, axis=axis)
    for op in (ops.ScatterElements, ops.Scatter):
        result = run(xp, op, CUBE, indices, updates, axis=axis)
        np.testing.assert_array_equal(result, expected)


def test_the_deprecated_scatter_runs_as_a_model(xp: Backend) -> None:
    indices, updates = np.zeros((1, 1, 1), np.int64), np.full((1, 1, 1), -1, np.float32)
    with xp.scope():
        given = [xp.put(value) for value in (CUBE, indices, updates)]
    result = xp.fetch(sardonyx.run_op("Scatter", *given, axis=2, opset=9))
    assert result[0, 0, 0] == -1
    np.testing.assert_array_equal(result[1], CUBE[1])


# -- ScatterND ------------------------------------------------------------------------------------


@pytest.mark.slow
@given(st.data())
@settings(deadline=None, max_examples=25)
def test_slices_are_combined(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)))
    count = data.draw(st.integers(1, len(shape)))
    lead = tuple(data.draw(st.lists(st.integers(0, 3), max_size=2)))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x = rng.integers(-9, 9, shape).astype(np.int64)
    sizes = np.array(shape[:count])
    indices = rng.integers(-sizes, sizes, (*lead, count))
    updates = rng.integers(-9, 9, (*lead, *shape[count:]))
    reduction = data.draw(st.sampled_from(["add", "mul", "max", "min"]))
    expected = x.copy()
    elementwise = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
    for p in np.ndindex(lead):
        place = tuple(indices[p])
        expected[place] = elementwise[reduction](expected[place], updates[p])
    for xp in (HOST, JaxBackend()):
        result = run(xp, ops.ScatterND, x, indices, updates, reduction=reduction)
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_slices_are_replaced(xp: Backend, count: int) -> None:
    indices = np.array([[[1, -1, 0]], [[0, 2, -1]]])[..., :count]
    updates = -np.ones((2, 1, *CUBE.shape[count:]), np.float32)
    result = run(xp, ops.ScatterND, CUBE, indices, updates)
    expected = onnxruntime_run("ScatterND", CUBE, indices, updates, opset=13)
    np.testing.assert_array_equal(result, expected)


# -- of both --------------------------------------------------------------------------------------

TYPES = [np.bool_, np.int8, np.uint64, np.float16, ml_dtypes.bfloat16, np.float64, np.complex64]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.sampled(4)
def test_every_type_is_written(xp: Backend, dtype: Any, reduction: str) -> None:
    needs(xp, dtype)
    x = np.array([0, 1, 2, 3]).astype(dtype)
    places, updates = np.array([1, -2, 3, 1]), np.array([3, 5, 0, 3]).astype(dtype)
    if dtype == np.complex64 and reduction in ("max", "min"):
        with pytest.raises(ValueError, match="no order"):
            run(xp, ops.ScatterElements, x, places, updates, reduction=reduction)
        return
    expected = scattered(x, [(p,) for p in places], updates, reduction)
    for result in (
        run(xp, ops.ScatterElements, x, places, updates, reduction=reduction),
        run(xp, ops.ScatterND, x, places[:, None], updates, reduction=reduction),
    ):
        assert result.dtype == x.dtype
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_sums_of_narrow_floats_are_rounded_once(xp: Backend, dtype: Any) -> None:
    needs(xp, dtype)
    x, many = np.zeros(1, dtype), np.zeros(5000, np.int64)
    result = run(xp, ops.ScatterElements, x, many, np.ones(5000, dtype), reduction="add")
    np.testing.assert_array_equal(result, np.array([5000]).astype(dtype))


def test_integers_wrap(xp: Backend) -> None:
    x = np.array([100, -128], np.int8)
    result = run(
        xp, ops.ScatterElements, x, np.array([0, 1]), np.array([100, 2], np.int8), reduction="add"
    )
    np.testing.assert_array_equal(result, np.array([-56, -126], np.int8))


def test_nan_is_the_greatest_and_the_least(xp: Backend) -> None:
    x = np.array([np.nan, 1, 2], np.float32)
    updates = np.array([3, np.nan], np.float32)
    for reduction in ("max", "min"):
        result = run(xp, ops.ScatterElements, x, np.array([0, 1]), updates, reduction=reduction)
        np.testing.assert_array_equal(result, np.array([np.nan, np.nan, 2], np.float32))


def test_strings_are_written_joined_and_compared() -> None:
    places, updates = np.array([0, -1]), np.array(["x", "A"], object)
    for reduction, expected in [
        ("none", ["x", "b", "A"]),
        ("add", ["ax", "b", "cA"]),
        ("max", ["x", "b", "c"]),
        ("min", ["a", "b", "A"]),
    ]:
        result = run(HOST, ops.ScatterElements, WORDS, places, updates, reduction=reduction)
        assert result.tolist() == expected
        result = run(HOST, ops.ScatterND, WORDS, places[:, None], updates, reduction=reduction)
        assert result.tolist() == expected
    with pytest.raises(ValueError, match="no product"):
        run(HOST, ops.ScatterND, WORDS, places[:, None], updates, reduction="mul")


@pytest.mark.parametrize("place", [3, -4, 2**40, -(2**40)])
def test_an_index_out_of_range_writes_nothing_or_is_told(xp: Backend, place: int) -> None:
    x, places, updates = np.zeros(3, np.float32), np.array([place, 1]), np.ones(2, np.float32)
    if xp.compiled or xp.name == "cupy":
        result = run(xp, ops.ScatterElements, x, places, updates)
        np.testing.assert_array_equal(result, np.array([0, 1, 0], np.float32))
        return
    with pytest.raises(ValueError, match="out of the range"):
        run(xp, ops.ScatterElements, x, places, updates)


@pytest.mark.parametrize("op", [ops.ScatterElements, ops.ScatterND])
def test_nothing_is_written_to_nothing(xp: Backend, op: Any) -> None:
    nothing = np.zeros((0, 1), np.float32)
    with pytest.raises(ValueError, match="no elements"):
        run(xp, op, nothing, np.zeros((2, 1), np.int64), np.ones((2, 1), np.float32))
    empty = np.zeros((0, 1), np.int64)
    assert run(xp, op, nothing, empty, nothing).shape == (0, 1)
    updates = np.zeros((0, 4) if op is ops.ScatterND else (0, 1), np.float32)
    np.testing.assert_array_equal(run(xp, op, CUBE[0], empty, updates), CUBE[0])


@pytest.mark.parametrize(
    ("op", "indices", "updates", "attributes"),
    [
        (ops.ScatterElements, (1, 1, 1), (1, 1, 1), {"axis": 3}),
        (ops.ScatterElements, (1, 1, 1), (1, 1, 2), {}),
        (ops.ScatterElements, (1, 1), (1, 1), {}),
        (ops.ScatterElements, (1, 4, 1), (1, 4, 1), {"axis": 2}),
        (ops.ScatterElements, (1, 1, 1), (1, 1, 1), {"reduction": "sum"}),
        (ops.ScatterND, (1, 4), (1,), {}),
        (ops.ScatterND, (1, 0), (1, 2, 3, 4), {}),
        (ops.ScatterND, (), (), {}),
        (ops.ScatterND, (2, 1), (2, 4), {}),
        (ops.ScatterND, (2, 1), (2, 3, 4), {"reduction": "ADD"}),
    ],
)
def test_what_does_not_fit_is_refused(op: Any, indices: Any, updates: Any, attributes: Any) -> None:
    with pytest.raises(ValueError, match=r"\w+ \w+"):
        op(HOST, CUBE, np.zeros(indices, np.int64), np.zeros(updates, np.float32), **attributes)


# -- TensorScatter --------------------------------------------------------------------------------


def written(cache: np.ndarray, update: np.ndarray, starts: Any, axis: int) -> np.ndarray:
    """One step of the sequence after the other."""
    result = np.moveaxis(cache, axis, 1).copy()
    moved = np.moveaxis(update, axis, 1)
    for sample, start in enumerate(starts):
        for step in range(moved.shape[1]):
            result[sample, (start + step) % cache.shape[axis]] = moved[sample, step]
    return np.moveaxis(result, 1, axis)


@pytest.mark.parametrize("axis", [1, 2, 3, -1, -2])
@pytest.mark.parametrize(("mode", "starts"), [("linear", (0, 2)), ("circular", (3, 17))])
def test_a_stretch_is_written_to_each_sample(
    xp: Backend, axis: int, mode: str, starts: Any
) -> None:
    cache = np.arange(2 * 4 * 4 * 4, dtype=np.float32).reshape(2, 4, 4, 4)
    update = -np.take(cache, [1, 0], axis=axis) - 1
    result = run(xp, ops.TensorScatter, cache, update, np.array(starts), axis=axis, mode=mode)
    np.testing.assert_array_equal(result, written(cache, update, starts, axis))


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_without_indices_the_stretch_is_the_first(xp: Backend, mode: str) -> None:
    cache, update = np.zeros((2, 3, 4, 2), np.float32), np.ones((2, 3, 3, 2), np.float32)
    result = run(xp, ops.TensorScatter, cache, update, mode=mode)
    np.testing.assert_array_equal(result, written(cache, update, (0, 0), 2))
    assert run(xp, ops.TensorScatter, cache, update[:, :, :0], np.zeros(2, np.int64)).sum() == 0


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.float16])
def test_caches_may_be_of_narrow_floats(xp: Backend, dtype: Any) -> None:
    needs(xp, dtype)
    cache, update = np.zeros((1, 3, 2), dtype), np.ones((1, 1, 2), dtype)
    result = run(xp, ops.TensorScatter, cache, update, np.array([1]))
    np.testing.assert_array_equal(result, written(cache, update, (1,), 1))


@pytest.mark.parametrize(
    ("update", "starts", "attributes"),
    [
        ((2, 3, 4), (2,), {"axis": 0}),
        ((2, 3, 4), (2,), {"axis": -3}),
        ((2, 3, 4), (2,), {"mode": "spiral"}),
        ((2, 4, 4), (2,), {}),
        ((2, 1, 3), (2,), {}),
        ((2, 1), (2,), {}),
        ((2, 1, 4), (3,), {}),
        ((2, 1, 4), (2, 1), {}),
    ],
)
def test_a_stretch_that_does_not_fit_is_refused(update: Any, starts: Any, attributes: Any) -> None:
    given = (np.zeros(update, np.float32), np.zeros(starts, np.int64))
    with pytest.raises(ValueError, match=r"\w+ \w+"):
        ops.TensorScatter(HOST, CUBE, *given, **attributes)


# -- OneHot ---------------------------------------------------------------------------------------


def one_hot(
    xp: Backend, indices: Any, depth: Any, values: Any, opset: int = 11, **given: Any
) -> np.ndarray:
    with xp.scope():
        places, pair = xp.put(indices), xp.put(values)
    result = sardonyx.run_op("OneHot", places, np.asarray(depth), pair, opset=opset, **given)
    return xp.fetch(result)


@pytest.mark.parametrize("axis", range(-3, 3))
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.int8])
def test_one_hot(xp: Backend, axis: int, dtype: Any) -> None:
    indices = np.array([[0, 2, -1], [-3, 3, -4]], dtype)
    values = np.array([5, 9], np.int64)
    result = one_hot(xp, indices, 3, values, axis=axis)
    places = np.stack([[[1, 0, 0], [0, 0, 1], [0, 0, 1]], [[1, 0, 0], [0, 0, 0], [0, 0, 0]]])
    expected = np.where(np.moveaxis(places, -1, axis), 9, 5)
    np.testing.assert_array_equal(result, expected)


def test_before_opset_11_a_negative_index_is_out_of_range(xp: Backend) -> None:
    indices, values = np.array([0, -1]), np.array([0, 1], np.float32)
    result = one_hot(xp, indices, 2, values, opset=9)
    np.testing.assert_array_equal(result, np.array([[1, 0], [0, 0]], np.float32))


def test_unsigned_indices_never_count_from_the_end(xp: Backend) -> None:
    values = np.array([False, True])
    large = np.array([2**64 - 1, 1], np.uint64)
    result = one_hot(xp, large, 2, values)
    np.testing.assert_array_equal(result, np.array([[False, False], [False, True]]))
    small = np.array([255, 43], np.uint8)
    assert one_hot(xp, small, 300, values).argmax(axis=1).tolist() == [255, 43]


def test_one_hot_of_a_scalar_of_strings_and_of_no_depth(xp: Backend) -> None:
    indices, values = np.array(1), np.array([0.5, 2.0], np.float32)
    result = one_hot(xp, indices, 2, values, axis=0)
    np.testing.assert_array_equal(result, np.array([0.5, 2], np.float32))
    assert one_hot(xp, np.ones((2, 3), np.int64), 0, values, axis=1).shape == (2, 0, 3)
    words = np.array(["off", "on"], object)
    assert one_hot(HOST, indices, 2, words).tolist() == ["off", "on"]


@pytest.mark.parametrize("depth", [np.float32(2), np.array([2], np.int8), np.array([2.9])])
def test_the_depth_may_be_of_any_number_type(xp: Backend, depth: Any) -> None:
    result = one_hot(xp, np.array([1]), depth, np.array([0, 1], np.int32))
    np.testing.assert_array_equal(result, np.array([[0, 1]], np.int32))


@pytest.mark.parametrize(
    ("depth", "values", "axis"),
    [(-1, 2, -1), (2, 3, -1), (2, 1, -1), (2, 2, 2), (2, 2, -3)],
)
def test_one_hot_refuses_what_makes_no_sense(depth: int, values: int, axis: int) -> None:
    with pytest.raises(ValueError, match=r"\w+ \w+"):
        ops.OneHot(HOST, np.array([1]), depth, np.zeros(values, np.float32), axis=axis)


def test_a_depth_that_is_too_large_is_refused_before_it_is_made() -> None:
    with pytest.raises(sardonyx.SardonyxError, match="bytes"):
        sardonyx.run_op("OneHot", np.zeros(4, np.int64), np.array(2**60), np.zeros(2), opset=11)
