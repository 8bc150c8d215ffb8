from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from onnx.reference import ReferenceEvaluator

from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST
from sardonyx.ops import indexing as ops
from tests.ops.oracle import onnxruntime_run, run
from tests.support.types_present import needs

CUBE = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
WORDS = np.array([["a", "bb"], ["", "d"]], dtype=object)
HUGE = 2**63 - 1

# -- Slice ----------------------------------------------------------------------------------------

bounds = st.one_of(st.integers(-8, 8), st.sampled_from([HUGE, -HUGE - 1, 2**31 - 1]))
steps = st.sampled_from([1, 2, 3, 7, -1, -2, -3, -7])


@given(st.integers(0, 6), bounds, bounds, steps)
@settings(deadline=None, max_examples=25)
def test_slice_clamps_as_the_standard_says(size: int, start: int, end: int, step: int) -> None:
    x = np.arange(size * 2).reshape(2, size)
    lowest, highest = (0, size) if step > 0 else (-1, size - 1)
    first = min(max(start + size * (start < 0), 0), size if step > 0 else size - 1)
    last = min(max(end + size * (end < 0), lowest), highest)
    expected = x[:, [i for i in range(first, last, step) if 0 <= i < size]]
    for xp in (HOST, JaxBackend()):
        result = run(xp, ops.Slice, x, starts=(start,), ends=(end,), axes=(-1,), steps=(step,))
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps"),
    [
        ((0, 1), (2, HUGE), (0, 2), (1, 2)),
        ((-1, 3), (-HUGE - 1, 0), (1, 2), (-1, -2)),
        ((20, 0, 3), (0, 1000, 1), (2, -3, -2), (-3, 1, 1)),
        ((-9,), (-1,), (-1,), (1,)),
        ((3,), (1,), (1,), (1,)),
    ],
)
def test_slice(xp: Backend, starts: Any, ends: Any, axes: Any, steps: Any) -> None:
    inputs = map(np.array, (starts, ends, axes, steps))
    expected = onnxruntime_run("Slice", CUBE, *inputs, opset=13)
    result = run(xp, ops.Slice, CUBE, starts=starts, ends=ends, axes=axes, steps=steps)
    np.testing.assert_array_equal(result, expected)


