"""The operators of com.microsoft that sardonyx does not have, and why."""

from __future__ import annotations

from collections.abc import Mapping

# By name; `sardonyx check` and the error at load say it.
LEFT_OUT: Mapping[str, str] = {
    "DequantizeBFP": "no kernel of onnxruntime defines its bytes",
    "EPContext": "it holds the compiled code of another execution provider",
    "QOrderedAttention": "its CUDA kernel alone defines how it rounds",
    "QOrderedLongformerAttention": "its CUDA kernel alone defines how it rounds",
    "QuantizeBFP": "no kernel of onnxruntime defines its bytes",
    "Snpe": "it calls the library of a phone's processor",
}
