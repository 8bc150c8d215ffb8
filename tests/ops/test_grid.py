from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.ops.grid import AffineGrid, GridSample
from tests.ops.oracle import assert_same, onnxruntime_run, run


def drawn(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(shape).uniform(-9, 9, shape).astype(dtype)


def positions(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """Most inside, some far outside, some at elements and borders or midway between them."""
    rng = np.random.default_rng(shape)
    whole = rng.integers(-6, 7, shape) / 4
    return np.where(rng.random(shape) < 0.5, whole, rng.uniform(-3, 3, shape)).astype(dtype)


def along_one_axis(x: np.ndarray, *coordinates: float) -> tuple[np.ndarray, np.ndarray]:
    grid = np.array(coordinates, np.float32).reshape(1, -1, 1)
    return x.reshape(1, 1, -1), grid


def reference(X: np.ndarray, grid: np.ndarray, **attributes: Any) -> np.ndarray:
    typed = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for name, v in (("X", X), ("grid", grid))
    ]
    node = helper.make_node("GridSample", ["X", "grid"], ["Y"], **attributes)
    made = helper.make_tensor_value_info("Y", typed[0].type.tensor_type.elem_type, None)
    graph = helper.make_graph([node], "sample", typed, [made])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    result: np.ndarray = ReferenceEvaluator(model).run(None, {"X": X, "grid": grid})[0]
    return result


# -- GridSample -----------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_images_are_those_of_onnxruntime(
    xp: Backend, mode: str, padding_mode: str, align_corners: int
) -> None:
    x, grid = drawn(2, 3, 4, 5), positions(2, 6, 7, 2)
    attributes = {"padding_mode": padding_mode, "align_corners": align_corners}
    expected = onnxruntime_run("GridSample", x, grid, opset=20, mode=mode, **attributes)
    assert_same(run(xp, GridSample, x, grid, mode=mode, **attributes), expected, ulps=512)
    old = {"nearest": "nearest", "linear": "bilinear", "cubic": "bicubic"}[mode]
    actual = run(xp, GridSample, x, grid, opset=16, mode=old, **attributes)
    assert_same(actual, expected, ulps=512)


@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_volumes_are_those_of_onnxruntime(
    xp: Backend, mode: str, padding_mode: str, align_corners: int
) -> None:
    x, grid = drawn(2, 2, 3, 4, 5), positions(2, 2, 3, 4, 3)
    options = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
    expected = onnxruntime_run("GridSample", x, grid, opset=20, **options)
    assert_same(run(xp, GridSample, x, grid, **options), expected, ulps=512)


@pytest.mark.parametrize("padding_mode", ["zeros", "reflection"])
@pytest.mark.parametrize("rank", [1, 3])
def test_cubes_of_any_rank_are_those_of_the_reference(
    xp: Backend, rank: int, padding_mode: str
) -> None:
    lengths = (3, 4, 5)[:rank]
    x = drawn(1, 2, *lengths, dtype=np.float64)
    grid = positions(1, *(2,) * rank, rank)
    expected = reference(x, grid, mode="cubic", padding_mode=padding_mode)
    actual = run(xp, GridSample, x, grid, mode="cubic", padding_mode=padding_mode)
    assert actual.dtype == np.float64
    np.testing.assert_allclose(actual, expected, atol=1e-4)


def test_an_axis_of_one_element(xp: Backend) -> None:
    x, grid = along_one_axis(np.array([7.0], np.float32), -1.5, -1, 0, 0.5, 3)
    for padding_mode in ("border", "reflection"):
        for align_corners in (0, 1):
            options = {"padding_mode": padding_mode, "align_corners": align_corners}
            np.testing.assert_allclose(run(xp, GridSample, x, grid, **options), 7, rtol=1e-6)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_positions_that_are_far_away_or_none(xp: Backend, mode: str) -> None:
    x, grid = along_one_axis(np.array([1, 2, 4], np.float32), -np.inf, -1e30, 1e30, np.inf, np.nan)
    *far, none = run(xp, GridSample, x, grid, mode=mode)[0, 0]
    assert far == [0, 0, 0, 0]
    assert none == 0 if mode == "nearest" else np.isnan(none)
    *far, none = run(xp, GridSample, x, grid, mode=mode, padding_mode="border")[0, 0]
    np.testing.assert_allclose(far, [1, 1, 4, 4], rtol=1e-5)
    assert none == 1 if mode == "nearest" else np.isnan(none)


def test_what_is_not_finite_outside_counts_for_nothing(xp: Backend) -> None:
    x, grid = along_one_axis(np.array([np.inf, 2, 4, np.nan], np.float32), 0.0, -3)
    np.testing.assert_array_equal(run(xp, GridSample, x, grid)[0, 0], [3, 0])


def test_integers_are_rounded(xp: Backend) -> None:
    x, grid = along_one_axis(np.array([0, 1, 2, 255], np.uint8), -0.5, -0.25, 0, 0.5, 1)
    y = run(xp, GridSample, x, grid, align_corners=1, padding_mode="border")
    np.testing.assert_array_equal(y[0, 0], np.array([1, 1, 2, 65, 255], np.uint8))
    y = run(xp, GridSample, x, grid, mode="nearest")
    np.testing.assert_array_equal(y[0, 0], np.array([0, 1, 2, 2, 0], np.uint8))


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_narrow_floats_are_rounded_once(backend: str) -> None:
    dtype = ml_dtypes.bfloat16
    x, grid = drawn(1, 2, 4, 5, dtype=dtype), positions(1, 3, 3, 2, dtype=np.float16)
    wide = (x.astype(np.float32), grid.astype(np.float32))
    made = [
        np.asarray(sardonyx.run_op("GridSample", *inputs, opset=22, backend=backend, mode="cubic"))
        for inputs in ((x, grid), wide)
    ]
    np.testing.assert_array_equal(made[0], made[1].astype(dtype))


