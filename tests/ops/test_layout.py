from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.ops import layout as ops
from tests.ops.oracle import onnxruntime_run, run
from tests.support.types_present import needs

CUBE = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
EMPTY = np.zeros((0, 3, 4), np.float32)
WORDS = np.array([["a", "bb"], ["", "d"]], dtype=object)
LOW_PRECISION = [
    *(ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2fnuz),
    *(ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2),
]


@pytest.mark.parametrize(
    ("x", "shape", "allowzero", "expected"),
    [
        (CUBE, (4, 6), 0, (4, 6)),
        (CUBE, (-1,), 0, (24,)),
        (CUBE, (0, -1), 0, (2, 12)),
        (CUBE, (-1, 0, 2), 0, (4, 3, 2)),
        (CUBE, (1, 2, 3, 4, 1), 0, (1, 2, 3, 4, 1)),
        (EMPTY, (3, 4, 0), 1, (3, 4, 0)),
        (EMPTY, (0, 12), 0, (0, 12)),
        (EMPTY, (0, -1), 1, (0, 12)),
        (EMPTY, (2, 0, -1), 1, (2, 0, 6)),
        (EMPTY, (-1, 4), 0, (0, 4)),
        (CUBE[0, 0, 0], (1, -1), 0, (1, 1)),
        (CUBE[0, 0, :1], (), 0, ()),
    ],
)
def test_reshape_fills_a_shape(
    xp: Backend, x: Any, shape: Any, allowzero: int, expected: Any
) -> None:
    x = np.asarray(x)
    result = run(xp, ops.Reshape, x, shape=shape, allowzero=allowzero)
    np.testing.assert_array_equal(result, x.reshape(expected))
    if not allowzero:
        old = run(xp, ops.Reshape, x, opset=4, shape=shape)
        np.testing.assert_array_equal(old, x.reshape(expected))


@pytest.mark.parametrize(
    ("x", "shape", "allowzero"),
    [
        (CUBE, (5, 5), 0),
        (CUBE, (-1, -1), 0),
        (CUBE, (-2, 12), 0),
        (CUBE, (5, -1), 0),
        (CUBE, (2, 3, 4, 0), 0),
        (CUBE, (0, -1), 1),
        (EMPTY, (0, -1), 0),
        (EMPTY, (0, -1, 5), 1),
    ],
)
def test_reshape_refuses_what_does_not_add_up(x: Any, shape: Any, allowzero: int) -> None:
    with pytest.raises(ValueError, match="shape"):
        ops.Reshape(HOST, x, shape, allowzero=allowzero)


@pytest.mark.parametrize("axis", range(-3, 4))
def test_flatten(xp: Backend, axis: int) -> None:
    rows = int(np.prod(CUBE.shape[:axis]))
    result = run(xp, ops.Flatten, CUBE, axis=axis)
    np.testing.assert_array_equal(result, CUBE.reshape(rows, -1))


def test_flatten_makes_a_matrix_of_a_scalar(xp: Backend) -> None:
    assert run(xp, ops.Flatten, np.array(7.0), axis=0).tolist() == [[7.0]]


