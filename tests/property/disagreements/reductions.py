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
        "NaN: it is the result in sardonyx; in onnxruntime that depends on where it stands.",
        "The operator behaves as NumPy's, whose result is NaN.",
        SARDONYX,
        lambda case: has(case, np.isnan),
        Case("ReduceMax", 13, (doubles(1, NAN),)),
    ),
    Disagreement(
        REDUCTIONS,
        "Inputs without elements: onnxruntime leaves alone an axis that is counted from the back, "
        "and takes one that is not there.",
        "Axes lie in [-rank, rank - 1], and all that are named are reduced.",
        SARDONYX,
        lambda case: (
            0 in shape_of(case) and not set(axes_of(case)) <= set(range(len(shape_of(case))))
        ),
        Case("ReduceSum", 13, (np.zeros((1, 0), np.float32), ints(-1))),
    ),
    Disagreement(
        ("ReduceMax", "ReduceMin"),
        "The extreme of no truth values: onnxruntime refuses it.",
        "Reduction over an empty set yields the least or the greatest value of the type.",
        SARDONYX,
        lambda case: dtype_in(case) == "bool" and reduces_nothing(case),
        Case("ReduceMax", 20, (np.zeros((0,), bool),)),
    ),
    Disagreement(
        ("ReduceMean",),
        "The mean of nothing: NaN in sardonyx, 0 in onnxruntime.",
        "The standard calls it undefined.",
        OPEN,
        reduces_nothing,
        Case("ReduceMean", 13, (np.zeros((0,), np.float32),)),
    ),
    Disagreement(
        REDUCTIONS,
        "Axes of a scalar: sardonyx refuses them, onnxruntime takes any.",
        "Axes lie in [-rank, rank - 1], and a scalar has none.",
        SARDONYX,
        lambda case: shape_of(case) == () and bool(axes_of(case)),
        Case("ReduceMax", 18, (floats(1).reshape(()), ints(0))),
    ),
    Disagreement(
        ("ReduceLogSumExp",),
        "Integers: sardonyx cuts off the result, onnxruntime its distance from the maximum.",
        "The standard does not say how a fraction becomes an integer.",
        OPEN,
        lambda case: not isdtype(case.inputs[0].dtype, "real floating"),
        Case("ReduceLogSumExp", 18, (ints(-7, -2),)),
    ),
    Disagreement(
        ("ArgMax", "ArgMin"),
        "NaN: sardonyx returns the place of the first, or with `select_last_index` of the last; in "
        "onnxruntime that depends on where it stands.",
        "The standard does not say; so it is in NumPy, which its reference implementation asks.",
        OPEN,
        lambda case: has(case, np.isnan),
        Case("ArgMax", 13, (floats(1, NAN, 3),), {"select_last_index": 1}),
    ),
    Disagreement(
        ("ArgMax", "ArgMin"),
        "The extreme of nothing: sardonyx refuses it, onnxruntime does so only of an axis that is "
        "counted from the front.",
        "There is no index to return.",
        SARDONYX,
        lambda case: 0 in shape_of(case),
        Case("ArgMax", 13, (np.zeros((2, 0), np.float32),), {"axis": -1}),
    ),
    Disagreement(
        ("LogSoftmax",),
        "NaN and infinity in float64: onnxruntime returns numbers where sardonyx returns NaN.",
        "The sum of the exponentials is NaN, as onnxruntime itself finds in float32.",
        SARDONYX,
        lambda case: dtype_in(case) == "float64" and has(case, lambda x: ~np.isfinite(x)),
        Case("LogSoftmax", 13, (doubles(1, NAN, 2),)),
    ),
    Disagreement(
        ("Hardmax",),
        "NaN: sardonyx takes it for the maximum, as ArgMax does; onnxruntime does so or not, "
        "depending on where it stands.",
        "The standard does not say.",
        OPEN,
        lambda case: has(case, np.isnan),
        Case("Hardmax", 13, (floats(1, NAN, 2),)),
    ),
)
