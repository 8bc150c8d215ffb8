"""Operators that cancel each other, and operators that only seem to."""

from __future__ import annotations

import numpy as np
import onnx

from tests.support.onnx_builders import BOOL, FLOAT, node
from tests.support.rewrite_cases import RewriteCase

FLOAT16, DOUBLE, INT32 = (
    onnx.TensorProto.FLOAT16,
    onnx.TensorProto.DOUBLE,
    onnx.TensorProto.INT32,
)
END = node("Neg", ["z"], ["y"])
BEGIN = node("Abs", ["x"], ["a"])

CANCELLED = [
    RewriteCase(
        "cast_to_wider_and_back",
        [BEGIN, node("Cast", ["a"], ["w"], to=DOUBLE), node("Cast", ["w"], ["z"], to=FLOAT), END],
        (2, 3), ["Abs", "Neg"],
    ),
    RewriteCase(
        "integers_cast_to_floats_and_back",
        [node("Cast", ["x"], ["i"], to=INT32), node("Cast", ["i"], ["w"], to=DOUBLE),
         node("Cast", ["w"], ["z"], to=INT32), node("Cast", ["z"], ["y"], to=FLOAT)],
        (2, 3), ["Cast", "Cast"],
    ),
    RewriteCase(
        "times_one",
        [BEGIN, node("Mul", ["one", "a"], ["m"]), node("Div", ["m", "one"], ["d"]),
         node("Sub", ["d", "zero"], ["z"]), END],
        (2, 3), ["Abs", "Neg"], {"one": 1.0, "zero": 0.0},
    ),
]  # fmt: skip

KEPT = [
    RewriteCase(
        "integers_cast_to_too_few_digits_and_back",
        [node("Cast", ["x"], ["i"], to=INT32), node("Cast", ["i"], ["w"], to=FLOAT),
         node("Cast", ["w"], ["z"], to=INT32), END],
        (2, 3), ["Cast", "Cast", "Cast", "Neg"],
    ),
    RewriteCase(
        "cast_to_integers_and_back",
        [node("Cast", ["x"], ["i"], to=INT32), node("Cast", ["i"], ["z"], to=FLOAT), END],
        (2, 3), ["Cast", "Cast", "Neg"],
    ),
    RewriteCase(
        "cast_to_truth_and_back",
        [node("Cast", ["x"], ["b"], to=BOOL), node("Cast", ["b"], ["z"], to=FLOAT), END],
        (2, 3), ["Cast", "Cast", "Neg"],
    ),
    RewriteCase(
        "plus_zero",
        [node("Neg", ["x"], ["a"]), node("Add", ["a", "zero"], ["z"]), END],
        (2, 3), ["Neg", "Add", "Neg"], {"zero": 0.0},
    ),
    RewriteCase(
        "times_one_of_more_axes",
        [BEGIN, node("Mul", ["a", "one"], ["z"]), END],
        (2, 3), ["Abs", "Mul", "Neg"], {"one": np.ones((1, 1, 1))},
    ),
]  # fmt: skip

# Not every library has float16.
HALVES = [
    RewriteCase(
        "half_to_wider_and_back",
        [node("Cast", ["x"], ["h"], to=FLOAT16), node("Cast", ["h"], ["w"], to=DOUBLE),
         node("Cast", ["w"], ["n"], to=FLOAT16), node("Neg", ["n"], ["y"])],
        (2, 3), ["Cast", "Neg"],
    ),
    RewriteCase(
        "half_to_wider_and_on",
        [node("Cast", ["x"], ["h"], to=FLOAT16), node("Cast", ["h"], ["w"], to=DOUBLE),
         node("Cast", ["w"], ["z"], to=FLOAT), node("Sin", ["z"], ["y"])],
        (2, 3), ["Cast", "Cast", "Sin"],
    ),
    RewriteCase(
        "cast_to_half_and_back",
        [node("Cast", ["x"], ["h"], to=FLOAT16), node("Cast", ["h"], ["z"], to=FLOAT), END],
        (2, 3), ["Cast", "Cast", "Neg"],
    ),
]  # fmt: skip