def test_slice_of_all_returns_its_input(xp: Backend) -> None:
    x = xp.put(CUBE)
    assert ops.Slice(xp, x, (0, 0), (HUGE, 3)) is x
    assert ops.Slice(xp, x, (), ()) is x
    np.testing.assert_array_equal(
        run(xp, ops.Slice, CUBE, opset=1, starts=(1,), ends=(2,)), CUBE[1:]
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((0,), (1,), (3,)), "out of range"),
        (((0, 0), (1, 1), (0, -3)), "twice"),
        (((0,), (1, 2)), "equal lengths"),
        (((0,), (1,), (0,), (0,)), "no step may be 0"),
        (((0,), (1,), (0,), (1, 1)), "equal lengths"),
        (((0, 0, 0, 0), (1, 1, 1, 1)), "out of range"),
    ],
)
def test_slice_refuses_what_does_not_match(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ops.Slice(HOST, CUBE, *arguments)


# -- Gather ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", range(-3, 3))
@pytest.mark.parametrize("shape", [(), (3,), (2, 2), (0,)])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_gather(xp: Backend, axis: int, shape: tuple[int, ...], dtype: Any) -> None:
    size = CUBE.shape[axis]
    indices = np.random.default_rng(0).integers(-size, size, shape).astype(dtype)
    result = run(xp, ops.Gather, CUBE, indices, axis=axis)
    np.testing.assert_array_equal(result, np.take(CUBE, indices, axis=axis))


@pytest.mark.parametrize("axis", range(-3, 3))
def test_gather_elements(xp: Backend, axis: int) -> None:
    size = CUBE.shape[axis]
    shape = [1, 2, 3]
    shape[axis] = 5
    indices = np.random.default_rng(0).integers(-size, size, shape)
    result = run(xp, ops.GatherElements, CUBE, indices, axis=axis)
    expected = onnxruntime_run("GatherElements", CUBE, indices, opset=13, axis=axis)
    np.testing.assert_array_equal(result, expected)


@given(st.data())
@settings(deadline=None, max_examples=25)
def test_gather_nd(data: st.DataObject) -> None:
    batch = data.draw(st.integers(0, 2))
    count = data.draw(st.integers(1, 4 - batch))
    shape = tuple(data.draw(st.lists(st.integers(1, 3), min_size=4, max_size=4)))
    middle = tuple(data.draw(st.lists(st.integers(0, 3), max_size=2)))
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    sizes = np.array(shape[batch : batch + count])
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    indices = random.integers(-sizes, sizes, (*shape[:batch], *middle, count))
    node = helper.make_node("GatherND", ["x", "i"], ["y"], batch_dims=batch)
    expected = ReferenceEvaluator(node).run(None, {"x": x, "i": indices})[0]
    for xp in (HOST, JaxBackend()):
        result = run(xp, ops.GatherND, x, indices, batch_dims=batch)
        np.testing.assert_array_equal(result, expected.reshape(result.shape))
        assert result.shape == (*indices.shape[:-1], *shape[batch + count :])


@pytest.mark.parametrize("batch_dims", [0, 1])
def test_gather_nd_everywhere(xp: Backend, batch_dims: int) -> None:
    indices = np.array([[[0, -1], [1, 1]], [[-1, 0], [0, 2]]])
    result = run(xp, ops.GatherND, CUBE, indices, batch_dims=batch_dims)
    expected = onnxruntime_run("GatherND", CUBE, indices, opset=13, batch_dims=batch_dims)
    np.testing.assert_array_equal(result, expected)


OUT_OF_RANGE = [
    (ops.Gather, np.array([0, 7])),
    (ops.Gather, np.array([-3])),
    (ops.GatherElements, np.full((1, 1, 1), 2)),
    (ops.GatherND, np.array([[0, 3]])),
    (ops.GatherND, np.array([[0, -4]])),
]


@pytest.mark.parametrize(("op", "indices"), OUT_OF_RANGE)
def test_an_index_out_of_range_is_told_where_it_is_seen(op: Any, indices: np.ndarray) -> None:
    with pytest.raises(ValueError, match="out of the range"):
        run(HOST, op, CUBE, indices)
    assert np.isin(run(JaxBackend(), op, CUBE, indices), CUBE).all()


@pytest.mark.parametrize(
    ("op", "indices", "attributes"),
    [
        (ops.Gather, np.zeros(1, np.int64), {"axis": 3}),
        (ops.GatherElements, np.zeros((1, 1), np.int64), {}),
        (ops.GatherElements, np.zeros((1, 4, 1), np.int64), {}),
        (ops.GatherElements, np.zeros((1, 1, 1), np.int64), {"axis": -4}),
        (ops.GatherND, np.zeros((1, 4), np.int64), {}),
        (ops.GatherND, np.zeros((1, 0), np.int64), {}),
        (ops.GatherND, np.zeros((3, 1), np.int64), {"batch_dims": 1}),
        (ops.GatherND, np.zeros((2, 3, 1), np.int64), {"batch_dims": 3}),
        (ops.GatherND, np.zeros((2, 1), np.int64), {"batch_dims": -1}),
    ],
)
def test_shapes_that_do_not_fit(op: Any, indices: np.ndarray, attributes: Any) -> None:
    with pytest.raises(ValueError, match=r"\w+ \w+"):
        op(HOST, CUBE, indices, **attributes)


@pytest.mark.parametrize("op", [ops.Gather, ops.GatherElements, ops.GatherND])
def test_nothing_is_gathered_of_nothing(xp: Backend, op: Any) -> None:
    nothing = np.zeros((0, 1), np.float32)
    with pytest.raises(ValueError, match="no elements"):
        run(xp, op, nothing, np.zeros((2, 1), np.int64))
    assert run(xp, op, nothing, np.zeros((0, 1), np.int64)).size == 0


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.int8, np.bool_, np.complex64])
def test_every_type_is_read(xp: Backend, dtype: Any) -> None:
    needs(xp, dtype)
    x = np.arange(12).reshape(3, 4).astype(dtype)
    places = np.array([[2, 0]])
    for result, expected in [
        (run(xp, ops.Gather, x, places), x[places]),
        (run(xp, ops.GatherElements, x, places), np.take_along_axis(x[:, :2], places, 0)),
        (run(xp, ops.GatherND, x, places), x[[2], [0]]),
        (run(xp, ops.Slice, x, starts=(2,), ends=(0,), steps=(-1,)), x[2:0:-1]),
    ]:
        assert result.dtype == x.dtype
        np.testing.assert_array_equal(result, expected)


def test_strings_are_read_like_numbers() -> None:
    places = np.array([[1, 0]])
    assert run(HOST, ops.Gather, WORDS, places).tolist() == WORDS[places].tolist()
    assert run(HOST, ops.GatherElements, WORDS, places).tolist() == [["", "bb"]]
    assert run(HOST, ops.GatherND, WORDS, places).tolist() == [""]
    assert run(HOST, ops.Slice, WORDS, starts=(1,), ends=(2,), axes=(1,)).tolist() == [
        ["bb"],
        ["d"],
    ]
