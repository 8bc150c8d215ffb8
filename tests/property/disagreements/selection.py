"""Indices, and choice by value."""

from __future__ import annotations

import numpy as np

from tests.property.case import Case
from tests.property.disagreements.entry import OPEN, SARDONYX, Disagreement
from tests.property.features import backwards_to_the_greatest, floats, has, ints, shape_of

NAN = float("nan")


ENTRIES = (
    Disagreement(
        ("Gather",),
        "Strings: of each slice onnxruntime copies the first string alone.",
        "A slice of the data is gathered whole.",
        SARDONYX,
        lambda case: case.inputs[0].dtype.kind == "O",
        Case("Gather", 13, (np.array([["a", "b"]], object), ints(0))),
    ),
    Disagreement(
        ("Slice",),
        "Backwards to INT_MAX: nothing in sardonyx, all down to the first in onnxruntime.",
        "The end is clamped to the axis, and the way to its start is named INT_MIN.",
        SARDONYX,
        backwards_to_the_greatest,
        Case("Slice", 13, (floats(1, 2, 3), ints(1), ints(2**63 - 1), None, ints(-1))),
    ),
    Disagreement(
        ("OneHot",),
        "A single index, of rank 0: onnxruntime refuses it.",
        "The text has indices of any rank, and one axis is added; the standard's own inference of "
        "shapes wants at least one.",
        OPEN,
        lambda case: shape_of(case) == (),
        Case("OneHot", 11, (ints(1).reshape(()), ints(2), floats(0, 1))),
    ),
    Disagreement(
        ("OneHot",),
        "Negative indices before opset 11: off everywhere in sardonyx, counted from the end in "
        "onnxruntime.",
        "Up to opset 10 what lies outside [0, depth) is off; only later versions say "
        "[-depth, depth - 1].",
        SARDONYX,
        lambda case: case.opset < 11 and bool(np.any(case.inputs[0] < 0)),
        Case("OneHot", 9, (ints(-1), ints(2), floats(0, 1))),
    ),
    Disagreement(
        ("TopK",),
        "NaN: more than any number in sardonyx, in onnxruntime that depends on where it stands.",
        "The standard does not say; so it is for ArgMax, and where NumPy sorts.",
        OPEN,
        lambda case: has(case, np.isnan),
        Case("TopK", 11, (floats(-2, NAN), ints(1)), outputs=2),
    ),
    Disagreement(
        ("NonZero",),
        "A scalar: no rows in sardonyx, one in onnxruntime.",
        "Its shape is (0, N), the standard says, other than NumPy's.",
        SARDONYX,
        lambda case: shape_of(case) == (),
        Case("NonZero", 13, (np.array(True),)),
    ),
)
