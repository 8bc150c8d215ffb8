from __future__ import annotations

from fractions import Fraction
from math import floor
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.ops.resampling import Resize, Upsample
from tests.ops.oracle import assert_same, onnxruntime_run, run


def drawn(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(shape).uniform(-9, 9, shape).astype(dtype)


def row(*values: float, dtype: Any = np.float32) -> np.ndarray:
    return np.array(values, dtype)


def sizes_onnxruntime(x: np.ndarray, sizes: Any, opset: int, **attributes: Any) -> np.ndarray:
    sizes = np.array(sizes, np.int64)
    return onnxruntime_run("Resize", x, None, None, sizes, opset=opset, **attributes)


# -- against onnxruntime --------------------------------------------------------------------------

TRANSFORMATIONS = [
    *("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel"),
    *("align_corners", "asymmetric", "tf_half_pixel_for_nn"),
]


@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_Resize_to_sizes_is_that_of_onnxruntime(
    xp: Backend, mode: str, transformation: str
) -> None:
    """One axis grows, the other shrinks or becomes a single element."""
    opset = 19 if transformation == "half_pixel_symmetric" else 13
    attributes = {"mode": mode, "coordinate_transformation_mode": transformation}
    x = drawn(2, 3, 6, 7)
    for sizes in [(2, 3, 11, 4), (2, 3, 1, 9)]:
        expected = sizes_onnxruntime(x, sizes, opset, **attributes)
        assert_same(run(xp, Resize, x, sizes=sizes, **attributes), expected, ulps=64)


@pytest.mark.parametrize(
    "nearest_mode", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
)
@pytest.mark.parametrize("transformation", ["half_pixel", "asymmetric", "align_corners"])
def test_nearest_elements_are_those_of_onnxruntime(
    xp: Backend, transformation: str, nearest_mode: str
) -> None:
    attributes = {"coordinate_transformation_mode": transformation, "nearest_mode": nearest_mode}
    x = drawn(1, 1, 6, 8)
    for sizes in [(1, 1, 3, 16), (1, 1, 9, 4), (1, 1, 18, 6)]:
        expected = sizes_onnxruntime(x, sizes, 13, **attributes)
        assert_same(run(xp, Resize, x, sizes=sizes, **attributes), expected, ulps=0)


@pytest.mark.parametrize("exclude_outside", [0, 1])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialiasing_is_that_of_onnxruntime(xp: Backend, mode: str, exclude_outside: int) -> None:
    attributes = {"mode": mode, "antialias": 1, "exclude_outside": exclude_outside}
    x = drawn(1, 2, 13, 16)
    expected = sizes_onnxruntime(x, (1, 2, 5, 21), 18, **attributes)
    assert_same(run(xp, Resize, x, sizes=(1, 2, 5, 21), **attributes), expected, ulps=64)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_a_crop_is_that_of_onnxruntime(xp: Backend, mode: str) -> None:
    """What lies outside is `extrapolation_value`; the crop may be turned around."""
    x, roi = drawn(1, 1, 6, 7), row(0, 0, -0.2, 0.9, 1, 1, 0.7, 0.3)
    attributes = {
        "mode": mode,
        "coordinate_transformation_mode": "tf_crop_and_resize",
        "extrapolation_value": 2.5,
    }
    sizes = np.array([1, 1, 9, 4], np.int64)
    expected = onnxruntime_run("Resize", x, roi, None, sizes, opset=13, **attributes)
    actual = run(xp, Resize, x, roi=tuple(roi.tolist()), sizes=(1, 1, 9, 4), **attributes)
    assert (expected == 2.5).any()
    assert_same(actual, expected, ulps=128)


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
def test_axes_and_aspect_ratio_are_those_of_onnxruntime(xp: Backend, policy: str) -> None:
    x = drawn(1, 2, 5, 7)
    attributes = {"mode": "linear", "keep_aspect_ratio_policy": policy}
    expected = sizes_onnxruntime(x, (4, 9), 18, axes=[3, 2], **attributes)
    actual = run(xp, Resize, x, sizes=(4, 9), axes=(-1, 2), **attributes)
    assert_same(actual, expected, ulps=64)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", [(1, 1, 2, 3), (1, 1, 1.5, 2.5)], ids=str)
def test_old_opsets_are_those_of_onnxruntime(xp: Backend, scales: Any, mode: str) -> None:
    x = drawn(1, 2, 5, 4)
    actual = run(xp, Upsample, x, scales=scales, mode=mode)
    expected = onnxruntime_run("Upsample", x, row(*scales), opset=9, mode=mode)
    assert_same(actual, expected, ulps=32)
    expected = onnxruntime_run("Upsample", x, scales=list(map(float, scales)), opset=7, mode=mode)
    assert_same(actual, expected, ulps=32)
    name = {"nearest": "nearest", "linear": "bilinear"}[mode]
    sides = {"height_scale": scales[2], "width_scale": scales[3]}
    assert_same(run(xp, Upsample, x, opset=1, mode=name, **sides), expected, ulps=32)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_Resize_of_opset_10_is_that_of_onnxruntime(xp: Backend, mode: str) -> None:
    x = drawn(1, 2, 5, 4)
    for scales in [(1, 1, 0.6, 0.6), (1, 1, 2.5, 0.5)]:
        expected = onnxruntime_run("Resize", x, row(*scales), opset=10, mode=mode)
        assert_same(run(xp, Resize, x, opset=10, scales=scales, mode=mode), expected, ulps=32)


# -- what the standard says, where runtimes differ ------------------------------------------------


def test_positions_are_exact(xp: Backend) -> None:
    """Floats take 2 / 0.33333334 for less than 6, and 10 times 0.7 for less than 7."""
    x, third = row(*range(9)), float(np.float32(1 / 3))
    asymmetric = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    np.testing.assert_array_equal(run(xp, Resize, x, scales=(third,), **asymmetric), [0, 3, 6])
    assert run(xp, Resize, row(*range(10)), scales=(float(np.float32(0.7)),)).shape == (7,)
    for length in range(1, 40):
        x = np.arange(length)
        for size in (1, 3, 7, 20, 33):
            at = [Fraction((2 * i + 1) * length, 2 * size) - Fraction(1, 2) for i in range(size)]
            expected = [min(max(floor(p + Fraction(1, 2)), 0), length - 1) for p in at]
            actual = Resize(HOST, x, sizes=(size,), nearest_mode="round_prefer_ceil")
            np.testing.assert_array_equal(actual, expected)


def test_a_single_element_of_pytorch_is_the_first(xp: Backend) -> None:
    x = row(1, 2, 4, 8)
    one = {"sizes": (1,), "coordinate_transformation_mode": "pytorch_half_pixel"}
    for mode in ("nearest", "linear", "cubic"):
        np.testing.assert_array_equal(run(xp, Resize, x, mode=mode, **one), [1])


def test_the_end_of_a_crop_at_the_end_of_the_axis_is_inside(xp: Backend) -> None:
    for start in (0.1, 0.3, -0.1):
        crop = {"coordinate_transformation_mode": "tf_crop_and_resize", "mode": "linear"}
        y = run(xp, Resize, row(3, 4, 6, 5), roi=(start, 1.0), sizes=(7,), **crop)
        assert y[-1] == 5


def test_a_crop_applies_where_the_size_stays(xp: Backend) -> None:
    crop = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0}
    y = run(xp, Resize, row(1, 2, 3), roi=(0.5, 1.5), sizes=(3,), mode="linear", **crop)
    np.testing.assert_array_equal(y, [2, 3, 9])
    y = run(xp, Resize, row(1, 2, 3), sizes=(2,), **crop)
    np.testing.assert_array_equal(y, [1, 3])


