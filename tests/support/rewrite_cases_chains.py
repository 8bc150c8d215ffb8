"""Chains of operators that are fused, and chains that only resemble them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.support.onnx_builders import node
from tests.support.rewrite_cases import RewriteCase

RNG = np.random.default_rng(1)


def uniform(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.uniform(0.5, 1.5, size=shape)


# -- normalisation over a batch -------------------------------------------------------------------

BATCH = ["scale", "bias", "mean", "variance"]


def batch_weights(channels: int) -> dict[str, Any]:
    return {name: uniform(channels) for name in BATCH}


def convolution(op: str, shape: tuple[int, ...], *after: Any, **attributes: Any) -> dict[str, Any]:
    return {"nodes": [node(op, ["x", "w", "b"], ["c"], **attributes), *after], "shape": shape}


NORMALIZE = node("BatchNormalization", ["c", *BATCH], ["y"], epsilon=0.01)
ALONE = node("BatchNormalization", ["x", *BATCH], ["y"])
CONV = {"w": uniform(6, 2, 3, 3) - 1, "b": uniform(6)}

OF_BATCHES = [
    RewriteCase("alone", [ALONE], (2, 6, 3, 3), ["ScaleAndShift"], batch_weights(6)),
    RewriteCase("alone_old", [ALONE], (2, 6, 5), ["ScaleAndShift"], batch_weights(6), opset=9),
    RewriteCase(
        "after_conv",
        **convolution("Conv", (2, 4, 7, 6), NORMALIZE, group=2, pads=[1, 1, 1, 1]),
        titles=["Conv"],
        weights=CONV | batch_weights(6),
    ),
    RewriteCase(
        "after_conv_without_bias",
        [node("Conv", ["x", "w"], ["c"]), NORMALIZE],
        (1, 3, 9),
        ["Conv"],
        {"w": uniform(5, 3, 3)} | batch_weights(5),
    ),
    RewriteCase(
        "after_transposed_conv_in_groups",
        **convolution("ConvTranspose", (2, 4, 5, 5), NORMALIZE, group=2, strides=[2, 2]),
        titles=["ConvTranspose"],
        weights={"w": uniform(4, 3, 3, 3) - 1, "b": uniform(6)} | batch_weights(6),
    ),
    RewriteCase(
        "after_transposed_conv",
        **convolution("ConvTranspose", (2, 4, 5), NORMALIZE),
        titles=["ConvTranspose"],
        weights={"w": uniform(4, 6, 3) - 1, "b": uniform(6)} | batch_weights(6),
    ),
    RewriteCase(
        "after_gemm",
        [node("Gemm", ["x", "w", "b"], ["c"], transB=1, alpha=0.5, beta=2.0), NORMALIZE],
        (3, 4),
        ["Gemm"],
        {"w": uniform(6, 4), "b": uniform(6)} | batch_weights(6),
    ),
    RewriteCase(
        "after_matmul",
        [node("MatMul", ["x", "w"], ["c"]), NORMALIZE],
        (3, 4),
        ["MatMul", "Add"],
        {"w": uniform(4, 6)} | batch_weights(6),
    ),
    RewriteCase(
        "after_matmul_with_bias",
        [node("MatMul", ["x", "w"], ["p"]), node("Add", ["b", "p"], ["c"]), NORMALIZE],
        (3, 4),
        ["MatMul", "Add"],
        {"w": uniform(4, 6), "b": uniform(6)} | batch_weights(6),
    ),
    RewriteCase(
        "by_hand",
        **convolution(
            "Conv",
            (2, 4, 6, 6),
            node("Mul", ["c", "factor"], ["m"]),
            node("Sub", ["m", "shift"], ["s"]),
            node("Div", ["s", "divisor"], ["d"]),
            node("Add", ["one", "d"], ["y"]),
            group=2,
        ),
        titles=["Conv"],
        weights=CONV
        | {
            "factor": uniform(1, 6, 1, 1),
            "shift": uniform(6, 1, 1),
            "divisor": 3.0,
            "one": uniform(1, 1, 1, 1),
        },
    ),
    RewriteCase(
        "scaled_matmul",
        [node("MatMul", ["x", "w"], ["c"]), node("Mul", ["s", "c"], ["y"])],
        (2, 3, 4),
        ["MatMul"],
        {"w": uniform(4, 6), "s": uniform(6)},
    ),
]

OF_NO_BATCHES = [
    RewriteCase(
        "statistics_of_the_call",
        [node("BatchNormalization", ["x", *BATCH], ["y", "m", "v"], training_mode=1)],
        (2, 6, 3),
        ["BatchNormalization"],
        batch_weights(6),
    ),
    RewriteCase(
        "given_scale",
        [ALONE],
        (2, 6, 3),
        ["BatchNormalization"],
        {k: v for k, v in batch_weights(6).items() if k != "scale"},
        others={"scale": (6,)},
    ),
    RewriteCase(
        "read_twice",
        [*convolution("Conv", (), NORMALIZE)["nodes"][:1], NORMALIZE, node("Neg", ["c"], ["z"])],
        (2, 2, 4, 4),
        ["Conv", "ScaleAndShift", "Neg"],
        CONV | batch_weights(6),
        outputs=("y", "z"),
    ),
    RewriteCase(
        "output_too",
        convolution("Conv", (), NORMALIZE)["nodes"],
        (2, 2, 4, 4),
        ["Conv", "ScaleAndShift"],
        CONV | batch_weights(6),
        outputs=("c", "y"),
    ),
    RewriteCase(
        "shared_weight",
        [
            node("Conv", ["x", "w"], ["c"]),
            NORMALIZE,
            node("Conv", ["x", "w"], ["z"], strides=[2]),
        ],
        (1, 3, 9),
        ["Conv", "ScaleAndShift", "Conv"],
        {"w": uniform(5, 3, 3)} | batch_weights(5),
        outputs=("y", "z"),
    ),
    RewriteCase(
        "other_axis",
        [node("Conv", ["x", "w"], ["c"], pads=[1, 1]), node("Mul", ["c", "s"], ["y"])],
        (1, 3, 5),
        ["Conv", "Mul"],
        {"w": uniform(5, 3, 3), "s": uniform(5)},
    ),
    RewriteCase(
        "more_axes",
        [node("Conv", ["x", "w"], ["c"]), node("Mul", ["c", "s"], ["y"])],
        (1, 3, 9),
        ["Conv", "Mul"],
        {"w": uniform(5, 3, 3), "s": uniform(2, 5, 1)},
    ),
    RewriteCase(
        "given_weight",
        [node("Conv", ["x", "w"], ["c"]), node("Mul", ["c", "s"], ["y"])],
        (1, 3, 9),
        ["Conv", "Mul"],
        {"s": uniform(5, 1)},
        others={"w": (5, 3, 3)},
    ),
    RewriteCase(
        "rank_three",
        [node("MatMul", ["x", "w"], ["c"]), NORMALIZE],
        (3, 6, 4),
        ["MatMul", "ScaleAndShift"],
        {"w": uniform(4, 5)} | batch_weights(6),
    ),
]

# -- normalisation over the last axes -------------------------------------------------------------


def centred(axes: list[int]) -> list[Any]:
    return [
        node("ReduceMean", ["x"], ["m"], axes=axes),
        node("Sub", ["x", "m"], ["d"]),
        node("Pow", ["d", "two"], ["s"]),
        node("ReduceMean", ["s"], ["v"], axes=axes),
        node("Add", ["v", "eps"], ["e"]),
        node("Sqrt", ["e"], ["r"]),
    ]


LAYER = [*centred([-1]), node("Div", ["d", "r"], ["n"])]
SCALED = [node("Mul", ["n", "w"], ["k"]), node("Add", ["k", "b"], ["y"])]
CONSTANTS = {"two": 2.0, "eps": 1e-5}
AFFINE = CONSTANTS | {"w": uniform(8), "b": uniform(8)}
RMS = [
    node("Mul", ["x", "x"], ["s"]),
    node("ReduceMean", ["s"], ["v"], axes=[-1]),
    node("Add", ["eps", "v"], ["e"]),
    node("Sqrt", ["e"], ["r"]),
    node("Reciprocal", ["r"], ["i"]),
    node("Mul", ["x", "i"], ["n"]),
]
UNSCALED = node("Identity", ["n"], ["y"])

OF_LAYERS = [
    RewriteCase("layer", [*LAYER, *SCALED], (2, 5, 8), ["LayerNormalization"], AFFINE, opset=17),
    RewriteCase(
        "layer_without_bias",
        [*LAYER, node("Mul", ["w", "n"], ["y"])],
        (2, 5, 8),
        ["LayerNormalization"],
        CONSTANTS | {"w": uniform(8)},
        opset=17,
    ),
    RewriteCase(
        "layer_plain", [*LAYER, UNSCALED], (5, 8), ["LayerNormalization"], CONSTANTS, opset=9
    ),
    RewriteCase(
        "layer_of_two_axes",
        [*centred([1, 2]), node("Div", ["d", "r"], ["n"]), *SCALED],
        (3, 4, 8),
        ["LayerNormalization"],
        CONSTANTS | {"w": uniform(4, 8), "b": uniform(1, 4, 8)},
        opset=17,
    ),
    RewriteCase(
        "layer_with_two_differences",
        [*LAYER[:2], node("Sub", ["x", "m"], ["d2"]), node("Mul", ["d2", "d2"], ["s"]),
         *LAYER[3:], *SCALED],
        (2, 5, 8),
        ["LayerNormalization"],
        AFFINE,
        opset=17,
    ),
    RewriteCase(
        "rms",
        [*RMS, node("Mul", ["w", "n"], ["y"])],
        (2, 5, 8),
        ["RMSNormalization"],
        {"eps": 1e-6, "w": uniform(8)},
        opset=17,
    ),
    RewriteCase(
        "rms_plain", [*RMS, UNSCALED], (5, 8), ["RMSNormalization"], {"eps": 1e-6}, opset=17
    ),
]  # fmt: skip

OF_NO_LAYERS = [
    RewriteCase(
        "inner_axis",
        [*centred([1]), node("Div", ["d", "r"], ["y"])],
        (2, 5, 8),
        ["ReduceMean", "Sub", "Pow", "ReduceMean", "Add", "Sqrt", "Div"],
        CONSTANTS,
        opset=17,
    ),
    RewriteCase(
        "axes_differ",
        [node("ReduceMean", ["x"], ["m"], axes=[1]), *centred([-1])[1:],
         node("Div", ["d", "r"], ["y"])],
        (2, 5, 8),
        ["ReduceMean", "Sub", "RMSNormalization"],
        CONSTANTS,
        opset=17,
    ),
    RewriteCase(
        "deviation_too",
        [*LAYER, UNSCALED],
        (2, 5, 8),
        ["ReduceMean", "Sub", "Pow", "ReduceMean", "Add", "Sqrt", "Div"],
        CONSTANTS,
        opset=17,
        outputs=("y", "r"),
    ),
    RewriteCase(
        "cubes",
        [*LAYER, UNSCALED],
        (2, 5, 8),
        ["ReduceMean", "Sub", "Pow", "ReduceMean", "Add", "Sqrt", "Div"],
        CONSTANTS | {"two": 3.0},
        opset=17,
    ),
    RewriteCase(
        "scale_by_row",
        [*LAYER, node("Mul", ["n", "w"], ["y"])],
        (2, 5, 8),
        ["LayerNormalization", "Mul"],
        CONSTANTS | {"w": uniform(5, 1)},
        opset=17,
    ),
    RewriteCase(
        "residual_is_no_bias",
        [*LAYER, node("Mul", ["n", "w"], ["k"]), node("Add", ["k", "x"], ["y"])],
        (2, 5, 8),
        ["LayerNormalization", "Add"],
        CONSTANTS | {"w": uniform(8)},
        opset=17,
    ),
]  # fmt: skip

# -- activations ----------------------------------------------------------------------------------

ERF = [
    node("Div", ["x", "root"], ["u"]),
    node("Erf", ["u"], ["t"]),
    node("Add", ["t", "one"], ["a"]),
]
GELU = {"root": math.sqrt(2), "one": 1.0, "half": 0.5, "inverse": math.sqrt(0.5), "two": 2.0}
CUBIC = {"c": 0.044715, "k": math.sqrt(2 / math.pi), "one": 1.0, "half": 0.5, "three": 3.0}
AFTER_CUBE = [
    node("Mul", ["c", "cube"], ["m"]),
    node("Add", ["x", "m"], ["s"]),
    node("Mul", ["s", "k"], ["u"]),
    node("Tanh", ["u"], ["t"]),
    node("Add", ["one", "t"], ["a"]),
]
CLIPPED = {"three": 3.0, "zero": 0.0, "six": 6.0}

OF_ACTIVATIONS = [
    RewriteCase(
        "gelu_half_last",
        [*ERF, node("Mul", ["x", "a"], ["p"]), node("Mul", ["p", "half"], ["y"])],
        (3, 4), ["Gelu"], GELU,
    ),
    RewriteCase(
        "gelu_half_first",
        [*ERF, node("Mul", ["half", "x"], ["h"]), node("Mul", ["h", "a"], ["y"])],
        (3, 4), ["Gelu"], GELU, opset=9,
    ),
    RewriteCase(
        "gelu_half_between",
        [node("Mul", ["x", "inverse"], ["u"]), *ERF[1:], node("Div", ["a", "two"], ["h"]),
         node("Mul", ["h", "x"], ["y"])],
        (2, 3, 4), ["Gelu"], GELU,
    ),
    RewriteCase(
        "gelu_of_tanh",
        [node("Pow", ["x", "three"], ["cube"]), *AFTER_CUBE, node("Mul", ["a", "half"], ["h"]),
         node("Mul", ["x", "h"], ["y"])],
        (3, 4), ["Gelu"], CUBIC,
    ),
    RewriteCase(
        "gelu_of_tanh_by_products",
        [node("Mul", ["x", "x"], ["square"]), node("Mul", ["x", "square"], ["cube"]), *AFTER_CUBE,
         node("Mul", ["x", "half"], ["h"]), node("Mul", ["h", "a"], ["y"])],
        (3, 4), ["Gelu"], CUBIC,
    ),
    RewriteCase(
        "gelu_of_tanh_factored",
        [node("Mul", ["x", "x"], ["square"]), node("Mul", ["c", "square"], ["m"]),
         node("Add", ["m", "one"], ["f"]), node("Mul", ["k", "f"], ["g"]),
         node("Mul", ["g", "x"], ["u"]), *AFTER_CUBE[3:], node("Mul", ["x", "a"], ["p"]),
         node("Mul", ["half", "p"], ["y"])],
        (3, 4), ["Gelu"], CUBIC,
    ),
    RewriteCase(
        "silu",
        [node("Sigmoid", ["x"], ["s"]), node("Mul", ["x", "s"], ["y"])], (3, 4), ["Swish"],
    ),
    RewriteCase(
        "quick_gelu",
        [node("Mul", ["k", "x"], ["u"]), node("Sigmoid", ["u"], ["s"]),
         node("Mul", ["s", "x"], ["y"])],
        (3, 4), ["Swish"], {"k": 1.702},
    ),
    RewriteCase(
        "mish",
        [node("Softplus", ["x"], ["p"]), node("Tanh", ["p"], ["t"]),
         node("Mul", ["x", "t"], ["y"])],
        (3, 4), ["Mish"],
    ),
    RewriteCase(
        "hard_swish",
        [node("HardSigmoid", ["x"], ["s"], alpha=1 / 6), node("Mul", ["x", "s"], ["y"])],
        (3, 4), ["HardSwish"],
    ),
    RewriteCase(
        "hard_swish_clipped",
        [node("Add", ["x", "three"], ["u"]), node("Clip", ["u", "zero", "six"], ["s"]),
         node("Mul", ["x", "s"], ["p"]), node("Div", ["p", "six"], ["y"])],
        (3, 4), ["HardSwish"], CLIPPED,
    ),
    RewriteCase(
        "hard_swish_clipped_of_old",
        [node("Add", ["x", "three"], ["u"]), node("Clip", ["u"], ["s"], min=0.0, max=6.0),
         node("Div", ["s", "six"], ["p"]), node("Mul", ["x", "p"], ["y"])],
        (3, 4), ["HardSwish"], CLIPPED, opset=10,
    ),
]  # fmt: skip

OF_NO_ACTIVATIONS = [
    RewriteCase(
        "no_half",
        [*ERF, node("Mul", ["x", "a"], ["y"])],
        (3, 4), ["Div", "Erf", "Add", "Mul"], GELU,
    ),
    RewriteCase(
        "another_root",
        [*ERF, node("Mul", ["x", "a"], ["p"]), node("Mul", ["p", "half"], ["y"])],
        (3, 4), ["Div", "Erf", "Add", "Mul", "Mul"], GELU | {"root": 1.4},
    ),
    RewriteCase(
        "erf_too",
        [*ERF, node("Mul", ["x", "a"], ["p"]), node("Mul", ["p", "half"], ["y"])],
        (3, 4), ["Div", "Erf", "Add", "Mul", "Mul"], GELU, outputs=("y", "t"),
    ),
    RewriteCase(
        "gate_of_another",
        [node("Sigmoid", ["z"], ["s"]), node("Mul", ["x", "s"], ["y"])],
        (3, 4), ["Sigmoid", "Mul"], others={"z": (3, 4)},
    ),
    RewriteCase(
        "another_cubic",
        [node("Pow", ["x", "three"], ["cube"]), *AFTER_CUBE, node("Mul", ["a", "half"], ["h"]),
         node("Mul", ["x", "h"], ["y"])],
        (3, 4), ["Pow", "Mul", "Add", "Mul", "Tanh", "Add", "Mul", "Mul"], CUBIC | {"c": 0.05},
    ),
    RewriteCase(
        "default_hard_sigmoid",
        [node("HardSigmoid", ["x"], ["s"]), node("Mul", ["x", "s"], ["y"])],
        (3, 4), ["HardSigmoid", "Mul"],
    ),
    RewriteCase(
        "constant_of_more_axes",
        [*ERF, node("Mul", ["x", "a"], ["p"]), node("Mul", ["p", "wide"], ["y"])],
        (3, 4), ["Div", "Erf", "Add", "Mul", "Mul"], GELU | {"wide": np.full((1, 1, 1), 0.5)},
    ),
]  # fmt: skip
