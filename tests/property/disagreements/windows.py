"""Convolutions, pools and what undoes them."""

from __future__ import annotations

import numpy as np

from tests.property.case import Case
from tests.property.disagreements.entry import OPEN, SARDONYX, Disagreement
from tests.property.features import floats, has, ints, leaves_gaps, overhang, same_within_stride

NAN = float("nan")


ENTRIES = (
    Disagreement(
        ("MaxUnpool",),
        "`output_shape`: onnxruntime applies the indices to this shape.",
        "The indices come from MaxPool, so they refer to the shape of its input. The standard's "
        "own example shows this.",
        SARDONYX,
        lambda case: len(case.inputs) > 2,
        Case(
            "MaxUnpool",
            11,
            (floats(2, 3).reshape(2, 1, 1), ints(1, 3).reshape(2, 1, 1), ints(2, 1, 3)),
            {"kernel_shape": [2], "strides": [2]},
        ),
    ),
    Disagreement(
        ("Col2Im",),
        "Dilated blocks, for images with one or with more than two axes: onnxruntime loses "
        "channels.",
        "`dilations` sets the distance between elements of a block for any number of axes.",
        SARDONYX,
        lambda case: (
            max(case.attributes.get("dilations", [1])) > 1 and case.inputs[1].shape != (2,)
        ),
        Case(
            "Col2Im",
            18,
            (floats(1, 2, 3, 4).reshape(1, 4, 1), ints(3), ints(2)),
            {"dilations": [2]},
        ),
    ),
    Disagreement(
        ("AveragePool", "LpPool", "MaxPool"),
        "A window longer than the padded axis: sardonyx raises an error; onnxruntime returns an "
        "empty result, or a window that does not exist.",
        "If the window is too long by at most one stride, the formula returns size 0. For Conv "
        "both raise an error, and an empty result helps nobody.",
        OPEN,
        lambda case: max(overhang(case)) > 0,
        Case("MaxPool", 12, (np.ones((1, 1, 1), np.float32),), {"kernel_shape": [2]}),
    ),
    Disagreement(
        ("MaxPool", "GlobalMaxPool"),
        "NaN: sardonyx returns it as the maximum; onnxruntime ignores it, or the result depends on "
        "its position.",
        "The standard does not say. ReduceMax behaves like NumPy, which returns NaN.",
        OPEN,
        lambda case: has(case, np.isnan),
        Case("MaxPool", 12, (floats(1, NAN).reshape(1, 1, 2),), {"kernel_shape": [2]}),
    ),
    Disagreement(
        ("AveragePool", "LpPool", "MaxPool"),
        "SAME padding with gaps between the windows: onnxruntime raises an error, in most "
        "versions.",
        "Padding only adds elements, or none. For Conv, onnxruntime does the same.",
        SARDONYX,
        same_within_stride,
        Case(
            "MaxPool",
            12,
            (np.ones((1, 1, 9), np.float32),),
            {"kernel_shape": [1], "strides": [3], "auto_pad": "SAME_LOWER"},
        ),
    ),
    Disagreement(
        ("AveragePool", "LpPool", "MaxPool"),
        "VALID with `ceil_mode`: sardonyx uses only whole windows, onnxruntime also uses a partial "
        "last window.",
        "The formula for VALID counts whole windows, with `ceil_mode` too.",
        SARDONYX,
        lambda case: (
            case.attributes.get("auto_pad") == "VALID" and case.attributes.get("ceil_mode") == 1
        ),
        Case(
            "MaxPool",
            12,
            (np.ones((1, 1, 4), np.float32),),
            {"kernel_shape": [3], "strides": [2], "auto_pad": "VALID", "ceil_mode": 1},
        ),
    ),
    Disagreement(
        ("ConvTranspose",),
        "SAME padding with a stride longer than the dilated kernel: the result of onnxruntime is "
        "shorter.",
        "With SAME, the size of the output is the size of the input times the stride.",
        SARDONYX,
        lambda case: case.attributes.get("auto_pad", "").startswith("SAME") and leaves_gaps(case),
        Case(
            "ConvTranspose",
            11,
            (np.ones((1, 1, 2), np.float32), np.ones((1, 1, 1), np.float32)),
            {"strides": [2], "auto_pad": "SAME_UPPER"},
        ),
    ),
    Disagreement(
        ("ConvTranspose",),
        "An infinite or NaN weight: sardonyx returns NaN also at positions between and beyond the "
        "elements of the input; onnxruntime skips these positions.",
        "The standard does not say. sardonyx inserts zeros between the elements and computes a "
        "convolution, and zero times infinity is NaN.",
        OPEN,
        lambda case: not np.isfinite(case.inputs[1]).all(),
        Case(
            "ConvTranspose",
            11,
            (np.ones((1, 1, 2), np.float32), np.asarray([[[np.inf, 1, 1]]], np.float32)),
            {"strides": [2]},
        ),
    ),
)
