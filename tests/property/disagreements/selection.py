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
        "Strings: onnxruntime copies only the first string of each slice.",
        "The operator gathers whole slices.",
        SARDONYX,
        lambda case: case.inputs[0].dtype.kind == "O",
        Case("Gather", 13, (np.array([["a", "b"]], object), ints(0))),
    ),
    Disagreement(
        ("Slice",),
        "A negative step with the end INT_MAX: sardonyx returns nothing, onnxruntime all elements "
        "down to the first.",
        "The end is clamped to the axis. The end that includes the first element is INT_MIN.",
        SARDONYX,
        backwards_to_the_greatest,
        Case("Slice", 13, (floats(1, 2, 3), ints(1), ints(2**63 - 1), None, ints(-1))),
    ),
    Disagreement(
        ("OneHot",),
        "A single index of rank 0: onnxruntime raises an error.",
        "The text allows indices of any rank and adds one axis. The standard's shape inference "
        "wants rank 1 or more.",
        OPEN,
        lambda case: shape_of(case) == (),
        Case("OneHot", 11, (ints(1).reshape(()), ints(2), floats(0, 1))),
    ),
    Disagreement(
        ("OneHot",),
        "Negative indices before opset 11: sardonyx returns the off value, onnxruntime counts from "
        "the end.",
        "Up to opset 10, an index outside of [0, depth) is off. Only later versions say [-depth, "
        "depth - 1].",
        SARDONYX,
        lambda case: case.opset < 11 and bool(np.any(case.inputs[0] < 0)),
        Case("OneHot", 9, (ints(-1), ints(2), floats(0, 1))),
    ),
    Disagreement(
        ("TopK",),
        "NaN: sardonyx treats it as larger than any number; the result of onnxruntime depends on "
        "the position of the NaN.",
        "The standard does not say. ArgMax and NumPy's sort treat NaN in the same way as sardonyx.",
        OPEN,
        lambda case: has(case, np.isnan),
        Case("TopK", 11, (floats(-2, NAN), ints(1)), outputs=2),
    ),
    Disagreement(
        ("NonZero",),
        "A scalar: sardonyx returns no rows, onnxruntime one.",
        "The standard says that the shape is (0, N), unlike NumPy's.",
        SARDONYX,
        lambda case: shape_of(case) == (),
        Case("NonZero", 13, (np.array(True),)),
    ),
)
