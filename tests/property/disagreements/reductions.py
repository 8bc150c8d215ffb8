"""Reductions, and what normalises along an axis."""

from __future__ import annotations

import numpy as np

from sardonyx.backends.dtypes import isdtype
from tests.property.case import Case
from tests.property.disagreements.entry import OPEN, SARDONYX, Disagreement
from tests.property.features import (
    axes_of,
    doubles,
    dtype_in,
    floats,
    has,
    ints,
    reduces_nothing,
    shape_of,
)

NAN = float("nan")

REDUCTIONS = (
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean"),
    *("ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"),
)


ENTRIES = (
    Disagreement(
        ("ReduceMax", "ReduceMin"),
        "NaN: sardonyx returns NaN; the result of onnxruntime depends on the position of the NaN.",
        "The operator behaves like NumPy's, which returns NaN.",
        SARDONYX,
        lambda case: has(case, np.isnan),
        Case("ReduceMax", 13, (doubles(1, NAN),)),
    ),
    Disagreement(
        REDUCTIONS,
        "Inputs without elements: onnxruntime does not reduce negative axes, and accepts axes that "
        "do not exist.",
        "Axes lie in [-rank, rank - 1], and all listed axes are reduced.",
        SARDONYX,
        lambda case: (
            0 in shape_of(case) and not set(axes_of(case)) <= set(range(len(shape_of(case))))
        ),
        Case("ReduceSum", 13, (np.zeros((1, 0), np.float32), ints(-1))),
    ),
    Disagreement(
        ("ReduceMax", "ReduceMin"),
        "Booleans, an empty axis: onnxruntime raises an error.",
        "The reduction of an empty set returns the smallest or the largest value of the type.",
        SARDONYX,
        lambda case: dtype_in(case) == "bool" and reduces_nothing(case),
        Case("ReduceMax", 20, (np.zeros((0,), bool),)),
    ),
    Disagreement(
        ("ReduceMean",),
        "An empty axis: sardonyx returns NaN, onnxruntime 0.",
        "The standard calls it undefined.",
        OPEN,
        reduces_nothing,
        Case("ReduceMean", 13, (np.zeros((0,), np.float32),)),
    ),
    Disagreement(
        REDUCTIONS,
        "Axes of a scalar: sardonyx raises an error, onnxruntime accepts any axes.",
        "Axes lie in [-rank, rank - 1], and a scalar has none.",
        SARDONYX,
        lambda case: shape_of(case) == () and bool(axes_of(case)),
        Case("ReduceMax", 18, (floats(1).reshape(()), ints(0))),
    ),
    Disagreement(
        ("ReduceLogSumExp",),
        "Integers: sardonyx truncates the result, onnxruntime truncates the difference between the "
        "result and the maximum.",
        "The standard does not say how a fraction becomes an integer.",
        OPEN,
        lambda case: not isdtype(case.inputs[0].dtype, "real floating"),
        Case("ReduceLogSumExp", 18, (ints(-7, -2),)),
    ),
    Disagreement(
        ("ArgMax", "ArgMin"),
        "NaN: sardonyx returns the index of the first NaN, or of the last one with "
        "`select_last_index`; the result of onnxruntime depends on the position of the NaN.",
        "The standard does not say. Its reference implementation calls NumPy, which does the same "
        "as sardonyx.",
        OPEN,
        lambda case: has(case, np.isnan),
        Case("ArgMax", 13, (floats(1, NAN, 3),), {"select_last_index": 1}),
    ),
    Disagreement(
        ("ArgMax", "ArgMin"),
        "An empty axis: sardonyx raises an error, onnxruntime only does so for non-negative axes.",
        "There is no index to return.",
        SARDONYX,
        lambda case: 0 in shape_of(case),
        Case("ArgMax", 13, (np.zeros((2, 0), np.float32),), {"axis": -1}),
    ),
    Disagreement(
        ("LogSoftmax",),
        "NaN and infinity in float64: sardonyx returns NaN, onnxruntime returns numbers.",
        "The sum of the exponentials is NaN. In float32, onnxruntime returns NaN too.",
        SARDONYX,
        lambda case: dtype_in(case) == "float64" and has(case, lambda x: ~np.isfinite(x)),
        Case("LogSoftmax", 13, (doubles(1, NAN, 2),)),
    ),
    Disagreement(
        ("Hardmax",),
        "NaN: sardonyx treats it as the maximum, like ArgMax; the result of onnxruntime depends on "
        "the position of the NaN.",
        "The standard does not say.",
        OPEN,
        lambda case: has(case, np.isnan),
        Case("Hardmax", 13, (floats(1, NAN, 2),)),
    ),
)
