"""Which results every runtime must find to the last bit, and which operators need such values."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2

import ml_dtypes
import numpy as np

from sardonyx.graph.standard.types import DType
from tests.fuzz.graph import Array
from tests.fuzz.values import is_float, largest, wide


def names_in(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Each element of the result is an element of an input, or comes of one by a rule without rounding.
MOVES = names_in(
    "Reshape Transpose Slice Gather GatherElements GatherND Concat Split Squeeze Unsqueeze Flatten "
    "Expand Tile Pad Identity Where Compress Trilu DepthToSpace SpaceToDepth OneHot "
    "ReverseSequence Relu Abs Neg Max Min Clip ReduceMax ReduceMin MaxPool GlobalMaxPool Dropout "
    "EyeLike Constant ConstantOfShape Cast CastLike SequenceConstruct SequenceAt SequenceInsert "
    "SequenceErase SequenceEmpty SplitToSequence ConcatFromSequence Optional OptionalGetElement "
    "TensorScatter Scatter MaxUnpool CenterCropPad Floor Ceil Round "
    "Sign Hardmax TopK Unique"
)
# A small change of an input may change much; so only what is exact may enter.
STEPS = names_in(
    "Floor Ceil Round Sign Mod Hardmax TopK Unique ThresholdedRelu Shrink NonMaxSuppression "
    "ArgMax ArgMin IsNaN IsInf RoiAlign MaxRoiPool GridSample Resize Upsample OneHot Range "
    "BitShift Scaler Imputer Binarizer TreeEnsemble TreeEnsembleRegressor TreeEnsembleClassifier "
    "Normalizer FeatureVectorizer SVMClassifier SVMRegressor LinearClassifier QuantizeLinear "
    "DynamicQuantizeLinear DequantizeLinear MaxUnpool"
)
# Recurrent networks, whose gates one runtime may overflow in and another not.
GATED, MOST_OF_GATES = ("RNN", "GRU", "LSTM"), 50
# Which of the inputs they tell the sign of a zero of.
SIGNED = {"BitCast": 0, "Reciprocal": 0, "Div": 1, "Pow": 0}
# They read the shape alone.
SHAPED = frozenset(["Shape", "Size", "SequenceLength", "OptionalHasElement"])
SUMS = frozenset(["Add", "Sub", "Sum", "ReduceSum", "CumSum", "ReduceL1"])
PRODUCTS = frozenset(["Mul", "MatMul", "Conv", "ConvTranspose", "Einsum", "ReduceSumSquare"])


def is_exact(op: str, inputs: Sequence[Array], outputs: Sequence[Array]) -> bool:
    """Whether the results of exact inputs have no rounding in them."""
    if op in MOVES or not any(is_float(array.dtype) for array in outputs):
        return True
    floats = [array for array in inputs if is_float(array.dtype)]
    if op in SUMS:
        size = sum(max(largest(a), 0) * max(a.size, 1) for a in floats)
        return _fits(size, min((_quantum(a) for a in floats), default=1), outputs)
    if op in PRODUCTS:
        squared = floats * 2 if op == "ReduceSumSquare" else floats
        size = float(max((a.size for a in floats), default=1))
        quantum = 1.0
        for array in squared:
            size *= max(largest(array), 1)
            quantum *= min(_quantum(array), 1)
        return _fits(2 * size, quantum, outputs)
    return False


def _fits(size: float, quantum: float, outputs: Sequence[Array]) -> bool:
    """Whether all multiples of `quantum` up to `size` are numbers of the results' types."""
    bits = log2(size / quantum) if size else 0
    return all(bits <= mantissa(a.dtype) for a in outputs if is_float(a.dtype))


def mantissa(dtype: DType) -> int:
    return int(ml_dtypes.finfo(dtype).nmant)


def _quantum(array: Array) -> float:
    """The greatest power of two of which all elements are multiples; infinities aside."""
    values = wide(array)
    values = np.abs(values[np.isfinite(values) & (values != 0)])
    if not values.size:
        return 1.0
    fractions, exponents = np.frexp(values)
    whole = (fractions * 2.0**53).astype(np.int64)
    lowest = np.log2((whole & -whole).astype(np.float64)) + exponents - 53
    return float(2.0 ** max(np.min(lowest), -500))
