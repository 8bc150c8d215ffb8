"""The operators of the default domain that onnxruntime defines, at opsets where ONNX does not."""

from __future__ import annotations

import math
from collections.abc import Mapping

# By domain and name, the first opset that has no such operator, or the standard's. onnxruntime has
# a version of each from opset 1 on.
BESIDE_THE_STANDARD: Mapping[tuple[str, str], float] = {
    # Its optimizer and its exporters write these into models of any opset.
    ("", "LayerNormalization"): 17,
    ("", "SimplifiedLayerNormalization"): math.inf,
    # Early versions of ONNX had these as experiments, and files of that time have them still.
    ("", "Affine"): 10,
    ("", "Crop"): 10,
    ("", "DynamicSlice"): 10,
    ("", "ImageScaler"): 10,
    ("", "MeanVarianceNormalization"): 9,
    ("", "ParametricSoftplus"): 10,
    ("", "Scale"): 10,
    ("", "ScaledTanh"): 10,
    ("", "ThresholdedRelu"): 10,
}


def is_beside_the_standard(op_type: str, domain: str, opset: int) -> bool:
    """Return whether onnxruntime alone defines the operator at this opset."""
    return opset < BESIDE_THE_STANDARD.get((domain, op_type), 0)
