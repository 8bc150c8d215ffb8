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
    "suppression",
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
    "microsoft.quantization",
    "microsoft.quantized_pooling",
    "microsoft.quantized_products",
    "microsoft.quantized_attention",
    "microsoft.quantized_recurrence",
    "microsoft.quantized_layouts",
    "microsoft.attention",
    "microsoft.decoder_attention",
    "microsoft.group_query_attention",
    "microsoft.linear_attention",
    "microsoft.longformer",
    "microsoft.gated_delta_net",
    "microsoft.multi_head_attention",
    "microsoft.packed_attention",
    "microsoft.paged_attention",
    "microsoft.selected_attention",
    "microsoft.sparse_indexer",
    "microsoft.packed_indexer",
    "microsoft.position_bias",
    "microsoft.rotary",
    "microsoft.layout",
    "microsoft.linalg",
    "microsoft.signal",
    "microsoft.image",
    "microsoft.strings",
    "microsoft.hashing",
    "microsoft.ngrams",
    "microsoft.time_warping",
    "microsoft.embedding",
    "microsoft.gates",
    "microsoft.hyper_connections",
    "microsoft.engram_hashing",
    "microsoft.packed_convolution",
    "microsoft.recurrent",
    "microsoft.generation",
    "microsoft.beam_search",
    "microsoft.products",
    "microsoft.normalization",
    "microsoft.experiments",
    "microsoft.convolution",
    "microsoft.nchwc",
    "microsoft.bias",
    "microsoft.causal_convolution",
    "microsoft.sparse_attention",
    "microsoft.experts",
    "microsoft.gather_quantized",
    "microsoft.matmul_bnb4",
    "microsoft.matmul_fpq4",
    "microsoft.matmul_float8",
    "microsoft.matmul_nbits",
    "microsoft.matmul_nbits_fused",
    "microsoft.quantized_experts",
    "microsoft.sparse",
    "microsoft.result_types",
)


def _table() -> Mapping[tuple[str, str], Op[Any]]:
    table: dict[tuple[str, str], Op[Any]] = {}
    for name in _MODULES:
        module = import_module(f"sardonyx.ops.{name}")
        ops = (value for value in vars(module).values() if isinstance(value, Op))
        table |= {(op.domain, op.name): op for op in ops}
    return MappingProxyType(table)


OPS = _table()
