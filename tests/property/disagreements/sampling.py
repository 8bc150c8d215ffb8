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
        "Integers between two elements: sardonyx rounds, onnxruntime truncates.",
        "The standard does not say. Its reference implementation rounds.",
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
        "`align_corners` with `scales` that give a fractional size: onnxruntime aligns the last "
        "element of the rounded size, sardonyx the last element of the fractional size.",
        "The standard's own test resize_downsample_scales_linear_align_corners does the same as "
        "sardonyx.",
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
        "`tf_crop_and_resize` of an axis whose size does not change: onnxruntime does not crop it.",
        "The formula uses the region for every size.",
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
        "A scale other than 1 that does not change the size of an axis: onnxruntime skips this "
        "axis in some modes.",
        "Positions follow from the requested scale, as for all other fractional sizes.",
        SARDONYX,
        keeps_a_size_that_is_scaled,
        Case("Resize", 13, (floats(1, 2)[None], None, floats(1, 1.3)), {"mode": "cubic"}),
    ),
    Disagreement(
        ("Resize", "Upsample"),
        "Positions at an element or midway between two: onnxruntime computes in float32, which may "
        "move them to either side.",
        "The formulas define the positions. sardonyx computes them exactly.",
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
        "`keep_aspect_ratio_policy` with negative axes: onnxruntime does not keep the aspect "
        "ratio.",
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
        "`sizes` of 0: onnxruntime raises an error.",
        "The result is empty. With `scales`, onnxruntime returns an empty result too.",
        SARDONYX,
        is_resized_to_nothing,
        Case("Resize", 13, (floats(1, 2), None, None, ints(0))),
    ),
    Disagreement(
        ("Resize",),
        "`antialias` and `exclude_outside` in modes where they have no effect, such as nearest: "
        "onnxruntime raises an error.",
        "The standard allows any combination.",
        SARDONYX,
        filters_in_vain,
        Case("Resize", 18, (floats(1, 2), None, floats(2)), {"antialias": 1}),
    ),
    Disagreement(
        ("Resize", "Upsample"),
        "Infinities and NaN in linear modes, next to a neighbour of weight 0: onnxruntime returns "
        "NaN, sardonyx only if the position is not exactly at an element.",
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
        "A region that ends before it begins on one axis, with a number of samples that depends on "
        "its size: onnxruntime raises an error; sardonyx returns 0, because there are no samples.",
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
        "Positions that are infinite or NaN: onnxruntime reads some element; in sardonyx, infinity "
        "is outside and NaN returns NaN.",
        "The standard does not say. A far position is outside.",
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
        "A batch of one in float16: onnxruntime runs the standard's function body and raises an "
        "error.",
        "The body removes the batch axis by mistake.",
        SARDONYX,
        lambda case: dtype_in(case) == "float16" and shape_of(case) == (1, 2, 3),
        Case("AffineGrid", 20, (np.zeros((1, 2, 3), np.float16), ints(1, 1, 2, 2))),
    ),
    Disagreement(
        ("AffineGrid",),
        "`align_corners` on an axis of one element: sardonyx returns -1, onnxruntime 1.",
        "The standard's function body starts at -1, and says so for the depth. For the other axes "
        "it divides by 0.",
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
