"""com.microsoft."""

from __future__ import annotations

import numpy as np

from tests.property.case import Case
from tests.property.disagreements.entry import SARDONYX, Disagreement
from tests.property.features import floats

DOMAIN = "com.microsoft"


def _has_packed_zero_points_and_groups(case: Case) -> bool:
    zero_points, groups = (*case.inputs, None, None)[3:5]
    return groups is not None and zero_points is not None and zero_points.dtype == np.uint8


ENTRIES = (
    Disagreement(
        ("MatMulNBits",),
        "`g_idx` with packed zero points: onnxruntime ignores the zero points.",
        "A weight is (B - zero_points) * scales, of the group that `g_idx` assigns to its row.",
        SARDONYX,
        _has_packed_zero_points_and_groups,
        Case(
            "MatMulNBits",
            1,
            (
                floats(1, 1)[None],
                np.full((1, 1, 8), 9, np.uint8),
                floats(1)[None],
                np.full((1, 1), 9, np.uint8),
                np.zeros(2, np.int32),
            ),
            {"K": 2, "N": 1, "block_size": 16, "bits": 4},
            weights=frozenset({1, 2, 3}),
            domain=DOMAIN,
        ),
    ),
)
