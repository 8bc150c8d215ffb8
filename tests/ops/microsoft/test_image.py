from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.errors import InvalidInput
from tests.ops.microsoft.comparison import assert_agrees, results

IMAGES = np.random.default_rng(1).normal(size=(2, 3, 5, 7)).astype(np.float32)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align_corners", [0, 1])
def test_grid_sample(xp: Backend, mode: str, padding_mode: str, align_corners: int) -> None:
    grid = np.random.default_rng(0).uniform(-1.5, 1.5, (2, 4, 3, 2)).astype(np.float32)
    options = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
    assert_agrees(xp, "GridSample", IMAGES, grid, ulps=16, **options)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("size", [(4, 4), (1, 3), (3, 1), (1, 1), (9, 12)])
@pytest.mark.parametrize("value", [0.0, -2.5])
def test_crop_and_resize(xp: Backend, mode: str, size: Any, value: float) -> None:
    regions = np.asarray(
        [[0, 0, 1, 1], [0.1, 0.7, 0.9, 0.2], [-0.5, 0.2, 1.5, 0.9], [0.4, 0.4, 0.4, 0.4]],
        np.float32,
    )
    assert_agrees(
        xp,
        "CropAndResize",
        IMAGES,
        regions,
        np.asarray([0, 1, 1, 0], np.int32),
        np.asarray(size, np.int32),
        ulps=32,
        mode=mode,
        extrapolation_value=value,
    )


def test_no_crops(xp: Backend) -> None:
    inputs = np.zeros((0, 4), np.float32), np.zeros(0, np.int32), np.asarray([2, 3], np.int32)
    assert results(xp, "CropAndResize", IMAGES, *inputs).shape == (0, 3, 2, 3)


def test_infinite_regions_are_outside(xp: Backend) -> None:
    regions = np.asarray([[0, 0, np.inf, 1], [np.nan, 0, 1, 1]], np.float32)
    batch, size = np.zeros(2, np.int32), np.asarray([3, 2], np.int32)
    found = results(xp, "CropAndResize", IMAGES, regions, batch, size, extrapolation_value=4.0)
    assert np.all(found[:, :, 1, :] == 4)


@pytest.mark.parametrize(
    ("regions", "batch", "size"),
    [((1, 5), 0, (2, 2)), ((1, 4), 2, (2, 2)), ((1, 4), 0, (2, 2, 2)), ((1, 4), 0, (0, 2))],
)
def test_crop_and_resize_checks_its_inputs(regions: Any, batch: int, size: Any) -> None:
    inputs = (
        np.zeros(regions, np.float32),
        np.asarray([batch], np.int32),
        np.asarray(size, np.int32),
    )
    with pytest.raises(InvalidInput, match=r"rois has shape|'batch_indices' holds|crop_size is"):
        results(HOST, "CropAndResize", IMAGES, *inputs)