def test_many_taps_are_added_up_in_a_loop(xp: Backend) -> None:
    x = drawn(3, 200, dtype=np.float64)
    y = run(xp, Resize, x, sizes=(3,), axes=(1,), mode="linear", antialias=1)
    scale = 3 / 200
    centres = (np.arange(3) + 0.5) / scale - 0.5
    places = np.arange(-200, 400)
    weights = np.maximum(1 - np.abs(places - centres[:, None]) * scale, 0)
    edges = x[:, np.clip(places, 0, 199)]
    assert_same(y, edges @ (weights / weights.sum(axis=1, keepdims=True)).T, ulps=64)


def test_what_is_not_finite_stays_where_it_is(xp: Backend) -> None:
    x = row(1, 2, np.inf, 4, 5, 6, 7, 8)
    y = run(xp, Resize, x, sizes=(4,), mode="linear", antialias=1)
    assert np.isfinite(y).tolist() == [False, False, True, True]


# -- types and shapes -----------------------------------------------------------------------------


def test_integers_are_rounded_to_even_and_stay_in_bounds(xp: Backend) -> None:
    corners = {"coordinate_transformation_mode": "align_corners"}
    x = row(0, 1, 2, 255, dtype=np.uint8)
    y = run(xp, Resize, x, sizes=(7,), mode="linear", **corners)
    assert_same(y, row(0, 0, 1, 2, 2, 128, 255, dtype=np.uint8))
    x = row(0, 255, 255, 0, dtype=np.uint8)
    assert run(xp, Resize, x, sizes=(7,), mode="cubic", **corners)[3] == 255
    limits = np.iinfo(np.int64)
    x = np.array([0, limits.max, limits.max, limits.min], np.int64)
    y = run(xp, Resize, x, sizes=(7,), mode="cubic", **corners)
    assert y[3] > 0
    assert y[6] == limits.min
    exact = 2**40 + 1
    x = np.full(2, exact)
    assert (run(xp, Resize, x, sizes=(5,), mode="linear") == exact).all()


def test_truth_values_and_complex_numbers(xp: Backend) -> None:
    corners = {"coordinate_transformation_mode": "align_corners", "mode": "linear"}
    y = run(xp, Resize, np.array([False, True]), sizes=(4,), **corners)
    np.testing.assert_array_equal(y, [False, False, True, True])
    y = run(xp, Resize, np.array([0, 2 + 4j], np.complex64), sizes=(3,), **corners)
    assert_same(y, np.array([0, 1 + 2j, 2 + 4j], np.complex64))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=lambda d: d.__name__)
