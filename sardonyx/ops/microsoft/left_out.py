"""The operators of com.microsoft that sardonyx does not have, and why."""

from __future__ import annotations

from collections.abc import Mapping

_SPARSE = "sparse attention by pages of keys is not supported yet"

# By name; `sardonyx check` and the error at load say it.
LEFT_OUT: Mapping[str, str] = {
    "DequantizeBFP": "no kernel of onnxruntime defines its bytes",
    "EPContext": "it holds the compiled code of another execution provider",
    "PackedSparseAttentionIndexer": _SPARSE,
    "QOrderedAttention": "its CUDA kernel alone defines how it rounds",
    "QOrderedLongformerAttention": "its CUDA kernel alone defines how it rounds",
    "QuantizeBFP": "no kernel of onnxruntime defines its bytes",
    "Snpe": "it calls the library of a phone's processor",
    "SparseAttentionIndexer": _SPARSE,
}
