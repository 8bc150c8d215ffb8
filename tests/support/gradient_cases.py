"""One small node for each operator that has a gradient, and why the others have none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest

from tests.support.onnx_builders import BOOL, INT64, graph, node, value

ML, PREVIEW = "ai.onnx.ml", "ai.onnx.preview"


class Fixed(NamedTuple):
    """An input of floats of which no gradient is taken; it may keep its type for the oracle."""

    content: np.ndarray
    keeps_type: bool


class Case(NamedTuple):
    """One node. Gradients are taken for its inputs of float32; all others are constants."""

    op: str
    inputs: Sequence[Any]
    attributes: dict[str, Any]
    opset: int
    domain: str
    outputs: int
    # Whether the operator, and all that it makes, knows float64 too.
    wide: bool


def case(
    op: str,
    *inputs: Any,
    opset: int = 0,
    domain: str = "",
    outputs: int = 1,
    wide: bool = True,
    **attributes: Any,
) -> Any:
    opset = opset or onnx.defs.get_schema(op, domain).since_version
    told = [f"{k}={v}" for k, v in attributes.items() if isinstance(v, int | str)]
    one = Case(op, inputs, attributes, opset, domain, outputs, wide)
    return pytest.param(one, id="-".join([op, str(opset), *told]))


def x(*shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    """Numbers of which no two are nearly the same, so that a small step reorders none."""
    size = int(np.prod(shape))
    steps = (np.random.default_rng([seed, *shape]).permutation(size) + 0.37) / max(size, 1)
    return (low + (high - low) * steps).reshape(shape).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    return np.asarray(values, np.int64)


def fixed(*values: float, keeps_type: bool = False) -> Fixed:
    return Fixed(np.asarray(values, np.float32), keeps_type)


UNARY = {
    (-2.0, 2.0): (
        "Abs Asinh Atan Ceil Cos Cosh Elu Celu Erf Exp Floor Gelu HardSigmoid HardSwish Identity "
        "LeakyRelu Mish Neg Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Swish "
        "Tanh ThresholdedRelu Flatten"
    ),
    (-0.9, 0.9): "Acos Asin Atanh Tan",
    (1.1, 3.0): "Acosh Log Reciprocal Sqrt",
}
"""Operators of one input, by where they have a gradient."""

KINDS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
IMAGE, VOLUME, FILTERS = x(2, 4, 6, 5), x(1, 2, 4, 3, 3), x(6, 2, 3, 2, seed=1)
POSITIVE: dict[str, Any] = {"low": 0.5, "high": 2.0}
BY_GROUP: dict[str, Any] = {"group": 2, "strides": [2, 1], "pads": [1, 0, 2, 1]}
POINTS = x(2, 3, 4, 2, seed=2, low=-0.9, high=0.9)
BOXES = x(2, 4, low=0.4, high=4.1) + np.asarray([0, 0, 1.3, 1.4], np.float32)
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def recurrent(op: str, **attributes: Any) -> Any:
    """Two directions of three steps, the second sequence one step shorter."""
    sides = {"RNN": 1, "GRU": 1, "LSTM": 2}
    gates, states = GATES[op], [x(2, 2, 4, seed=i) for i in range(sides[op])]
    weights = [x(2, gates * 4, 3), x(2, gates * 4, 4), x(2, 2 * gates * 4)]
    peepholes = [x(2, 12)] if op == "LSTM" else []
    return case(
        op,
        x(3, 2, 3),
        *(0.5 * w for w in weights),
        np.asarray([3, 2], np.int32),
        *states,
        *peepholes,
        hidden_size=4,
        direction="bidirectional",
        outputs=1 + sides[op],
        **attributes,
    )


ELEMENTWISE = [
    *(
        case(op, x(3, 4, low=low, high=high))
        for (low, high), ops in UNARY.items()
        for op in ops.split()
    ),
    case("Gelu", x(3, 4), approximate="tanh"),
    case("Clip", x(3, 4), x(low=-1, high=-0.9), x(low=1, high=1.2)),
    case("PRelu", x(3, 4), x(4)),
    case("Dropout", x(3, 4)),
    case("SwiGLU", x(3, 4), x(3, 4, seed=1), alpha=1.5),
    case("Cast", x(3, 4), to=onnx.TensorProto.FLOAT, wide=False),
    case("CastLike", x(3, 4), fixed(1)),
    *(case(op, x(3, 4), x(4, seed=1)) for op in ("Add", "Sub", "Mul", "Max", "Min")),
    case("Div", x(3, 4), x(4, seed=1, **POSITIVE)),
    case("Mod", x(3, 4, low=-5, high=5), x(4, seed=1, **POSITIVE), fmod=1),
    case("Pow", x(3, 4, **POSITIVE), x(4, seed=1)),
    case("Pow", x(3, 4), ints(2)),
    *(case(op, x(3, 4), x(4, seed=1), x(1, seed=2)) for op in ("Sum", "Mean")),
    case("Where", np.arange(12).reshape(3, 4) % 3 > 0, x(3, 4), x(4, seed=1)),
]

REDUCTIONS = [
    *(case(f"Reduce{kind}", x(3, 4, 2, **POSITIVE), ints(0, 2), keepdims=0) for kind in KINDS),
    case("ReduceProd", np.asarray([[0, 2, 3], [0, 0, 3], [1, 2, 3]], np.float32), ints(1)),
    *(case(op, np.asarray([1, 1, 0.5, 1], np.float32)) for op in ("Softmax", "LogSoftmax")),
    *(case(op, x(3, 4), axis=0) for op in ("Softmax", "LogSoftmax", "Hardmax")),
    *(case(op, x(3, 4, 2), opset=11, axis=1) for op in ("Softmax", "LogSoftmax")),
    *(case(op, x(3, 4), ints(1), exclusive=1, reverse=1) for op in ("CumSum", "CumProd")),
    case("CumProd", np.asarray([0, 2, 0, 3], np.float32), ints(0)),
    case("LpNormalization", x(3, 4)),
    case("LpNormalization", x(3, 4), p=1),
    case("TopK", x(3, 4), ints(2), outputs=2),
    case("Einsum", x(3, 4), x(4, 3), equation="ij,ji->i"),
]

LAYOUT = [
    case("AffineGrid", x(2, 2, 3), ints(2, 1, 3, 4)),
    case("CenterCropPad", x(3, 4), ints(5, 2)),
    case("Col2Im", x(1, 8, 4), ints(3, 3), ints(2, 2)),
    case("Concat", x(3, 4), x(2, 4, seed=1), axis=0),
    case("DepthToSpace", x(1, 8, 2, 3), blocksize=2),
    case("Expand", x(3, 1), ints(2, 1, 4)),
    case("Gather", x(3, 4), ints(0, -1, 0)),
    case("GatherElements", x(3, 4), ints(0, -1, 0, 1).reshape(1, 4)),
    case("GatherND", x(3, 4), ints(0, -1, 2, 1, 0, 3).reshape(3, 2)),
    case("OneHot", ints(0, 2), ints(3), x(2)),
    case("Pad", x(3, 4), ints(1, 0, 0, 2), x()),
    case("Pad", x(3, 4), ints(1, -1, 0, 2), mode="reflect"),
    case("Reshape", x(3, 4), ints(2, -1)),
    case("ReverseSequence", x(3, 4), ints(3, 1, 2, 3)),
    case("Scatter", x(3, 4), ints(2, 0).reshape(1, 2), x(1, 2, seed=1), opset=9),
    case("ScatterElements", x(3, 4), ints(2, -3).reshape(1, 2), x(1, 2, seed=1)),
    *(
        case(
            "ScatterElements",
            x(3, 4),
            ints(2, 0, 2, 0).reshape(2, 2),
            x(2, 2, seed=1),
            reduction=reduction,
        )
        for reduction in ("add", "mul", "max", "min")
    ),
    case("ScatterND", x(3, 4), ints(2, 0).reshape(2, 1), x(2, 4, seed=1)),
    *(
        case(
            "ScatterND", x(3, 4), ints(2, 0, 2).reshape(3, 1), x(3, 4, seed=1), reduction=reduction
        )
        for reduction in ("add", "mul", "max", "min")
    ),
    case("Slice", x(3, 4), ints(-1, 0), ints(-9, 4), ints(0, 1), ints(-2, 3)),
    case("SpaceToDepth", x(1, 2, 4, 6), blocksize=2),
    case("Split", x(5, 4), ints(2, 3), outputs=2),
    case("Squeeze", x(3, 1, 4)),
    case("TensorScatter", x(2, 1, 5, 3), x(2, 1, 2, 3, seed=1), ints(3, 0)),
    case("Tile", x(3, 4), ints(2, 1)),
    case("Transpose", x(3, 4)),
    case("Trilu", x(3, 4), ints(1).reshape(())),
    case("Unsqueeze", x(3, 4), ints(1)),
]

PRODUCTS = [
    case("MatMul", x(2, 3, 4), x(4, 5)),
    case("MatMul", x(4), x(2, 4, 5)),
    case("Gemm", x(3, 4), x(5, 4), x(5), transB=1, alpha=0.5, beta=2.0),
    case("Det", x(2, 3, 3)),
    case("DFT", x(2, 6, 1), outputs=1, axis=1, opset=17),
    case("DFT", x(2, 4, 2), None, ints(1).reshape(()), onesided=0, inverse=1),
    case("STFT", x(1, 16, 1), ints(4).reshape(()), x(8)),
    case(
        "DequantizeLinear", np.arange(-6, 6, dtype=np.int8).reshape(3, 4), x(4), axis=1, wide=False
    ),
]

WINDOWS = [
    case("Conv", IMAGE, FILTERS, x(6), **BY_GROUP),
    case("Conv", VOLUME, x(2, 2, 2, 2, 1), dilations=[1, 2, 1], auto_pad="SAME_UPPER"),
    case("ConvTranspose", IMAGE, x(4, 3, 3, 2), x(6), **BY_GROUP),
    case(
        "DeformConv",
        x(1, 2, 4, 4),
        x(2, 2, 2, 2),
        x(1, 8, 3, 3, low=-0.4, high=0.4),
        x(2),
        x(1, 4, 3, 3),
    ),
    case("AveragePool", IMAGE, kernel_shape=[3, 2], pads=[1, 0, 1, 1], strides=[2, 1]),
    case("AveragePool", IMAGE, kernel_shape=[3, 2], ceil_mode=1, dilations=[2, 1]),
    case("MaxPool", IMAGE, kernel_shape=[3, 2], pads=[1, 0, 1, 1], strides=[2, 1]),
    case("MaxPool", IMAGE, kernel_shape=[2, 2], dilations=[2, 1], outputs=2),
    case(
        "MaxUnpool",
        x(1, 1, 2, 2),
        ints(5, 7, 13, 10).reshape(1, 1, 2, 2),
        kernel_shape=[2, 2],
        strides=[2, 2],
    ),
    case("LpPool", IMAGE, kernel_shape=[3, 2], p=3),
    *(case(f"Global{kind}Pool", IMAGE) for kind in ("Average", "Max", "Lp")),
    *(
        case(
            "RoiAlign",
            x(2, 2, 6, 6),
            BOXES,
            ints(0, 1),
            mode=mode,
            output_height=2,
            output_width=3,
            sampling_ratio=2,
        )
        for mode in ("avg", "max")
    ),
    *(
        case(
            "Resize",
            x(1, 1, 4, 5),
            None,
            fixed(1, 1, 1.7, 0.6, keeps_type=True),
            mode=mode,
            antialias=antialias,
        )
        for mode, antialias in (("nearest", 0), ("linear", 0), ("cubic", 0), ("cubic", 1))
    ),
    case("Upsample", x(1, 1, 2, 2), fixed(1, 1, 2, 3, keeps_type=True), mode="linear", opset=9),
    *(
        case("GridSample", x(2, 1, 4, 5), POINTS, mode=mode, padding_mode=padding)
        for mode in ("linear", "cubic", "nearest")
        for padding in ("zeros", "border", "reflection")
    ),
    case("GridSample", VOLUME, x(1, 2, 2, 2, 3, low=-0.8, high=0.8)),
]

NORMALISATIONS = [
    case("BatchNormalization", IMAGE, x(4), x(4), x(4), x(4, **POSITIVE)),
    case(
        "BatchNormalization", IMAGE, x(4), x(4), x(4), x(4, **POSITIVE), training_mode=1, outputs=3
    ),
    case("GroupNormalization", IMAGE, x(4), x(4), num_groups=2),
    case("InstanceNormalization", IMAGE, x(4), x(4)),
    case("LayerNormalization", IMAGE, x(6, 5), x(5), axis=2),
    case("RMSNormalization", IMAGE, x(5)),
    case("MeanVarianceNormalization", IMAGE),
    case("LRN", IMAGE, size=3),
]

SEQUENCES = [
    *(recurrent(op) for op in GATES),
    recurrent("GRU", linear_before_reset=1),
    recurrent("LSTM", clip=0.9, input_forget=1),
    case(
        "RotaryEmbedding",
        x(1, 2, 3, 4),
        x(5, 2),
        x(5, 2),
        ints(4, 0, 2).reshape(1, 3),
        interleaved=1,
        wide=False,
    ),
    case(
        "CausalConvWithState",
        x(2, 3, 5),
        x(3, 1, 3),
        x(3),
        x(2, 3, 2),
        activation="silu",
        outputs=2,
        wide=False,
    ),
    case(
        "LinearAttention",
        x(1, 5, 8),
        x(1, 5, 2),
        x(1, 5, 3),
        x(1, 1, 2, 3),
        x(1, 5, 2, low=-2, high=0),
        x(1, 5, 1, low=0, high=1),
        q_num_heads=4,
        kv_num_heads=1,
        outputs=2,
        wide=False,
    ),
    case(
        "Attention",
        x(1, 4, 3, 4),
        x(1, 2, 5, 4),
        x(1, 2, 5, 3),
        x(3, 7),
        x(1, 2, 2, 4),
        x(1, 2, 2, 3),
        is_causal=1,
        softcap=1.5,
        outputs=4,
    ),
    case("Attention", x(1, 1, 3, 4), x(1, 1, 5, 4), x(1, 1, 5, 3), np.arange(15).reshape(3, 5) > 7),
    case(
        "FlexAttention",
        x(1, 4, 3, 4),
        x(1, 2, 5, 4),
        x(1, 2, 5, 3),
        domain=PREVIEW,
        score_mod=graph([node("Sin", ["s"], ["t"])], ["s"], ["t"]),
    ),
]

LOSSES = [
    case("NegativeLogLikelihoodLoss", x(3, 4), ints(1, 0, 3), x(4, **POSITIVE)),
    case(
        "SoftmaxCrossEntropyLoss",
        x(3, 4),
        ints(1, 0, 3),
        x(4, **POSITIVE),
        outputs=2,
        ignore_index=0,
    ),
]

AGAIN = [value("going", (), BOOL), value("v", None)]
CONTROL = [
    case(
        "Loop",
        ints(3).reshape(()),
        None,
        x(4, low=-0.9, high=0.9),
        body=graph(
            [node("Identity", ["on"], ["going"]), node("Sin", ["state"], ["v"])],
            [value("i", (), INT64), value("on", (), BOOL), "state"],
            AGAIN,
        ),
    ),
    case(
        "Scan",
        x(2),
        x(5, 2, seed=1),
        num_scan_inputs=1,
        outputs=2,
        body=graph(
            [node("Mul", ["state", "one"], ["made"]), node("Sin", ["made"], ["next"])],
            ["state", "one"],
            ["next", "made"],
        ),
    ),
]

LEARNT: dict[str, Any] = {"domain": ML, "wide": False}
MACHINE = {"coefficients": [0.5, -1.0, 0.25, 2.0], "support_vectors": [0.5, 1, -1, 0, 1, 1, 0, -1]}
LEARNING = [
    case("ArrayFeatureExtractor", x(3, 4), ints(3, 0), **LEARNT),
    case("FeatureVectorizer", x(3, 2), x(3, 3), inputdimensions=[2, 3], **LEARNT),
    case("Imputer", x(3, 2), imputed_value_floats=[1.0], replaced_value_float=9.0, **LEARNT),
    case("LinearRegressor", x(3, 2), coefficients=[0.5, -1.0], intercepts=[1.0], **LEARNT),
    *(case("Normalizer", x(3, 4), norm=norm, **LEARNT) for norm in ("MAX", "L1", "L2")),
    case("Scaler", x(3, 2), offset=[1.0, 2.0], scale=[0.5, 2.0], **LEARNT),
    *(
        case(
            "SVMRegressor",
            x(3, 2),
            kernel_type=kernel,
            kernel_params=[0.3, 0.1, 2.0],
            n_supports=4,
            rho=[0.5],
            **MACHINE,
            **LEARNT,
        )
        for kernel in ("LINEAR", "POLY", "RBF", "SIGMOID")
    ),
    *(
        case(
            "LinearClassifier",
            x(3, 2),
            coefficients=[0.5, -1.0, 1.0, 0.5, -0.3, 1.0],
            intercepts=[0.0, 0.5, 1.0],
            classlabels_ints=[0, 1, 2],
            post_transform=after,
            outputs=2,
            **LEARNT,
        )
        for after in ("NONE", "SOFTMAX", "LOGISTIC")
    ),
]

# The experiments of early ONNX that onnxruntime runs.
EXPERIMENTS = [
    case("Affine", x(3, 4), opset=7, alpha=2.0, beta=1.0),
    case("Scale", x(3, 4), opset=7, scale=2.0),
    case("ScaledTanh", x(3, 4), opset=7, alpha=2.0, beta=0.5),
    case("ParametricSoftplus", x(3, 4), opset=7, alpha=2.0, beta=0.5),
    case("ImageScaler", x(1, 2, 3, 3), opset=7, bias=[1.0, 2.0], scale=0.5),
    case("Crop", x(1, 2, 4, 4), opset=7, border=[1, 0, 1, 1]),
    case("DynamicSlice", x(3, 4), ints(1), ints(3), opset=7),
]

CASES = [
    *EXPERIMENTS,
    *ELEMENTWISE,
    *REDUCTIONS,
    *LAYOUT,
    *PRODUCTS,
    *WINDOWS,
    *NORMALISATIONS,
    *SEQUENCES,
    *LOSSES,
    *CONTROL,
    *LEARNING,
]


# Every operator that has no gradient, or none that JAX can derive.
WITHOUT = {
    "numbers are integers, booleans or types": """
        And ArgMax ArgMin BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Constant
        ConstantOfShape ConvInteger DynamicQuantizeLinear Equal EyeLike Greater GreaterOrEqual IsInf
        IsNaN Less LessOrEqual MatMulInteger Not Or QLinearConv QLinearMatMul Range Shape Size Xor
        BlackmanWindow HammingWindow HannWindow MelWeightMatrix OneHotEncoder""",
    "the result goes in steps": """
        Binarizer QuantizeLinear TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor""",
    "strings, sequences, optionals, maps or files live on the host": """
        ImageDecoder RegexFullMatch StringConcat StringNormalizer StringSplit TfIdfVectorizer
        ConcatFromSequence SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert
        SequenceLength SequenceMap SplitToSequence Optional OptionalGetElement OptionalHasElement
        CastMap CategoryMapper DictVectorizer LabelEncoder ZipMap""",
    "the result is drawn": """
        Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike""",
    "the data tells the result's shape": "Compress NonMaxSuppression NonZero Unique",
    "JAX derives nothing backwards through a loop whose length the data tells": "MaxRoiPool",
    "nothing is handed to it; its branches reach out for what they need": "If",
    "it is a rule of training itself": "Adagrad Adam Gradient Momentum",
    "the label is an integer, and the scores follow those of SVMRegressor": "SVMClassifier",
}
