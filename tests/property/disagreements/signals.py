"""Signals and strings."""

from __future__ import annotations

import numpy as np

from sardonyx.graph.standard.types import number_of
from tests.property.case import Case
from tests.property.disagreements.entry import OPEN, SARDONYX, Disagreement
from tests.property.features import dtype_in, floats, ints, is_cut_or_padded_spectrum

ENTRIES = (
    Disagreement(
        ("BlackmanWindow", "HammingWindow", "HannWindow"),
        "A non-periodic window of one element: sardonyx returns 1, onnxruntime NaN.",
        "The standard's function body divides 0 by 0. NumPy's windows return 1.",
        OPEN,
        lambda case: case.inputs[0] == 1 and case.attributes.get("periodic") == 0,
        Case("HannWindow", 17, (ints(1).reshape(()),), {"periodic": 0}),
    ),
    Disagreement(
        ("BlackmanWindow", "HammingWindow", "HannWindow"),
        "float64: onnxruntime rounds its constants to float32.",
        "The result has the precision of its type.",
        SARDONYX,
        lambda case: case.attributes.get("output_datatype") == number_of(np.dtype(np.float64)),
        Case("HammingWindow", 17, (ints(4).reshape(()),), {"output_datatype": 11}),
    ),
    Disagreement(
        ("DFT",),
        "The inverse in float64: onnxruntime divides by the length in float32.",
        "The result has the precision of its type.",
        SARDONYX,
        lambda case: dtype_in(case) == "float64" and case.attributes.get("inverse") == 1,
        Case("DFT", 17, (np.ones((1, 3, 2)),), {"inverse": 1}),
    ),
    Disagreement(
        ("DFT",),
        "`inverse` with `onesided`, for a spectrum longer or shorter than `dft_length`: "
        "onnxruntime truncates or pads it before it computes the other half.",
        "The operator uses values up to floor(dft_length / 2) + 1, like numpy.fft.irfft.",
        SARDONYX,
        is_cut_or_padded_spectrum,
        Case(
            "DFT",
            17,
            (floats(1, 2, 3, 4, 5, 6).reshape(1, 3, 2), ints(3).reshape(())),
            {"inverse": 1, "onesided": 1},
        ),
    ),
    Disagreement(
        ("StringSplit",),
        "No delimiter, with tabs and newlines in the text: onnxruntime splits only at spaces.",
        "Without a delimiter, the text is split at consecutive whitespace.",
        SARDONYX,
        lambda case: (
            not case.attributes.get("delimiter") and any("\t" in s for s in case.inputs[0].flat)
        ),
        Case("StringSplit", 20, (np.array(["a\tb"], object),), outputs=2),
    ),
    Disagreement(
        ("StringSplit",),
        "An empty string with a delimiter: sardonyx returns one empty part, onnxruntime none.",
        "The standard does not say. Its reference implementation returns one.",
        OPEN,
        lambda case: bool(case.attributes.get("delimiter") and np.any(case.inputs[0] == "")),
        Case("StringSplit", 20, (np.array([""], object),), {"delimiter": ","}, outputs=2),
    ),
)
