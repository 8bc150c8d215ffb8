"""One small node for each operator of onnxruntime's domains."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tests.ops.microsoft.small_node import (
    CONV,
    NBITS,
    PACKED,
    S,
    Small,
    Z,
    floats,
    ints,
    octets,
    scalar,
    small,
    vector,
)
from tests.ops.microsoft.small_nodes_attention import ATTENTION, LAYERS
from tests.ops.microsoft.small_nodes_quantized import IN_BLOCKS, QUANTIZED_NODES

# The operators without a node here.
ABSENT: Mapping[str, str] = {
    "it runs subgraphs that choose tokens": """
        BeamSearch GreedySearch Sampling WhisperBeamSearch""",
    "its own tests build pages and tables": """
        PackedSparseAttentionIndexer SparseAttentionIndexer SparsePagedAttention""",
}
OTHERS: tuple[Small, ...] = (
    # Activations and elementwise operators.
    small("Gelu", floats(3, 4)),
    small("BiasGelu", floats(3, 4), floats(4, seed=1)),
    small("FastGelu", floats(3, 4), floats(4, seed=1)),
    small("QuickGelu", floats(3, 4)),
    small("ScaledSiLU", floats(3, 4), scalar(0.5)),
    small("BiasSplitGelu", floats(2, 3, 8), floats(8, seed=1)),
    small("BiasAdd", floats(2, 3, 4), floats(4), floats(2, 3, 4, seed=1)),
    small("BiasSoftmax", floats(2, 3, 4), floats(1, 3, 4, seed=1), axis=2, is_inner_broadcast=0),
    small("BiasDropout", floats(3, 4), floats(4), floats(3, 4, seed=1), scalar(0.5), outputs=2),
    small("BitmaskDropout", floats(3, 4), outputs=2),
    small("BitmaskBiasDropout", floats(3, 4), floats(4), floats(3, 4, seed=1), outputs=2),
    small("GatedAdd", floats(2, 3, 4), floats(2, 3, 4, seed=1), floats(2, 3, 1, seed=2)),
    small("ComplexMul", floats(3, 2), floats(3, 2, seed=1)),
    small("ComplexMulConj", floats(3, 2), floats(3, 2, seed=1)),
    small("IsAllFinite", floats(3, 4), floats(2, seed=1)),
    small("SampleOp", floats(3, 4)),
    # Products.
    small("FusedMatMul", floats(2, 3, 4), floats(5, 4, seed=1), transB=1, alpha=0.5),
    small("TransposeMatMul", floats(2, 3, 4), floats(5, 4, seed=1), transB=1),
    small("FusedMatMulActivation", floats(3, 4), floats(4, 5, seed=1), activation="Tanh"),
    small("FusedGemm", floats(3, 4), floats(4, 5, seed=1), floats(5), activation="Sigmoid"),
    small("GemmFastGelu", floats(2, 3, 4), floats(4, 5, seed=1), floats(5)),
    small("GemmFloat8", floats(3, 4), floats(4, 5, seed=1), floats(5), beta=1.0),
    small("SparseToDenseMatMul", floats(3, 4), floats(4, 5, seed=1)),
    small("Inverse", floats(2, 3, 3) + 3 * np.eye(3, dtype=np.float32)),
    small("CDist", floats(3, 4), floats(5, 4, seed=1), metric="euclidean"),
    small("MatMulNBits", floats(2, 32), PACKED, floats(3, 2), **NBITS, weights=[1]),
    small("MatMulBnb4", floats(2, 32), octets(48), floats(6), **NBITS, quant_type=1, weights=[1]),
    small(
        "MatMulFpQ4",
        floats(2, 32),
        octets(60),
        vector(32, 3, dtype=np.int64),
        blk_quant_type=0,
        weights=[1, 2],
    ),
    small(
        "MatMulNBitsMlp",
        *(floats(2, 32), None, None, PACKED, floats(3, 2), None, PACKED, floats(3, 2, seed=1)),
        **NBITS,
        activation="silu",
    ),
    small(
        "MatMulNBitsQkv",
        *(floats(2, 32), None, floats(32, low=0.5)),
        *(PACKED, floats(3, 2), None, PACKED, floats(3, 2, seed=1), None, PACKED, floats(3, 2)),
        K=32,
        Nq=3,
        Nkv=3,
        block_size=16,
        outputs=3,
    ),
    small("MatMulIntegerToFloat", octets(2, 4), octets(4, 3), S, S, Z, Z, floats(3)),
    small("DynamicQuantizeMatMul", floats(2, 4), octets(4, 3), S, Z, floats(3)),
    small("MatMulInteger16", ints(2, 4, dtype=np.int16), ints(4, 3, dtype=np.int16)),
    small("MulInteger", octets(2, 3), Z, octets(3), Z),
    small("QGemm", octets(2, 4), S, Z, octets(4, 3), S, Z, ints(3), S, Z),
    # Normalizations.
    small("SkipLayerNormalization", floats(2, 3, 4), floats(3, 4, seed=1), floats(4), outputs=4),
    small(
        "SkipSimplifiedLayerNormalization",
        *(floats(2, 3, 4), floats(3, 4, seed=1), floats(4), floats(4, seed=2)),
        outputs=4,
    ),
    small(
        "EmbedLayerNormalization",
        *(ints(2, 4), ints(2, 4, high=2), floats(5, 8), floats(6, 8, seed=1), floats(2, 8)),
        *(floats(8), floats(8, seed=2), ints(2, 4, high=2)),
        outputs=3,
    ),
    small(
        "QEmbedLayerNormalization",
        *(ints(2, 4), ints(2, 4, high=2), octets(5, 8), octets(6, 8), octets(2, 8), octets(8)),
        *(octets(8), None, *[S] * 5, *[Z] * 5),
        outputs=2,
    ),
    small("GroupNorm", floats(2, 3, 3, 4), floats(4), floats(4, seed=1), groups=2, activation=1),
    small(
        "SkipGroupNorm",
        *(floats(2, 3, 3, 4), floats(4), floats(4, seed=1), floats(2, 3, 3, 4, seed=2)),
        groups=2,
        activation=0,
        outputs=2,
    ),
    small("GatedRMSNorm", floats(2, 3, 4), floats(4), floats(2, 3, 4, seed=1)),
    small("BranchwiseRMSNorm", floats(2, 3, 8), floats(8), num_branches=2),
    # Convolutions and images.
    small(
        "FusedConv", floats(1, 2, 5, 5), floats(3, 2, 3, 3), floats(3), activation="Relu", **CONV
    ),
    small("NhwcConv", floats(1, 5, 5, 2), floats(3, 2, 3, 3), floats(3), **CONV),
    small("NhwcFusedConv", floats(1, 5, 5, 2), floats(3, 2, 3, 3), activation="Tanh", **CONV),
    small(
        "ConvTransposeWithDynamicPads",
        *(floats(1, 2, 5, 5), floats(2, 3, 3, 3), vector(1, 1, 1, 1, dtype=np.int64)),
        weights=[2],
    ),
    small("CausalConvWithState", floats(2, 3, 5), floats(3, 1, 3), floats(3), outputs=2),
    small(
        "VarlenCausalConvWithState",
        *(floats(7, 3), floats(3, 1, 3), vector(0, 3, 7), floats(3), floats(2, 3, 2)),
        outputs=2,
        weights=[2],
    ),
    small("NhwcMaxPool", octets(1, 5, 5, 2), kernel_shape=[2, 2]),
    small("MaxpoolWithMask", floats(1, 2, 4, 4), ints(1, 2, 4, 4, low=1), kernel_shape=[2, 2]),
    small("GridSample", floats(1, 2, 4, 4), floats(1, 3, 3, 2, low=-0.9, high=0.9)),
    small(
        "CropAndResize",
        floats(1, 2, 5, 5),
        np.float32([[0.11, 0.12, 0.83, 0.94]]),
        *(vector(0), vector(2, 3)),
        weights=[3],
    ),
    # Layout.
    small("Pad", floats(2, 3), vector(1, 0, 0, 1, dtype=np.int64), scalar(0.5), weights=[1]),
    small("ExpandDims", floats(2, 3), scalar(1, np.int32), weights=[1]),
    small("GatherND", floats(2, 3), ints(2, 2, high=2, dtype=np.int64)),
    small("Trilu", floats(2, 3, 3)),
    small("UnfoldTensor", floats(2, 6), size=3, step=2),
    small("Unique", floats(5), outputs=3),
    small("Range", scalar(0.0), scalar(4.0), scalar(1.0), weights=[0, 1, 2]),
    small("RemovePadding", floats(2, 4, 3), vector(2, 4), outputs=4),
    small("RestorePadding", floats(6, 3), vector([0, 1, 4, 5], [6, 7, 2, 3]), weights=[1]),
    small("TorchEmbedding", floats(5, 3), ints(2, 2, dtype=np.int64)),
    # Signals and texts.
    small("Rfft", floats(2, 8), signal_ndim=1),
    small("Irfft", floats(2, 5, 2), signal_ndim=1),
    small("DynamicTimeWarping", floats(4, 5)),
    small("MurmurHash3", ints(5)),
    small(
        "Tokenizer",
        np.array(["a b", "c"], object),
        mark=0,
        mincharnum=1,
        pad_value="#",
        separators=[" "],
    ),
    small("NGramRepeatBlock", ints(2, 5, dtype=np.int64), floats(2, 4), ngram_size=2),
    small(
        "BifurcationDetector",
        *(ints(6, dtype=np.int64), ints(4, dtype=np.int64), scalar(0, np.int64)),
        outputs=2,
    ),
    small(
        "NGramHashMapping",
        *(ints(2, 5, dtype=np.int64), vector(3, 5, dtype=np.int64), vector(7, 11, dtype=np.int64)),
        max_ngram_size=2,
        n_head_per_ngram=2,
        pad_id=0,
    ),
    small(
        "VarlenNGramHashMapping",
        *(ints(7, dtype=np.int64), vector(3, 5, dtype=np.int64), vector(7, 11, dtype=np.int64)),
        vector(0, 3, 7),
        max_ngram_size=2,
        n_head_per_ngram=2,
        pad_id=0,
        weights=[3],
    ),
    small(
        "WordConvEmbedding",
        *(ints(2, 6, low=1), floats(3, 1, 2, 4), floats(3), floats(5, 4)),
        conv_window_size=2,
        embedding_size=3,
        char_embedding_size=4,
    ),
)

NODES = (*OTHERS, *ATTENTION, *LAYERS, *QUANTIZED_NODES, *IN_BLOCKS)
BY_NAME = {each.op: each for each in NODES}
