"""The types of onnxruntime's operators, as its schemas have them; the standard has no schemas.

A row reads like a function's type: the types of the inputs, an arrow, those of the results. A name
in capitals is a variable, which stands for one type throughout; what it may stand for follows. The
last input may repeat, which dots say, and each repetition may be of another type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

# Names for several types.
_GROUPS: Mapping[str, tuple[str, ...]] = {
    "halves": ("bfloat16", "float16"),
    "floats": ("float", "double", "bfloat16", "float16"),
    "bytes": ("int8", "uint8"),
    "indices": ("int32", "int64"),
    "integers": ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    "any": (
        *("bool", "string", "complex64", "complex128", "float", "double", "float16"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    ),
    "sparse": (
        *("sparse_float", "sparse_double", "sparse_int32", "sparse_int64"),
        *("sparse_uint32", "sparse_uint64"),
    ),
}

# By name: no two domains of onnxruntime have an operator of one name that the standard lacks.
_ROWS: Mapping[str, str] = {
    # The default domain
    "Affine": "T -> T, T=float|float16|double",
    "Crop": "T -> T, T=float|float16|double",
    "DynamicSlice": "T Tind Tind Tind -> T, T=any Tind=indices",
    "ImageScaler": "T -> T, T=float|float16|double",
    "LayerNormalization": "floats V V -> V U U, U=float|double V=floats",
    "MeanVarianceNormalization": "T -> T, T=float|float16|double",
    "ParametricSoftplus": "T -> T, T=float|float16|double",
    "Scale": "T -> T, T=float|float16|double",
    "ScaledTanh": "T -> T, T=float|float16|double",
    "SimplifiedLayerNormalization": "floats V -> V float|double, V=floats",
    "ThresholdedRelu": "T -> T, T=float|float16|double",
    # com.microsoft
    "Attention": "T T T int32 T T int32 -> T T, T=float|halves",
    "AttnLSTM": "T T T T int32 T T T T T T T int32 T -> T T T, T=float|double",
    "BeamSearch": (
        "float|int32|float16 int32 int32 int32 int32 T T int32 int32 int32 int32 int32 -> "
        "int32 T T, T=float|float16"
    ),
    "BiasAdd": "T T T -> T, T=float|float16",
    "BiasDropout": "T T T floats bool -> T bool, T=floats",
    "BiasGelu": "T T -> T, T=floats",
    "BiasSoftmax": "T T -> T, T=float|float16|double",
    "BiasSplitGelu": "T T -> T, T=float|float16",
    "BifurcationDetector": "int64 int64 int64 int64 -> int64 int64",
    "BitmaskBiasDropout": "T T T floats bool -> T uint32, T=floats",
    "BitmaskDropout": "T floats bool -> T uint32, T=floats",
    "BranchwiseRMSNorm": "T float|halves -> T, T=float|halves",
    "CDist": "T T -> T, T=float|double",
    "CausalConvWithState": "T T T T -> T T, T=float|halves",
    "ComplexMul": "T T -> T, T=float|float16|double",
    "ComplexMulConj": "T T -> T, T=float|float16|double",
    "ConvTransposeWithDynamicPads": "T T int64 T -> T, T=float|float16|double",
    "CropAndResize": "T1 T1 int32 int32 -> T1, T1=float|float16|double",
    "DecoderAttention": "T T T T T bool T T bool bool bool bool -> T T T, T=float|float16",
    "DecoderMaskedMultiHeadAttention": (
        "T T T int32 T T T int32 int32 int32 T -> T T T float|float16, T=float|float16"
    ),
    "DecoderMaskedSelfAttention": "T T T int32 T T int32 int32 int32 -> T T, T=float|float16",
    "DequantizeLinear": "T1 T2 T1 -> T2, T1=bytes|int32|int16|uint16|int4|uint4 T2=float|float16",
    "DequantizeWithOrder": "int8 float -> float|float16",
    "DynamicQuantizeLSTM": (
        "float T2 T2 float int32 float float float float T2 float T2 -> float float float, T2=bytes"
    ),
    "DynamicQuantizeMatMul": "float T2 float T2 float -> float, T2=bytes",
    "DynamicSparseAttention": (
        "T T T T T T T int32 int32 int32 int32 T T int64 T T T -> T T T, T=float|halves"
    ),
    "DynamicTimeWarping": "float -> int32",
    "EmbedLayerNormalization": "int32 int32 T T T T T int32 int32 -> T int32 T, T=float|float16",
    "EngramGate": "T T T T T T -> T T, T=float|halves",
    "ExpandDims": "T int32 -> T, T=any",
    "FastGelu": "T T -> T, T=floats",
    "FusedConv": "T T T T -> T, T=float|float16|double",
    "FusedGemm": "T T T -> T, T=float|indices|float16|double|uint32|uint64",
    "FusedMatMul": "T T -> T, T=floats",
    "FusedMatMulActivation": "T T -> T, T=floats",
    "GatedAdd": "T T T -> T, T=float|halves",
    "GatedDeltaNet": (
        "T T T int32 float float float float float int32 int32 -> T float float, T=float|halves"
    ),
    "GatedRMSNorm": "T T T -> T, T=float|halves",
    "GatedRelativePositionBias": "T T T T T T int32 -> T, T=float|float16",
    "GatherBlockQuantized": (
        "T1 indices T2 T1 -> T2, "
        "T1=uint8|float4e2m1|float8e4m3fn|float8e4m3fnuz|float8e5m2|float8e5m2fnuz|int4|uint4 "
        "T2=float|halves"
    ),
    "GatherND": "T indices -> T, T=any",
    "Gelu": "T -> T, T=floats",
    "GemmFastGelu": "T T T -> T, T=float|halves",
    "GemmFloat8": (
        "float|halves|float8e4m3fn|float8e5m2 float|halves|float8e4m3fn|float8e5m2 "
        "float|halves float float float -> float|halves|float8e4m3fn|float8e5m2"
    ),
    "GemmaRotaryEmbedding": "float float16 float16 float16 float16 -> float16 float16",
    "GreedySearch": "int32 int32 int32 float int32 int32 int32 -> int32",
    "GridSample": "T1 T1 -> float|float16|double, T1=any",
    "GroupNorm": "T M M -> T, T=float|float16 M=float|float16",
    "GroupQueryAttention": (
        "T T T T_CACHE T_CACHE int32 int32 T T int64 T T float float T T -> T T_CACHE "
        "T_CACHE T, T=float|halves T_CACHE=float|halves|bytes|float8e4m3fn"
    ),
    "HyperConnectionPostMix": "T T M M -> T, T=float|halves M=float|halves",
    "HyperConnectionPreMix": "T float|halves -> T, T=float|halves",
    "Inverse": "T -> T, T=float|float16|double",
    "Irfft": "T -> T, T=float|float16|double",
    "IsAllFinite": "floats... -> bool",
    "LinearAttention": "T T T S T T -> T S, T=float|halves S=float|halves",
    "LinearAttentionGate": "T float float T -> T T, T=float|halves",
    "LongformerAttention": "T T T T T T int32 -> T, T=float|float16",
    "MRotaryEmbedding": "T int64 T T -> T, T=float|halves",
    "MatMulBlockQuantizedFp4Weight": "T uint8 uint8 float float T -> T, T=halves",
    "MatMulBlockQuantizedFp8Weight": "T float8e4m3fn float float T -> T, T=halves",
    "MatMulBnb4": "T1 uint8 T1 -> T1, T1=float|halves",
    "MatMulFpQ4": "float uint8 int64 -> float",
    "MatMulInteger16": "int16|uint16 int16|uint16 -> int32|uint32",
    "MatMulIntegerToFloat": "T1 T2 T3 T3 T1 T2 T3 -> T3, T1=bytes T2=bytes T3=float|float16",
    "MatMulNBits": "T1 uint8 T1 float|halves|uint8 int32 T1 -> T1, T1=float|halves",
    "MatMulNBitsMlp": "T1 T1 T1 uint8 T1 T1 uint8 T1 T1 -> T1 T1, T1=float|halves",
    "MatMulNBitsQkv": (
        "T1 T1 T1 uint8 T1 T1 uint8 T1 T1 uint8 T1 T1 -> T1 T1 T1 T1, T1=float|halves"
    ),
    "MaxpoolWithMask": "float int32 -> float",
    "MoE": "T T T T T T T T -> T, T=float|halves",
    "MulInteger": "T T T T -> int32, T=bytes",
    "MultiHeadAttention": "T T T T int32 T T T int32 int32 -> T T T float|halves, T=float|halves",
    "MurmurHash3": "float|indices|double|uint32|uint64|string -> int32|uint32",
    "NGramHashMapping": "M M M M M M int32 -> M M, M=indices",
    "NGramRepeatBlock": "int64 float -> float",
    "NhwcConv": "T T T -> T, T=float|float16|double",
    "NhwcFusedConv": "T T T T -> T, T=float|float16",
    "NhwcMaxPool": "T -> T, T=bytes",
    "PackedAttention": "T T T int32 int32 T -> T, T=float|float16",
    "PackedMultiHeadAttention": "T T T T int32 int32 T -> T, T=float|float16",
    "PackedSparseAttentionIndexer": (
        "T T T T T T int32 int32 T T T int64 T T T int32 int32 int32 -> int32 int32 T T T int32 T, "
        "T=float|halves"
    ),
    "Pad": "T int64 T -> T, T=float|float16|double",
    "PagedAttention": (
        "T T T T_CACHE T_CACHE int32 int32 int32 T T int32 T T T float float int32 -> T "
        "T_CACHE T_CACHE, T=halves T_CACHE=halves|bytes|float8e4m3fn"
    ),
    "QAttention": "T1 T2 T3 T3 T3 int32 T1 T2 T3 -> T3 T3, T1=bytes T2=bytes T3=float|float16",
    "QEmbedLayerNormalization": (
        "int32 int32 T2 T2 T2 T2 T2 int32 float float float float float T2 T2 T2 T2 T2 -> "
        "float int32, T2=bytes"
    ),
    "QGemm": "TA float TA TB float TB int32 float bytes -> float|bytes, TA=bytes TB=bytes",
    "QLinearAdd": "T float T T float T float T -> T, T=bytes",
    "QLinearAveragePool": "T float T float T -> T, T=bytes",
    "QLinearConcat": "float T8 float|bytes... -> T8, T8=bytes",
    "QLinearConv": "T1 float T1 T2 float T2 float T3 int32 -> T3, T1=bytes T2=bytes T3=bytes",
    "QLinearGlobalAveragePool": "T float T float T -> T, T=bytes",
    "QLinearLeakyRelu": "T float T float T -> T, T=bytes",
    "QLinearMul": "T float T T float T float T -> T, T=bytes",
    "QLinearReduceMean": "T float T float T -> T, T=bytes",
    "QLinearSigmoid": "T float T float T -> T, T=bytes",
    "QLinearSoftmax": "T float T float T -> T, T=bytes",
    "QLinearWhere": "bool T float T T float T float T -> T, T=bytes",
    "QMoE": (
        "T T T1 T2 T T1 T2 T T1 T2 T T1 T1 T1 T float float float float T2 T2 -> T, "
        "T=float|halves T1=uint8|float8e4m3fn T2=float|halves|float8e4m3fn|float8e8m0"
    ),
    "QOrderedGelu": "int8 float float -> int8",
    "QOrderedLayerNormalization": "int8 float F F float -> int8, F=float|float16",
    "QOrderedMatMul": "int8 float int8 float float float int8 float -> int8",
    "QuantizeLinear": "T1 T1 T2 -> T2, T1=float|float16 T2=bytes|int16|uint16|int4|uint4",
    "QuantizeWithOrder": "float|float16 float -> int8",
    "QuickGelu": "T -> T, T=floats",
    "Range": "T T T -> T, T=float|indices|double|int16",
    "ReduceSumInteger": "bytes -> int32|uint32",
    "RelativePositionBias": "T int64 int64 -> T, T=float|float16",
    "RemovePadding": "T int32 -> T int32 int32 int32, T=float|float16",
    "RestorePadding": "T int32 -> T, T=float|float16",
    "Rfft": "T -> T, T=float|float16|double",
    "RotaryEmbedding": "T int64 T T -> T, T=float|halves",
    "SampleOp": "T -> T, T=float|indices|float16|double|uint32|uint64",
    "Sampling": ("int32 int32 int32 float int32 int32 int32 int32 int32 -> int32 float"),
    "ScaledSiLU": "T float|halves -> T, T=float|halves",
    "SkipGroupNorm": "T M M T T -> T T, T=float|float16 M=float|float16",
    "SkipLayerNormalization": "T T T T T -> T float float T, T=float|halves",
    "SkipSimplifiedLayerNormalization": "T T T T -> T float float T, T=float|halves",
    "SparseAttention": "T T T T T int32 int32 int32 int32 T T -> T T T, T=float|halves",
    "SparseAttentionIndexer": (
        "T T T T T T int64 T T T T int64 int32 T -> int32 T T, T=float|halves"
    ),
    "SparsePagedAttention": (
        "T T T C C int32 int32 int32 int32 int32 int32 T T int32 T T T T T float float int32 -> "
        "T C C, T=halves C=halves|int8"
    ),
    "SparseToDenseMatMul": (
        "sparse|float|double|indices|uint32|uint64 T -> T, T=float|double|indices|uint32|uint64"
    ),
    "Tokenizer": "string -> string",
    "TorchEmbedding": "T int64 int64 bool -> T, T=floats|integers",
    "TransposeMatMul": "T T -> T, T=floats",
    "Trilu": "T int64 -> T, T=floats|integers|bool",
    "UnfoldTensor": "T -> T, T=any|bfloat16",
    "Unique": "T -> T int64 int64, T=any",
    "VarlenCausalConvWithState": "T T int32 T T int32 -> T T T, T=float|halves",
    "VarlenNGramHashMapping": "M M M int32 M M M int32 int32 int32 -> M M int32 M, M=indices",
    "WhisperBeamSearch": (
        "float|int32|float16 int32 int32 int32 int32 T T int32 int32 int32 int32 int32 int32 int32 "
        "T -> int32 T T float T, T=float|float16"
    ),
    "WordConvEmbedding": "int32 float float float -> float",
    # com.microsoft.nchwc
    "AveragePool": "float -> float",
    "Conv": "float float float float -> float",
    "GlobalAveragePool": "float -> float",
    "GlobalMaxPool": "float -> float",
    "MaxPool": "float -> float",
    "ReorderInput": "float -> float",
    "ReorderOutput": "float -> float",
    "Upsample": "float -> float",
}


@dataclass(frozen=True, slots=True)
class Type:
    """The type of one input or result: its variable, or itself, and the types it stands for."""

    name: str
    allowed: frozenset[str]


@cache
def types_of(operator: str) -> tuple[tuple[Type, ...], tuple[Type, ...]] | None:
    """Return the types of an operator's inputs and results; None for an unknown operator.

    >>> inputs, results = types_of("QuantizeLinear")
    >>> [each.name for each in inputs], sorted(inputs[0].allowed)
    (['T1', 'T1', 'T2'], ['tensor(float)', 'tensor(float16)'])
    """
    row = _ROWS.get(operator)
    if row is None:
        return None
    arrow, _, constraints = row.partition(", ")
    variables = dict(each.split("=") for each in constraints.split())
    inputs, results = (
        tuple(_type(text, variables) for text in side.split()) for side in arrow.split(" -> ")
    )
    return inputs, results


def _type(text: str, variables: Mapping[str, str]) -> Type:
    text = text.removesuffix("...")
    names = (name for part in variables.get(text, text).split("|") for name in _members(part))
    split = (name.rpartition("sparse_") for name in names)
    allowed = frozenset(f"{sparse}tensor({element})" for _, sparse, element in split)
    # A type with no variable has a name that binds no other.
    return Type(text if text in variables else f"tensor({text})", allowed)


def _members(part: str) -> tuple[str, ...]:
    return _GROUPS.get(part, (part,))
