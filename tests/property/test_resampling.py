"""Resizing, and sampling at positions that are computed, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.property.agreement import Draw, assert_examples_agree, versions_of
from tests.property.case import Case
from tests.property.strategies import (
    INT64,
    Shape,
    chosen,
    drawn_array,
    drawn_axes,
    drawn_shape,
    drawn_types,
    one_in,
    placed,
)

SCALES = [1 / 3, 0.4, 0.5, 0.6, 0.7, 0.8, 1, 1.3, 1.5, 2, 2.5, 3]
TRANSFORMATIONS = [
    *("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize"),
]
NEAREST = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
POLICIES = ["stretch", "not_larger", "not_smaller"]
COORDINATES = [*np.arange(-8, 9) / 4, 0.1, -0.7, 1.03, 5.3]


def sides(draw: Draw, rank: int, most: int) -> Shape:
    return tuple(draw(st.integers(1, most)) for _ in range(rank))


# -- Resize ---------------------------------------------------------------------------------------


def resized_axes(draw: Draw, mode: str) -> tuple[int, int]:
    """A rank and how many of the last axes are resized, of what onnxruntime takes."""
    if mode == "nearest":
        rank = draw(st.integers(1, 5))
        return rank, rank
    options = {"linear": [(2, 2), (3, 3), (4, 2), (5, 3)], "cubic": [(2, 2), (4, 2)]}
    return draw(st.sampled_from(options[mode]))


def scaled(draw: Draw, count: int, least: float = 0) -> list[float]:
    scales = st.sampled_from([scale for scale in SCALES if scale >= least])
    return [draw(scales) for _ in range(count)]


def early(draw: Draw, op: str, opset: int) -> Case:
    """By scales alone: Upsample, and Resize at first."""
    mode = draw(st.sampled_from(["nearest", "linear"]))
    rank, count = resized_axes(draw, mode)
    shape = (*sides(draw, rank - count, 2), *sides(draw, count, 6))
    x = drawn_array(draw, drawn_types(draw, op, opset)["T"], shape)
    scales = [1.0] * (rank - count) + scaled(draw, count, least=op == "Upsample")
    given: dict[str, Any] = {} if mode == "nearest" and draw(st.booleans()) else {"mode": mode}
    if opset < 9:
        return Case(op, opset, (x,), given | {"scales": scales}, scale=9, **placed(draw, [x]))
    inputs = (x, np.array(scales, np.float32))
    return Case(op, opset, inputs, given, ulps=16, scale=9, **placed(draw, inputs))


def resize(draw: Draw, op: str, opset: int) -> Case:
    if opset < 11:
        return early(draw, op, opset)
    dtype = drawn_types(draw, op, opset)["T1"]
    modes = ["linear", "cubic"] if dtype == np.float32 else ["linear"]
    mode = "nearest" if one_in(draw, 2) else draw(st.sampled_from(modes))
    rank, count = resized_axes(draw, mode)
    shape = (*sides(draw, rank - count, 2), *sides(draw, count, 6))
    given = {"mode": mode, **sampling(draw, mode, opset, rank)}
    axes = list(range(rank))
    if opset >= 18 and draw(st.booleans()):
        axes = draw(st.permutations(axes[rank - count :]))
        given["axes"] = [axis - rank * draw(st.booleans()) for axis in axes]
    roi, scales, sizes = targets(draw, shape, axes, rank - count, given, opset)
    if opset < 13:
        blank = np.zeros(0, np.float32)
        roi, scales = (blank if value is None else value for value in (roi, scales))
    inputs = (drawn_array(draw, dtype, shape), roi, scales, sizes)
    last = max(i for i, value in enumerate(inputs) if value is not None)
    inputs = inputs[: last + 1]
    return Case(op, opset, inputs, given, ulps=64, scale=9, **placed(draw, inputs))


def sampling(draw: Draw, mode: str, opset: int, rank: int) -> dict[str, Any]:
    """Where and how an output element is made of the input's."""
    since_19 = ["half_pixel_symmetric"] * (opset >= 19)
    found = chosen(
        draw,
        {
            "coordinate_transformation_mode": [*TRANSFORMATIONS, *since_19],
            "extrapolation_value": [2.0, 3.0],
        },
    )
    if mode == "nearest":
        found |= chosen(draw, {"nearest_mode": NEAREST})
    if mode == "cubic":
        found |= chosen(draw, {"cubic_coeff_a": [-0.5, -0.75], "exclude_outside": [0, 1]})
    if mode != "nearest" and opset >= 18 and rank in (2, 4):
        found |= chosen(draw, {"antialias": [0, 1]})
    if one_in(draw, 16):
        found |= {"exclude_outside": 1} | ({"antialias": 1} if opset >= 18 else {})
    return found


