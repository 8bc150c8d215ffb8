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
        "`output_shape`: onnxruntime counts the indices through that shape.",
        "The indices are those of the MaxPool, so they count through what its input was; the "
        "standard's own example shows it.",
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
        "Dilated blocks of images of other than two axes: onnxruntime loses channels.",
        "A block's elements lie as far apart as `dilations` says, whatever the number of axes.",
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
        "A window longer than the padded axis: sardonyx refuses it; onnxruntime returns an empty "
        "result, or a window where there is none.",
        "The formula gives size 0 for a window that is too long by no more than a stride. Both "
        "refuse it in Conv, and an empty result helps nobody.",
        OPEN,
        lambda case: max(overhang(case)) > 0,
        Case("MaxPool", 12, (np.ones((1, 1, 1), np.float32),), {"kernel_shape": [2]}),
    ),
    Disagreement(
        ("MaxPool", "GlobalMaxPool"),
        "NaN: it is the greatest element in sardonyx; onnxruntime leaves it out, or does so "
        "depending on where it stands.",
        "The standard does not say; so it is for ReduceMax, which behaves as NumPy does.",
        OPEN,
        lambda case: has(case, np.isnan),
        Case("MaxPool", 12, (floats(1, NAN).reshape(1, 1, 2),), {"kernel_shape": [2]}),
    ),
    Disagreement(
        ("AveragePool", "LpPool", "MaxPool"),
        "SAME padding where windows leave gaps: onnxruntime refuses it, in most versions.",
        "Padding adds elements or none, as onnxruntime itself has it in Conv.",
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
        "VALID with `ceil_mode`: whole windows alone in sardonyx, also a last one that is cut off "
        "in onnxruntime.",
        "The formula for VALID counts whole windows where `ceil_mode` is set, too.",
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
        "SAME padding where the stride is longer than the dilated kernel: the result of "
        "onnxruntime is shorter.",
        "SAME means that the output has the size of the input times the stride.",
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
        "An infinite or NaN weight: NaN in sardonyx also where it would meet a place between or "
        "beyond the elements of the input; onnxruntime leaves these places out.",
        "The standard does not say. Sardonyx computes the convolution of the input with zeros "
        "between its elements, and zero times infinity is NaN.",
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
