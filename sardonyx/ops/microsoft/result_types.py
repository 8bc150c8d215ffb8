"""Rules for the results whose types follow from attributes, or from inputs that a node may lack.

The types of all other results follow from the rows of `types.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from sardonyx.ops.definition import DType
from sardonyx.ops.dtypes import FLOAT32, INT32
from sardonyx.ops.microsoft.decoder_attention import DecoderMaskedMultiHeadAttention
from sardonyx.ops.microsoft.hashing import MurmurHash3
from sardonyx.ops.microsoft.image import GridSample
from sardonyx.ops.microsoft.linear_attention import LinearAttention
from sardonyx.ops.microsoft.matmul_float8 import GemmFloat8
from sardonyx.ops.microsoft.multi_head_attention import MultiHeadAttention
from sardonyx.ops.microsoft.normalization import SimplifiedLayerNormalization
from sardonyx.ops.microsoft.quantized_pooling import ReduceSumInteger
from sardonyx.ops.microsoft.quantized_products import MatMulInteger16, QGemm
from sardonyx.ops.normalization import LayerNormalization

DTypes: TypeAlias = Sequence[DType | None]
UINT32 = np.dtype(np.uint32)
# The numbers of the types that products of float8 may have.
_PRODUCTS = {
    1: FLOAT32,
    10: np.dtype(np.float16),
    16: np.dtype(ml_dtypes.bfloat16),
    17: np.dtype(ml_dtypes.float8_e4m3fn),
    19: np.dtype(ml_dtypes.float8_e5m2),
}

# -- by their inputs ------------------------------------------------------------------------------


@MultiHeadAttention.infers()
@DecoderMaskedMultiHeadAttention.infers()
@GridSample.infers()
def _infer_first(dtypes: DTypes, outputs: int, **attributes: Any) -> DTypes:
    return [dtypes[0]] * outputs


@LinearAttention.infers()
def _infer_state(dtypes: DTypes, outputs: int, **attributes: Any) -> DTypes:
    return [dtypes[0], dtypes[3] if len(dtypes) > 3 else dtypes[0]]


@MatMulInteger16.infers()
@ReduceSumInteger.infers()
def _infer_sum(dtypes: DTypes, outputs: int, **attributes: Any) -> DTypes:
    """Sums have a sign if one of their terms has one."""
    known = [dtype for dtype in dtypes if dtype is not None]
    if any(dtype.kind == "i" for dtype in known):
        return [INT32]
    return [UINT32 if len(known) == len(dtypes) else None]


@QGemm.infers()
def _infer_gemm(dtypes: DTypes, outputs: int, **attributes: Any) -> DTypes:
    """Without a scale of the result, which would be the eighth input, it is float32."""
    return [FLOAT32] if len(dtypes) < 8 else dtypes[8:9]


# -- by their attributes --------------------------------------------------------------------------


@MurmurHash3.infers()
def _infer_hash(dtypes: DTypes, outputs: int, *, positive: int = 1, seed: int = 0) -> DTypes:
    return [UINT32 if positive else INT32]


@GemmFloat8.infers()
def _infer_product(dtypes: DTypes, outputs: int, *, dtype: int = 1, **attributes: Any) -> DTypes:
    """The type is the attribute's, whatever the factors are."""
    return [_PRODUCTS.get(dtype)]


@LayerNormalization.infers(before=17)
@SimplifiedLayerNormalization.infers()
def _infer_statistics(
    dtypes: DTypes, outputs: int, *, stash_type: int = 1, **attributes: Any
) -> DTypes:
    """The first result has the type of the scale, which the schema says."""
    stash = FLOAT32 if stash_type == 1 else None
    return [None, stash, stash]