@pytest.mark.parametrize("opset", [1, 11, 13])
def test_squeeze_and_unsqueeze(xp: Backend, opset: int) -> None:
    thin = CUBE.reshape(1, 2, 3, 1, 4)
    squeezed = run(xp, ops.Squeeze, thin, opset=opset)
    np.testing.assert_array_equal(squeezed, CUBE)
    assert run(xp, ops.Squeeze, thin, opset=opset, axes=(-2,)).shape == (1, 2, 3, 4)
    assert run(xp, ops.Squeeze, thin, opset=opset, axes=()).shape == thin.shape
    assert run(xp, ops.Unsqueeze, CUBE, opset=opset, axes=(3, 0)).shape == thin.shape
    assert run(xp, ops.Unsqueeze, CUBE, opset=opset, axes=(-1, 1)).shape == (2, 1, 3, 4, 1)


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        (ops.Flatten, {"axis": 4}),
        (ops.Squeeze, {"axes": (0,)}),
        (ops.Squeeze, {"axes": (3,)}),
        (ops.Unsqueeze, {"axes": (0, 0)}),
        (ops.Unsqueeze, {"axes": (5,)}),
        (ops.Unsqueeze, {"axes": (0, -5)}),
        (ops.Transpose, {"perm": (0, 0, 1)}),
        (ops.Transpose, {"perm": (0, 1)}),
        (ops.Transpose, {"perm": (-1, 0, 1)}),
        (ops.Concat, {"axis": 3}),
        (ops.Split, {"split": (1, 2), "outputs": 2}),
        (ops.Split, {"split": (3, -1), "outputs": 2}),
        (ops.Split, {"split": (1, 1), "outputs": 3}),
        (ops.Split, {"axis": 1, "outputs": 2}),
        (ops.Split, {"axis": 1, "num_outputs": 2, "outputs": 3}),
        (ops.Split, {"axis": 1, "num_outputs": 0, "outputs": 1}),
        (ops.Split, {"axis": 2, "num_outputs": 7, "outputs": 7, "split": None}),
        (ops.Split, {"axis": -4, "outputs": 1}),
        (ops.Expand, {"shape": (2, 3, 5)}),
        (ops.Expand, {"shape": (-1, 1, 1, 1)}),
        (ops.Tile, {"repeats": (2,)}),
        (ops.Tile, {"repeats": (1, 1, -1)}),
        (ops.Pad, {"pads": (1, 1)}),
        (ops.Pad, {"pads": (-1, 0, 0, -2, 0, 0)}),
        (ops.Pad, {"pads": (1, 1), "axes": (3,)}),
        (ops.Pad, {"pads": (1, 1, 1, 1), "axes": (0, -3)}),
        (ops.Pad, {"pads": (1, 0, 0, 0, 0, 0), "mode": "mirror"}),
        (ops.DepthToSpace, {"blocksize": 2}),
        (ops.SpaceToDepth, {"blocksize": 2}),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_hostile_attributes_are_refused(op: Any, attributes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w+ \w+"):
        op(HOST, CUBE, **attributes)


@pytest.mark.parametrize("blocksize", [0, -2, 3])
def test_blocks_must_divide(blocksize: int) -> None:
    image = np.zeros((1, 4, 4, 4), np.float32)
    for op in (ops.DepthToSpace, ops.SpaceToDepth):
        with pytest.raises(ValueError, match="block"):
            op(HOST, image, blocksize=blocksize)


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        (ops.Reshape, {"shape": (0, 3, -1)}),
        (ops.Flatten, {"axis": 1}),
        (ops.Squeeze, {}),
        (ops.Unsqueeze, {"axes": ()}),
        (ops.Transpose, {"perm": (0, 1)}),
        (ops.Concat, {"axis": 1}),
        (ops.Expand, {"shape": (1, 1)}),
        (ops.Tile, {"repeats": (1, 1)}),
        (ops.Pad, {"pads": (0, 0, 0, 0)}),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_what_changes_nothing_returns_its_input(xp: Backend, op: Any, attributes: Any) -> None:
    x = xp.put(CUBE[0] if op is not ops.Reshape else CUBE)
    assert op(xp, x, **attributes) is x


def test_reshapes_share_memory() -> None:
    for view in (
        ops.Reshape(HOST, CUBE, (6, 4)),
        ops.Flatten(HOST, CUBE),
        ops.Unsqueeze(HOST, CUBE, (0,)),
        ops.Squeeze(HOST, CUBE[:1]),
    ):
        assert np.shares_memory(view, CUBE)


@given(st.permutations(range(4)))
@settings(deadline=None, max_examples=10)
def test_transpose(perm: list[int]) -> None:
    x = np.arange(48).reshape(2, 3, 4, 2)
    np.testing.assert_array_equal(run(HOST, ops.Transpose, x, perm=tuple(perm)), x.transpose(perm))


def test_transpose_reverses_by_default(xp: Backend) -> None:
    np.testing.assert_array_equal(run(xp, ops.Transpose, CUBE), CUBE.T)


@pytest.mark.parametrize("axis", range(-3, 3))
def test_concat_undoes_split(xp: Backend, axis: int) -> None:
    size = CUBE.shape[axis]
    parts = run(xp, ops.Split, CUBE, axis=axis, split=(1, 0, size - 1), outputs=3)
    assert [part.shape[axis] for part in parts] == [1, 0, size - 1]
    np.testing.assert_array_equal(run(xp, ops.Concat, *parts, axis=axis), CUBE)


def test_concat_before_opset_4_joins_the_second_axis(xp: Backend) -> None:
    joined = run(xp, ops.Concat, CUBE, CUBE, opset=3)
    np.testing.assert_array_equal(joined, np.concatenate([CUBE, CUBE], axis=1))


def test_concat_refuses_other_shapes() -> None:
    with pytest.raises(ValueError, match="differ on another axis"):
        ops.Concat(HOST, CUBE, CUBE[:, :2], axis=0)
    with pytest.raises(ValueError, match="nothing"):
        ops.Concat(HOST, axis=0)


@pytest.mark.parametrize(
    ("attributes", "sizes"),
    [
        ({"outputs": 2, "axis": 2}, [2, 2]),
        ({"outputs": 3, "num_outputs": 3, "axis": 2}, [2, 2, 0]),
        ({"outputs": 2, "num_outputs": 2, "axis": 1}, [2, 1]),
        ({"outputs": 4, "num_outputs": 4, "axis": -1}, [1, 1, 1, 1]),
        ({"outputs": 1, "num_outputs": 1, "axis": 0}, [2]),
    ],
)
def test_split_into_equal_parts(xp: Backend, attributes: Any, sizes: list[int]) -> None:
    parts = run(xp, ops.Split, CUBE, **attributes)
    parts = parts if isinstance(parts, tuple) else (parts,)
    assert [part.shape[attributes["axis"]] for part in parts] == sizes
    np.testing.assert_array_equal(np.concatenate(parts, axis=attributes["axis"]), CUBE)


@pytest.mark.parametrize("shape", [(5, 2, 3, 4), (3, 1), (1,), (), (2, 3, 4)])
def test_expand_broadcasts_both_ways(xp: Backend, shape: tuple[int, ...]) -> None:
    for x in (CUBE, CUBE[:, :1], EMPTY):
        if x is EMPTY and shape[:1] in ((2,), (5,)):
            continue
        expected = x * np.ones(shape, x.dtype)
        np.testing.assert_array_equal(run(xp, ops.Expand, x, shape=shape), expected)


@pytest.mark.parametrize("repeats", [(1, 2, 3), (2, 1, 1), (1, 0, 2)])
def test_tile(xp: Backend, repeats: tuple[int, ...]) -> None:
    result = run(xp, ops.Tile, CUBE, repeats=repeats)
    np.testing.assert_array_equal(result, np.tile(CUBE, repeats))


def test_tile_before_opset_6_repeats_one_axis(xp: Backend) -> None:
    result = run(xp, ops.Tile, CUBE, opset=5, tiles=3, axis=1)
    np.testing.assert_array_equal(result, np.tile(CUBE, (1, 3, 1)))


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize(
    "pads", [(0, 1, 2, 1, 2, 3), (0, 0, 3, 0, 0, 0), (0, -1, 1, 0, 1, -2), (-1, 0, 0, 0, -1, -1)]
)
def test_pad(xp: Backend, mode: str, pads: tuple[int, ...]) -> None:
    result = run(xp, ops.Pad, CUBE, pads=pads, mode=mode)
    expected = onnxruntime_run("Pad", CUBE, np.array(pads), opset=19, mode=mode)
    np.testing.assert_array_equal(result, expected)


@given(st.integers(1, 5), st.integers(0, 12), st.integers(0, 12))
@settings(deadline=None, max_examples=25)
def test_pads_may_be_longer_than_the_axis(size: int, before: int, after: int) -> None:
    x = np.arange(size)
    for mode in ("reflect", "edge", "wrap"):
        result = run(HOST, ops.Pad, x, pads=(before, after), mode=mode)
        expected = np.pad(x, (before, after), mode=mode)  # type: ignore[call-overload]
        np.testing.assert_array_equal(result, expected)


def test_pad_with_a_value_on_some_axes(xp: Backend) -> None:
    value = np.array([7.5], np.float32)
    with xp.scope():
        result = xp.fetch(ops.Pad(xp, xp.put(CUBE), (1, 0, 0, 2), xp.put(value), (-1, 0)))
    expected = np.pad(CUBE, ((0, 2), (0, 0), (1, 0)), constant_values=7.5)
    np.testing.assert_array_equal(result, expected)


def test_pad_of_an_empty_axis_has_nothing_to_repeat() -> None:
    with pytest.raises(ValueError, match="empty axis"):
        ops.Pad(HOST, EMPTY, (1, 0, 0, 0, 0, 0), mode="edge")


@pytest.mark.parametrize(("opset", "name"), [(1, "paddings"), (2, "pads"), (10, "pads")])
def test_pad_of_old(xp: Backend, opset: int, name: str) -> None:
    pads = {name: (0, 0, 1, 0, 0, 2)}
    result = run(xp, ops.Pad, CUBE, opset=opset, value=2.0, **pads)
    expected = np.pad(CUBE, ((0, 0), (0, 0), (1, 2)), constant_values=2)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_blocks_go_to_depth_and_back(xp: Backend, mode: str) -> None:
    image = np.arange(2 * 8 * 2 * 3, dtype=np.float32).reshape(2, 8, 2, 3)
    space = run(xp, ops.DepthToSpace, image, blocksize=2, mode=mode)
    expected = onnxruntime_run("DepthToSpace", image, opset=13, blocksize=2, mode=mode)
    np.testing.assert_array_equal(space, expected)
    back = run(xp, ops.SpaceToDepth, space, blocksize=2, mode=mode)
    np.testing.assert_array_equal(back, image)


@pytest.mark.parametrize("dtype", LOW_PRECISION, ids=lambda dtype: dtype.__name__)
def test_low_precision_is_moved_bit_by_bit(xp: Backend, dtype: Any) -> None:
    needs(xp, dtype)
    x = np.arange(4).reshape(2, 2).astype(dtype)
    for op, attributes, expected in [
        (ops.Transpose, {}, x.T),
        (ops.Reshape, {"shape": (4,)}, x.reshape(4)),
        (ops.Expand, {"shape": (2, 1, 1)}, np.stack([x, x])),
        (ops.Tile, {"repeats": (2, 1)}, np.concatenate([x, x])),
        (ops.Pad, {"pads": (1, 0, 0, 0)}, np.concatenate([np.zeros((1, 2), dtype), x])),
        (ops.Pad, {"pads": (1, 0, 0, 0), "mode": "edge"}, np.concatenate([x[:1], x])),
    ]:
        result = run(xp, op, x, **attributes)
        assert result.dtype == expected.dtype
        assert (result == expected).all()
    assert (run(xp, ops.Concat, x, x, axis=0) == np.concatenate([x, x])).all()


def test_strings_are_moved_like_numbers() -> None:
    for op, attributes, expected in [
        (ops.Transpose, {}, WORDS.T),
        (ops.Reshape, {"shape": (4,)}, WORDS.reshape(4)),
        (ops.Unsqueeze, {"axes": (0,)}, WORDS[None]),
        (ops.Expand, {"shape": (2, 1, 1)}, np.stack([WORDS, WORDS])),
        (ops.Tile, {"repeats": (1, 2)}, np.concatenate([WORDS, WORDS], axis=1)),
        (ops.Pad, {"pads": (0, 1, 0, 0)}, np.array([["", "a", "bb"], ["", "", "d"]], object)),
        (ops.Pad, {"pads": (0, 1, 0, 0), "mode": "wrap"}, WORDS[:, [1, 0, 1]]),
    ]:
        assert run(HOST, op, WORDS, **attributes).tolist() == expected.tolist()
    assert ops.Concat(HOST, WORDS, WORDS, axis=0).tolist() == [*WORDS.tolist(), *WORDS.tolist()]
    parts = ops.Split(HOST, WORDS, axis=1, outputs=2)
    assert [part.tolist() for part in parts] == [[["a"], [""]], [["bb"], ["d"]]]


def test_bools_are_padded_with_false(xp: Backend) -> None:
    result = run(xp, ops.Pad, np.array([True]), pads=(1, 0))
    assert result.dtype == np.bool_
    assert result.tolist() == [False, True]


@pytest.mark.parametrize(
    ("size", "expected"),
    [(0, []), (1, [2]), (2, [1, 2]), (3, [1, 2, 3]), (5, [0, 1, 2, 3, 0]), (6, [0, 1, 2, 3, 0, 0])],
)
def test_what_is_cropped_or_padded_stays_in_the_middle(
    xp: Backend, size: int, expected: Any
) -> None:
    x = np.tile(np.arange(1, 4), (2, 1))
    assert run(xp, ops.CenterCropPad, x, shape=(size,), axes=(-1,)).tolist() == [expected] * 2
    words = np.array([["a", "b"]], object)
    assert ops.CenterCropPad(HOST, words, (1, 4)).tolist() == [["", "a", "b", ""]]
    for sizes in [(1,), (1, -1)]:
        with pytest.raises(ValueError, match="none of them negative"):
            ops.CenterCropPad(HOST, words, sizes)
