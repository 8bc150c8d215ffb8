"""Resampling."""

from __future__ import annotations

import numpy as np

from tests.property.case import Case
from tests.property.disagreements.entry import OPEN, SARDONYX, Disagreement
from tests.property.features import dtype_in, floats, has, ints, shape_of
from tests.property.sampling_features import (
    aligns_no_whole_size,
    crops_where_the_size_stays,
    filters_in_vain,
    is_of_negative_area,
    is_resized_to_nothing,
    keeps_a_size_that_is_scaled,
    keeps_aspect_from_the_back,
    makes_fractions_of_integers,
    misses_a_tie,
)

NAN = float("nan")


ENTRIES = (
    Disagreement(
        ("Resize", "Upsample"),
        "Integers between two elements: sardonyx rounds, onnxruntime cuts off.",
        "The standard does not say; its reference implementation rounds.",
        OPEN,
        makes_fractions_of_integers,
        Case(
            "Resize",
            13,
            (ints(0, 3).astype(np.int32)[None], None, floats(1, 2)),
            {"mode": "linear"},
        ),
    ),
    Disagreement(
        ("Resize",),
        "`align_corners` where `scales` give no whole size: onnxruntime aligns the last element, "
        "sardonyx what would be the last of the size that was asked for.",
        "So has it the standard's own case, resize_downsample_scales_linear_align_corners.",
        SARDONYX,
        aligns_no_whole_size,
        Case(
            "Resize",
            13,
            (floats(1, 2, 3, 4)[None], None, floats(1, 0.6)),
            {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
        ),
    ),
    Disagreement(
        ("Resize",),
        "`tf_crop_and_resize` of an axis whose size stays: onnxruntime does not crop it.",
        "The formula has the region whatever the size.",
        SARDONYX,
        crops_where_the_size_stays,
        Case(
            "Resize",
            13,
            (floats(1, 2, 3, 4)[None], floats(0, 0.25, 1, 0.75), None, ints(2, 4)),
            {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"},
        ),
    ),
    Disagreement(
        ("Resize", "Upsample"),
        "A scale other than 1 that leaves an axis at its size: onnxruntime leaves it alone, in "
        "some modes.",
        "Positions follow from the scale that was asked for, as wherever it gives no whole size.",
        SARDONYX,
        keeps_a_size_that_is_scaled,
        Case("Resize", 13, (floats(1, 2)[None], None, floats(1, 1.3)), {"mode": "cubic"}),
    ),
    Disagreement(
        ("Resize", "Upsample"),
        "Positions at an element or midway between two: in onnxruntime float32 may move them to "
        "either side.",
        "The formulas say where they are; sardonyx computes them exactly.",
        SARDONYX,
        misses_a_tie,
        Case(
            "Resize",
            13,
            (floats(*range(10)), None, None, ints(6)),
            {"nearest_mode": "floor"},
        ),
    ),
    Disagreement(
        ("Resize",),
        "`keep_aspect_ratio_policy` and axes counted from the back: onnxruntime does not keep it.",
        "Axes lie in [-r, r-1].",
        SARDONYX,
        keeps_aspect_from_the_back,
        Case(
            "Resize",
            18,
            (floats(1, 2, 3, 4).reshape(2, 2), None, None, ints(3, 4)),
            {"axes": [-2, -1], "keep_aspect_ratio_policy": "not_larger"},
        ),
    ),
    Disagreement(
        ("Resize",),
        "`sizes` of 0: onnxruntime refuses them.",
        "The result is empty; by `scales` onnxruntime makes it, too.",
        SARDONYX,
        is_resized_to_nothing,
        Case("Resize", 13, (floats(1, 2), None, None, ints(0))),
    ),
    Disagreement(
        ("Resize",),
        "`antialias` and `exclude_outside` where they have no effect, as in mode nearest: "
        "onnxruntime refuses them.",
        "The standard allows any combination.",
        SARDONYX,
        filters_in_vain,
        Case("Resize", 18, (floats(1, 2), None, floats(2)), {"antialias": 1}),
    ),
    Disagreement(
        ("Resize", "Upsample"),
        "Infinities and NaN in linear modes: a neighbour whose weight is 0 still makes NaN in "
        "onnxruntime, and in sardonyx where positions are not those of elements exactly.",
        "The standard does not say whether such a neighbour counts.",
        OPEN,
        lambda case: has(case, lambda x: ~np.isfinite(x)),
        Case(
            "Resize",
            13,
            (floats(1, np.inf)[None], None, floats(1, 2)),
            {"mode": "linear"},
        ),
    ),
    Disagreement(
        ("RoiAlign",),
        "A region that ends before it begins on one of its two axes, its samples counted by its "
        "size: onnxruntime refuses it; for sardonyx it holds no samples, and is 0.",
        "The standard does not say.",
        OPEN,
        is_of_negative_area,
        Case(
            "RoiAlign",
            16,
            (np.ones((1, 1, 4, 4), np.float32), floats(3, 0, 0, 3)[None], ints(0)),
        ),
    ),
    Disagreement(
        ("GridSample",),
        "Positions that are infinite or NaN: onnxruntime takes them for some element; for sardonyx "
        "infinity is outside, and NaN gives NaN.",
        "The standard does not say; what is far outside is outside.",
        OPEN,
        lambda case: has(case, lambda x: ~np.isfinite(x), 1),
        Case(
            "GridSample",
            20,
            (floats(1, 2).reshape(1, 1, 1, 2), floats(NAN, 0).reshape(1, 1, 1, 2)),
        ),
    ),
    Disagreement(
        ("AffineGrid",),
        "A batch of one in float16: onnxruntime, which then runs the standard's body for the "
        "operator, refuses it.",
        "The body squeezes the axis of the batch away by mistake.",
        SARDONYX,
        lambda case: dtype_in(case) == "float16" and shape_of(case) == (1, 2, 3),
        Case("AffineGrid", 20, (np.zeros((1, 2, 3), np.float16), ints(1, 1, 2, 2))),
    ),
    Disagreement(
        ("AffineGrid",),
        "`align_corners` on an axis of one element: -1 in sardonyx, 1 in onnxruntime.",
        "The standard's body for the operator starts at -1, and says so of the depth; elsewhere it "
        "divides by 0.",
        OPEN,
        lambda case: case.attributes.get("align_corners") == 1 and 1 in case.inputs[1][2:],
        Case(
            "AffineGrid",
            20,
            (floats(1, 0, 0, 0, 1, 0).reshape(1, 2, 3), ints(1, 1, 1, 2)),
            {"align_corners": 1},
        ),
    ),
)
