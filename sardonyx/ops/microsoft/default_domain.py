"""The operators of the default domain that onnxruntime defines, at opsets where ONNX does not."""

from __future__ import annotations

# By domain and name. Of both, onnxruntime has a version from opset 1 on; its optimizer and its
# exporters write them into models of any opset.
BESIDE_THE_STANDARD = frozenset({("", "LayerNormalization"), ("", "SimplifiedLayerNormalization")})
