"""Regions of images, and images put together again, against onnxruntime."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from sardonyx.backends.numpy import HOST
from sardonyx.ops.pooling import MaxPool
from tests.property.agreement import Draw, assert_examples_agree, versions_of
from tests.property.case import Case
from tests.property.strategies import (
    INT64,
    chosen,
    drawn_array,
    drawn_types,
    one_in,
    placed,
)
from tests.property.test_windows import drawn_sides, drawn_window

EIGHTHS = np.arange(-8, 9) / 8

# -- regions --------------------------------------------------------------------------------------


def drawn_image(draw: Draw, dtype: Any, most: int = 3) -> np.ndarray:
    """(batch, channels, height, width)."""
    sizes = (*drawn_sides(draw, 2, most), *(draw(st.integers(2, 8)) for _ in range(2)))
    return drawn_array(draw, dtype, sizes)


def align(draw: Draw, op: str, opset: int) -> Case:
    types = drawn_types(draw, op, opset)
    x = drawn_image(draw, types["T1"])
    count = draw(st.integers(1, 3))
    corners = drawn_array(draw, types["T1"], (count, 2), np.arange(-2, 13) / 2)
    sides = drawn_array(draw, types["T1"], (count, 2), [0.5, 1, 2, 3.5])
    rois = np.concatenate([corners, corners + sides], axis=1).astype(types["T1"])
    batch = drawn_array(draw, types["T2"], (count,), range(x.shape[0]))
    given = chosen(draw, {"mode": ["avg", "max"], "sampling_ratio": [0, 1, 2, 3]})
    given |= chosen(draw, {"output_height": [1, 2, 3], "output_width": [1, 2, 4]})
    given |= chosen(draw, {"spatial_scale": [1.0, 0.5, 0.75]})
    if opset >= 16:
        modes = ["half_pixel", "output_half_pixel"]
        given |= chosen(draw, {"coordinate_transformation_mode": modes})
    inputs = (x, rois, batch)
    return Case(op, opset, inputs, given, ulps=64, scale=8, **placed(draw, inputs))


def pool_regions(draw: Draw, op: str, opset: int) -> Case:
    dtype = drawn_types(draw, op, opset)["T"]
    x = drawn_image(draw, dtype)
    count = draw(st.integers(1, 3))
    corners = drawn_array(draw, dtype, (count, 2), range(6))
    ends = corners + drawn_array(draw, dtype, (count, 2), range(6))
    batch = drawn_array(draw, dtype, (count, 1), range(x.shape[0]))
    rois = np.concatenate([batch, corners, ends], axis=1).astype(dtype)
    given = {"pooled_shape": list(drawn_sides(draw, 2, 3))}
    given |= chosen(draw, {"spatial_scale": [1.0, 0.5]})
    return Case(op, opset, (x, rois), given, **placed(draw, [x, rois]))


# -- together again -------------------------------------------------------------------------------


def unpool(draw: Draw, op: str, opset: int) -> Case:
    """What a MaxPool has made."""
    types = drawn_types(draw, op, opset)
    rank = draw(st.integers(1, 3))
    kernel = drawn_sides(draw, rank, 3)
    given: dict[str, Any] = {"kernel_shape": list(kernel), "strides": list(kernel)}
    sizes = tuple(k * draw(st.integers(1, 3)) for k in kernel)
    shape = (*drawn_sides(draw, 2, 2), *sizes)
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    image = rng.permutation(prod(shape)).reshape(shape).astype(types["T1"])
    x, places = MaxPool(HOST, image, kernel_shape=kernel, strides=kernel, outputs=2)
    larger = [n + draw(st.integers(0, 1)) for n in sizes] if one_in(draw, 3) else None
    inputs = (x, places, *([] if larger is None else [np.array([*shape[:2], *larger], INT64)]))
    return Case(op, opset, inputs, given, **placed(draw, inputs))


def columns_to_image(draw: Draw, op: str, opset: int) -> Case:
    dtype = drawn_types(draw, op, opset)["T"]
    rank = draw(st.integers(1, 3))
    block = drawn_sides(draw, rank, 3)
    given = {k: v for k, v in drawn_window(draw, block).items() if k != "auto_pad"}
    strides = given.get("strides", [1] * rank)
    dilations = given.get("dilations", [1] * rank)
    pads = given.get("pads", [0] * 2 * rank)
    counts = [draw(st.integers(1, 3)) for _ in range(rank)]
    sides = zip(counts, block, strides, dilations, pads, pads[rank:], strict=False)
    image = [(n - 1) * s + (k - 1) * d + 1 - head - tail for n, k, s, d, head, tail in sides]
    if min(image) < 1:
        given.pop("pads")
        image = [n + pads[i] + pads[i + rank] for i, n in enumerate(image)]
    batch, channels = drawn_sides(draw, 2, 2)
    x = drawn_array(draw, dtype, (batch, channels * prod(block), prod(counts)))
    inputs = (x, np.array(image, INT64), np.array(block, INT64))
    return Case(op, opset, inputs, given, scale=64, **placed(draw, inputs))


def deformed(draw: Draw, op: str, opset: int) -> Case:
    dtype = drawn_types(draw, op, opset)["T"]
    kernel = drawn_sides(draw, 2, 3)
    group, per_group, filters, by = (draw(st.integers(1, 2)) for _ in range(4))
    window = {k: v for k, v in drawn_window(draw, kernel).items() if k != "auto_pad"}
    strides, dilations = window.get("strides", [1, 1]), window.get("dilations", [1, 1])
    pads = window.get("pads", [0] * 4)
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    sizes = [extent + draw(st.integers(0, 3)) for extent in extents]
    out = [(n + pads[i] + pads[i + 2] - extents[i]) // strides[i] + 1 for i, n in enumerate(sizes)]
    batch, channels = draw(st.integers(1, 2)), group * per_group * by
    x = drawn_array(draw, dtype, (batch, channels, *sizes))
    w = drawn_array(draw, dtype, (group * filters, per_group * by, *kernel))
    taps = by * prod(kernel)
    offset = drawn_array(draw, dtype, (batch, 2 * taps, *out), np.arange(-9, 10) / 4)
    b = drawn_array(draw, dtype, w.shape[:1]) if draw(st.booleans()) else None
    mask = drawn_array(draw, dtype, (batch, taps, *out), EIGHTHS) if draw(st.booleans()) else None
    given = {"group": group, "offset_group": by, **window}
    if draw(st.booleans()):
        given["kernel_shape"] = list(kernel)
    inputs = (x, w, offset, b, mask)
    scale = 16.0 * w[0].size
    return Case(op, opset, inputs, given, ulps=16, scale=scale, **placed(draw, inputs))


CASES = {
    "RoiAlign": align,
    "MaxRoiPool": pool_regions,
    "MaxUnpool": unpool,
    "Col2Im": columns_to_image,
    "DeformConv": deformed,
}


@pytest.mark.slow
@pytest.mark.sampled(12)
@versions_of(CASES)
def test_regions(op: str, version: int) -> None:
    assert_examples_agree(CASES[op], op, version)