@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_narrow_floats_are_rounded_once(backend: str, dtype: Any) -> None:
    x = drawn(1, 1, 8, 9, dtype=dtype)
    sizes = np.array([1, 1, 13, 4], np.int64)
    made = [
        sardonyx.run_op("Resize", value, None, None, sizes, opset=18, backend=backend, mode="cubic")
        for value in (x, x.astype(np.float32))
    ]
    np.testing.assert_array_equal(np.asarray(made[0]), np.asarray(made[1]).astype(dtype))


def test_strings_have_neighbours_and_nothing_in_between() -> None:
    x = np.array([["a", "b"]], object)
    y = Resize(HOST, x, scales=(2.0, 2.0))
    np.testing.assert_array_equal(y, np.array([["a", "a", "b", "b"]] * 2, object))
    with pytest.raises(ValueError, match="only mode nearest"):
        Resize(HOST, x, scales=(2.0, 2.0), mode="linear")


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_axes_are_resized_one_by_one_at_any_rank(xp: Backend, mode: str) -> None:
    x, sizes = drawn(2, 3, 1, 4, 2), (3, 2, 4, 7, 1)
    expected = x
    for axis, size in enumerate(sizes):
        lines = np.moveaxis(expected, axis, -1)
        flat = lines.reshape(1, 1, -1, lines.shape[-1])
        flat = sizes_onnxruntime(flat, (*flat.shape[:-1], size), 13, mode=mode)
        expected = np.moveaxis(flat.reshape(*lines.shape[:-1], size), -1, axis)
    assert_same(run(xp, Resize, x, sizes=sizes, mode=mode), expected, ulps=128)


def test_nothing_to_do_is_not_done(xp: Backend) -> None:
    with xp.scope():
        x = xp.put(drawn(2, 3))
        for mode in ("nearest", "linear", "cubic"):
            assert Resize(xp, x, scales=(1.0, 1.0), mode=mode) is x
        assert Resize(xp, x, sizes=(2,), axes=(0,)) is x


def test_empty_axes(xp: Backend) -> None:
    x = np.zeros((2, 0), np.int32)
    assert run(xp, Resize, x, scales=(2.0, 2.0), mode="linear").shape == (4, 0)
    assert run(xp, Resize, drawn(2, 3), scales=(0.4, 1.0)).shape == (0, 3)
    with pytest.raises(ValueError, match="cannot be resized to 5"):
        run(xp, Resize, x, sizes=(2, 5))


# -- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({}, "must be 2 positive numbers"),
        ({"scales": (1.0, 2.0), "sizes": (2, 6)}, "only one of them"),
        ({"scales": (2.0,)}, "must be 2 positive numbers"),
        ({"scales": (1.0, 0.0)}, "positive"),
        ({"scales": (1.0, -2.0)}, "positive"),
        ({"scales": (1.0, np.nan)}, "positive"),
        ({"scales": (1.0, np.inf)}, "positive"),
        ({"scales": (1e30, 1e30)}, "would take"),
        ({"sizes": (2, -1)}, "none of them negative"),
        ({"sizes": (2,)}, "must be 2 numbers"),
        ({"sizes": (2**62, 2**62)}, "would take"),
        ({"sizes": (2, 6), "axes": (0, 0)}, "contain an axis twice"),
        ({"sizes": (2, 6), "axes": (0, 2)}, "out of range"),
        (
            {"sizes": (2, 6), "mode": "lanczos"},
            "mode is 'lanczos', but must be nearest, linear or cubic",
        ),
        ({"sizes": (2, 6), "nearest_mode": "up"}, "nearest_mode is 'up', but must be"),
        ({"sizes": (2, 6), "coordinate_transformation_mode": "corner"}, "is 'corner', but must be"),
        ({"sizes": (2, 6), "keep_aspect_ratio_policy": "keep"}, "policy is 'keep', but must be"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(attributes: Any, message: str) -> None:
    with pytest.raises((ValueError, sardonyx.SardonyxError), match=message):
        Resize(HOST, np.zeros((2, 3), np.float32), **attributes)


@pytest.mark.parametrize("roi", [(0.0, 1.0), (0.0, 0.0, np.nan, 1.0), (0.0, -np.inf, 1.0, 1.0)])
def test_a_crop_needs_numbers(roi: Any) -> None:
    crop = {"roi": roi, "coordinate_transformation_mode": "tf_crop_and_resize"}
    with pytest.raises(ValueError, match="a start and an end per axis"):
        Resize(HOST, np.zeros((2, 3), np.float32), sizes=(2, 2), **crop)


def test_Upsample_does_not_shrink() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Upsample(HOST, np.zeros((2, 3), np.float32), (1.0, 0.5))
    with pytest.raises(ValueError, match="must have four"):
        Upsample.at(1).function(HOST, np.zeros((2, 3)), height_scale=1.0, width_scale=2.0)