def targets(
    draw: Draw, shape: Shape, axes: list[int], kept: int, given: dict[str, Any], opset: int
) -> tuple[np.ndarray | None, np.ndarray | None, np.ndarray | None]:
    """`roi`, `scales` and `sizes`: of the axes before `kept` nothing is changed."""
    roi = scales = sizes = None
    free = [axis >= kept for axis in axes]
    if given.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        starts = [draw(st.sampled_from([0, 0.25, -0.25])) if f else 0 for f in free]
        ends = [draw(st.sampled_from([1, 0.75, 1.25])) if f else 1 for f in free]
        roi = np.array([*starts, *ends], np.float32)
    if draw(st.booleans()):
        drawn = scaled(draw, len(axes))
        scales = np.array([s if f else 1 for s, f in zip(drawn, free, strict=True)], np.float32)
        return roi, scales, sizes
    least = 0 if one_in(draw, 16) else 1
    drawn_sizes = [
        draw(st.integers(least, 9)) if f else shape[a] for a, f in zip(axes, free, strict=True)
    ]
    if all(free) and opset >= 18:
        given |= chosen(draw, {"keep_aspect_ratio_policy": POLICIES})
    return roi, scales, np.array(drawn_sizes, np.int64)


# -- the others -----------------------------------------------------------------------------------


def grid_sample(draw: Draw, op: str, opset: int) -> Case:
    types = drawn_types(draw, op, opset)
    names = ["nearest", "bilinear", "bicubic"] if opset < 20 else ["nearest", "linear", "cubic"]
    given = chosen(
        draw,
        {
            "mode": names,
            "padding_mode": ["zeros", "border", "reflection"],
            "align_corners": [0, 1],
        },
    )
    volumes = opset >= 20 and given.get("mode") != "cubic"
    rank = draw(st.integers(2, 3)) if volumes else 2
    batch, channels = sides(draw, 2, 2)
    x = drawn_array(draw, types["T1"], (batch, channels, *sides(draw, rank, 4)))
    grid_shape = (batch, *sides(draw, rank, 3), rank)
    grid = drawn_array(draw, types["T2"], grid_shape, COORDINATES)
    inputs = (x, grid)
    return Case(op, opset, inputs, given, ulps=256, scale=9, **placed(draw, inputs))


def affine_grid(draw: Draw, op: str, opset: int) -> Case:
    rank = draw(st.integers(2, 3))
    size = (*sides(draw, 2, 2), *sides(draw, rank, 4))
    theta = drawn_array(draw, drawn_types(draw, op, opset)["T1"], (size[0], rank, rank + 1))
    inputs = (theta, np.array(size, INT64))
    given = chosen(draw, {"align_corners": [0, 1]})
    return Case(op, opset, inputs, given, ulps=16, scale=9, **placed(draw, inputs))


def center_crop_pad(draw: Draw, op: str, opset: int) -> Case:
    types = drawn_types(draw, op, opset)
    x = drawn_array(draw, types["T"], drawn_shape(draw, least=1, most=4, empty=False))
    axes = drawn_axes(draw, x.ndim) or [0]
    if draw(st.booleans()):
        axes = list(range(x.ndim))
    sizes = np.array([draw(st.integers(1, 7)) for _ in axes], types["Tind"])
    given = {"axes": axes} if axes != list(range(x.ndim)) or draw(st.booleans()) else {}
    return Case(op, opset, (x, sizes), given, **placed(draw, [x, sizes]))


CASES = {
    "Resize": resize,
    "Upsample": early,
    "GridSample": grid_sample,
    "AffineGrid": affine_grid,
    "CenterCropPad": center_crop_pad,
}


@versions_of(CASES)
def test_resampling(op: str, version: int) -> None:
    assert_examples_agree(CASES[op], op, version)
