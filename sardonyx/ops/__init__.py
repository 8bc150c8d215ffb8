"""The table of all operators by domain and name, collected from one module per family."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

from sardonyx.ops.definition import Op

_MODULES = (
    "static",
    "elementwise",
    "comparison",
    "activation",
    "casting",
    "reduction",
    "layout",
    "indexing",
    "scattering",
    "selection",
    "fill",
    "linalg",
    "convolution",
    "quantization",
    "regions",
    "deformable",
    "col2im_unpool",
    "pooling",
    "normalization",
    "attention",
    "linear_attention",
    "recurrent",
    "loss",
    "einsum",
    "signal",
    "resampling",
    "grid",
    "random",
    "text",
    "tfidf",
    "image",
    "optimizers",
    "control",
    "loops",
    "scans",
    "sequence",
    "ml.trees",
    "ml.linear",
    "ml.svm",
    "ml.preprocessing",
    "ml.labels",
    "ml.maps",
    "directml",
    "microsoft.activation",
    "microsoft.experts",
    "microsoft.gather_quantized",
    "microsoft.matmul_bnb4",
    "microsoft.matmul_fpq4",
    "microsoft.matmul_float8",
    "microsoft.matmul_nbits",
    "microsoft.matmul_nbits_fused",
    "microsoft.quantized_experts",
    "microsoft.sparse",
)


def _table() -> Mapping[tuple[str, str], Op[Any]]:
    table: dict[tuple[str, str], Op[Any]] = {}
    for name in _MODULES:
        module = import_module(f"sardonyx.ops.{name}")
        ops = (value for value in vars(module).values() if isinstance(value, Op))
        table |= {(op.domain, op.name): op for op in ops}
    return MappingProxyType(table)


OPS = _table()