def test_strings_are_picked() -> None:
    x, grid = along_one_axis(np.array(["a", "b"], object), -0.5, 0.5, 2)
    y = GridSample(HOST, x, grid, mode="nearest")
    np.testing.assert_array_equal(y[0, 0], np.array(["a", "b", ""], object))
    with pytest.raises(ValueError, match="only mode nearest"):
        GridSample(HOST, x, grid)


def test_empty_samples(xp: Backend) -> None:
    assert run(xp, GridSample, drawn(0, 2, 3, 3), positions(0, 4, 5, 2)).shape == (0, 2, 4, 5)
    assert run(xp, GridSample, drawn(1, 2, 0, 3), positions(1, 0, 5, 2)).shape == (1, 2, 0, 5)


@pytest.mark.parametrize(
    ("shape", "grid", "attributes", "message"),
    [
        ((1, 1, 3, 3), (2, 4, 4, 2), {}, "does not fit"),
        ((1, 1, 3, 3), (1, 4, 4, 3), {}, "does not fit"),
        ((1, 1, 3, 3), (1, 4, 2), {}, "does not fit"),
        ((1, 1), (1, 0), {}, "does not fit"),
        ((1, 1, 0, 3), (1, 4, 4, 2), {}, "no elements to sample"),
        ((1, 1, 3, 3), (1, 4, 4, 2), {"mode": "bilinear"}, "must be nearest, linear or cubic"),
        (
            (1, 1, 3, 3),
            (1, 4, 4, 2),
            {"padding_mode": "wrap"},
            "must be zeros, border or reflection",
        ),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(shape: Any, grid: Any, attributes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GridSample(HOST, drawn(*shape), positions(*grid), **attributes)


def test_the_first_version_has_its_own_names_for_the_modes(xp: Backend) -> None:
    volume, grid = drawn(1, 2, 3, 4, 2), positions(1, 2, 2, 2, 3)
    # As exporters write it, before there was a version for it.
    expected = onnxruntime_run("GridSample", volume, grid, opset=20, mode="linear")
    old = GridSample.at(16).function
    with xp.scope():
        found = xp.fetch(old(xp, xp.put(volume), xp.put(grid), mode="bilinear"))
    assert_same(found, expected, ulps=512)
    with pytest.raises(ValueError, match="must be nearest, bilinear or bicubic"):
        old(HOST, drawn(1, 1, 2, 2), positions(1, 2, 2, 2), mode="linear")


# -- AffineGrid -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 3, 4, 2, 5)], ids=str)
def test_AffineGrid_is_that_of_onnxruntime(
    xp: Backend, size: Any, align_corners: int, dtype: Any
) -> None:
    rank = len(size) - 2
    theta = drawn(2, rank, rank + 1, dtype=dtype)
    sizes = np.array(size, np.int64)
    options = {"align_corners": align_corners}
    expected = onnxruntime_run("AffineGrid", theta, sizes, opset=20, **options)
    assert_same(run(xp, AffineGrid, theta, size=size, **options), expected, ulps=128)


def test_a_single_element_is_the_first_corner(xp: Backend) -> None:
    """As in the standard's body of the operator, where it speaks of one."""
    theta = np.array([[[1, 0, 0], [0, 1, 0]]], np.float32)
    y = run(xp, AffineGrid, theta, size=(1, 1, 1, 3), align_corners=1)
    np.testing.assert_array_equal(y[0, 0], [[-1, -1], [0, -1], [1, -1]])
    y = run(xp, AffineGrid, theta, size=(1, 1, 1, 2))
    np.testing.assert_array_equal(y[0, 0], [[-0.5, 0], [0.5, 0]])
    assert run(xp, AffineGrid, theta, size=(1, 1, 0, 3)).shape == (1, 0, 3, 2)


def test_the_identity_grid_samples_the_image_itself(xp: Backend) -> None:
    x = drawn(1, 2, 5, 4)
    theta = np.array([[[1, 0, 0], [0, 1, 0]]], np.float32)
    for align_corners in (0, 1):
        grid = run(xp, AffineGrid, theta, size=x.shape, align_corners=align_corners)
        y = run(xp, GridSample, x, grid, align_corners=align_corners)
        np.testing.assert_allclose(y, x, atol=1e-4)


@pytest.mark.parametrize(
    ("theta", "size", "message"),
    [
        ((1, 2, 3), (1, 1, 2), "4 or 5 numbers"),
        ((1, 2, 3), (1, 1, -2, 2), "none of them negative"),
        ((1, 2, 3), (1, 1, 2, 2, 2), "theta has shape"),
        ((1, 2, 3), (2, 1, 2, 2), "theta has shape"),
        ((1, 2, 3), (1, 1, 2**40, 2**40), "would take"),
    ],
    ids=str,
)
def test_grids_that_do_not_fit_are_refused(theta: Any, size: Any, message: str) -> None:
    with pytest.raises((ValueError, sardonyx.SardonyxError), match=message):
        AffineGrid(HOST, drawn(*theta), size)
