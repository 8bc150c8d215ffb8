from __future__ import annotations

import math
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST
from sardonyx.ops.regions import MaxRoiPool, RoiAlign
from tests.ops.oracle import assert_same, onnxruntime_run, run

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
WITH_NARROW = pytest.mark.parametrize(
    "backend", [HOST, JaxBackend()], ids=lambda backend: backend.name
)


def image(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(dtype)


def regions(count: int, *, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    """Some of them inside, some across the border, some outside, some turned inside out."""
    rng = np.random.default_rng(seed)
    corner, size = rng.uniform(-8, 25, (count, 2)), rng.uniform(-3, 40, (count, 2))
    return np.concatenate([corner, corner + size], axis=1).astype(dtype)


IMAGE = image(3, 2, 20, 17)
IMAGES = np.random.default_rng(1).integers(0, 3, 24)
GRID: dict[str, Any] = {"output_height": 3, "output_width": 4}


@pytest.mark.parametrize(
    ("mode", "sampling_ratio", "coordinates"),
    [
        ("avg", 0, "half_pixel"),
        ("max", 0, "half_pixel"),
        ("avg", 0, "output_half_pixel"),
        ("max", 3, "half_pixel"),
        ("avg", 2, "output_half_pixel"),
    ],
)
def test_RoiAlign_is_that_of_onnxruntime(
    xp: Backend, mode: str, sampling_ratio: int, coordinates: str
) -> None:
    attributes: Any = {
        "mode": mode,
        "sampling_ratio": sampling_ratio,
        "coordinate_transformation_mode": coordinates,
        "spatial_scale": 0.75,
        **GRID,
    }
    inputs = (IMAGE, regions(24), IMAGES)
    expected = onnxruntime_run("RoiAlign", *inputs, opset=16, **attributes)
    assert_same(run(xp, RoiAlign, *inputs, **attributes), expected, ulps=256)


def test_RoiAlign_once_took_coordinates_as_they_are(xp: Backend) -> None:
    inputs = (IMAGE.astype(np.float64), regions(24, dtype=np.float64), IMAGES)
    expected = onnxruntime_run("RoiAlign", *inputs, opset=10, **GRID)
    assert_same(run(xp, RoiAlign, *inputs, opset=15, **GRID), expected, ulps=2**12)


@WITH_NARROW
@pytest.mark.parametrize("dtype", [np.dtype(np.float16), BFLOAT16], ids=str)
def test_RoiAlign_of_narrow_floats_is_rounded_once(backend: Backend, dtype: Any) -> None:
    x, rois = IMAGE.astype(dtype), regions(24).astype(dtype)
    wide = run(HOST, RoiAlign, x.astype(np.float32), rois.astype(np.float32), IMAGES, **GRID)
    assert_same(run(backend, RoiAlign, x, rois, IMAGES, **GRID), wide.astype(dtype), ulps=1)


def test_a_grid_has_as_many_points_as_pixels_where_they_divide_evenly(xp: Backend) -> None:
    # Seven bins of three pixels each: 21 / 7 must be 3, and not a little more.
    x = image(1, 1, 30, 30)
    rois, at = np.array([[0, 0, 21, 21]], np.float32), np.zeros(1, np.int64)
    options: Any = {"output_height": 7, "output_width": 7}
    exact = run(xp, RoiAlign, x, rois, at, sampling_ratio=3, **options)
    assert_same(run(xp, RoiAlign, x, rois, at, **options), exact)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.sampled(2)
def test_regions_beyond_all_measure_neither_last_nor_harm_others(xp: Backend, mode: str) -> None:
    huge = [[-1e30, -1e30, 1e30, 1e30], [-1e6, 3, 1e6, 9], [0, 0, math.inf, 5], [math.nan] * 4]
    rois = np.concatenate([regions(4), np.array(huge, np.float32)])
    y = run(xp, RoiAlign, IMAGE, rois, IMAGES[:8], mode=mode, **GRID)
    expected = run(xp, RoiAlign, IMAGE, rois[:4], IMAGES[:4], mode=mode, **GRID)
    assert_same(y[:4], expected)
    # Far more points lie outside, as zeros, than inside.
    np.testing.assert_allclose(np.minimum(y[5], 0), 0, atol=1e-3)


def test_what_is_outside_counts_as_zero_beside_infinity(xp: Backend) -> None:
    x = np.full((1, 1, 4, 4), -math.inf, np.float32)
    rois, at = np.array([[-9, -9, -5, -5], [-9, 0, -5, 3]], np.float32), np.zeros(2, np.int64)
    for mode, ratio in [("avg", 0), ("max", 0), ("max", 2)]:
        y = run(xp, RoiAlign, x, rois, at, mode=mode, sampling_ratio=ratio)
        assert_same(y, np.zeros((2, 1, 1, 1), np.float32))


def test_RoiAlign_can_be_differentiated_where_the_grid_is_known() -> None:
    xp = JaxBackend()

    def total(x: Any) -> Any:
        y = RoiAlign(xp, x, regions(4), IMAGES[:4], sampling_ratio=2, **GRID)
        return (y * y).sum()

    with xp.scope():
        x, along = IMAGE.astype(np.float64), image(*IMAGE.shape, dtype=np.float64)
        slope = np.asarray(jax.jit(jax.grad(total))(x))
        value = jax.jit(total)
        change = float(value(x + 1e-6 * along) - value(x - 1e-6 * along))
    np.testing.assert_allclose((slope * along).sum(), change / 2e-6, rtol=1e-5)


@pytest.mark.parametrize("shape", [(2, 2), (4, 1), (8, 4)])
def test_MaxRoiPool_is_that_of_onnxruntime(xp: Backend, shape: tuple[int, int]) -> None:
    rois = np.concatenate([IMAGES[:, None], regions(24)], axis=1).astype(np.float32)
    options: Any = {"pooled_shape": shape, "spatial_scale": 0.5}
    expected = onnxruntime_run("MaxRoiPool", IMAGE, rois, opset=1, **options)
    assert_same(run(xp, MaxRoiPool, IMAGE, rois, **options), expected)


def test_bins_end_where_the_quotient_does(xp: Backend) -> None:
    # In float32 seven times 10 / 7 is more than 10, and the last bin would have one pixel more.
    x = np.arange(64, dtype=np.float32).reshape(1, 1, 1, 64)
    for width, bins in [(10, 7), (5, 10)]:
        ends = [-(-(i + 1) * width // bins) for i in range(bins)]
        rois = np.array([[0, 3, 0, 3 + width - 1, 0]], np.float32)
        y = run(xp, MaxRoiPool, x, rois, pooled_shape=(1, bins))
        np.testing.assert_array_equal(y.ravel(), np.array(ends) + 2)


@WITH_NARROW
@pytest.mark.parametrize("dtype", [np.dtype(np.float16), BFLOAT16], ids=str)
def test_MaxRoiPool_of_narrow_floats(backend: Backend, dtype: Any) -> None:
    rois = np.array([[1, 2.5, -3, 9, 7], [0, 5, 5, 90, 90], [2, -9, -9, -5, 3]], dtype)
    x = IMAGE.astype(dtype)
    wide = (x.astype(np.float32), rois.astype(np.float32))
    expected = run(HOST, MaxRoiPool, *wide, pooled_shape=(2, 3)).astype(dtype)
    assert_same(run(backend, MaxRoiPool, x, rois, pooled_shape=(2, 3)), expected)
    assert not expected[2].any()


def test_no_regions_make_no_results(xp: Backend) -> None:
    none, at = np.zeros((0, 4), np.float32), np.zeros(0, np.int64)
    assert run(xp, RoiAlign, IMAGE, none, at, **GRID).shape == (0, 2, 3, 4)
    none = np.zeros((0, 5), np.float32)
    assert run(xp, MaxRoiPool, IMAGE, none, pooled_shape=(3, 4)).shape == (0, 2, 3, 4)


ROIS, AT = regions(2), np.zeros(2, np.int64)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "message"),
    [
        (RoiAlign, (IMAGE, ROIS, AT), {"mode": "sum"}, "mode"),
        (RoiAlign, (IMAGE, ROIS, AT), {"coordinate_transformation_mode": "x"}, "coordinate"),
        (RoiAlign, (IMAGE, ROIS, AT), {"sampling_ratio": -1}, "sampling_ratio"),
        (RoiAlign, (IMAGE, ROIS, AT), {"sampling_ratio": 10**9}, "sampling_ratio"),
        (RoiAlign, (IMAGE, ROIS, AT), {"output_height": 0}, "bins"),
        (RoiAlign, (IMAGE, ROIS, AT[:1]), {}, "batch_indices"),
        (RoiAlign, (IMAGE, ROIS[:, :3], AT), {}, "4 numbers"),
        (RoiAlign, (IMAGE[0], ROIS, AT), {}, "4 axes"),
        (RoiAlign, (IMAGE[:, :, :0], ROIS, AT), {}, "no pixels"),
        (MaxRoiPool, (IMAGE, ROIS), {"pooled_shape": (1, 1)}, "5 numbers"),
        (MaxRoiPool, (IMAGE, np.zeros((1, 5), np.float32)), {"pooled_shape": (1,)}, "bins"),
        (MaxRoiPool, (IMAGE, np.zeros((1, 5), np.float32)), {"pooled_shape": (1, 0)}, "bins"),
    ],
)
def test_regions_that_make_no_sense_are_refused(
    xp: Backend, *, op: Any, inputs: Any, attributes: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        run(xp, op, *inputs, **attributes)
