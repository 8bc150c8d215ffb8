"""A Pad before a convolution: of zeros that the convolution adds itself, and of others."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.onnx_builders import node
from tests.support.rewrite_cases import RewriteCase

FILTERS = np.random.default_rng(5).normal(size=(4, 3, 3, 3))
SHAPE = (2, 3, 8, 9)
AROUND = [0, 0, 1, 0, 0, 0, 2, 1]


def case(name: str, widths: Any, *titles: str, pad: Any = None, **options: Any) -> RewriteCase:
    """`pad` has the other inputs of the Pad, and its attributes."""
    inputs, attributes = pad or ((), {})
    nodes = [
        node("Constant", [], ["pads"], value_ints=widths),
        node("Constant", [], ["axes"], value_ints=[3, -2]),
        node("Abs", ["x"], ["a"]),
        node("Pad", ["a", "pads", *inputs], ["p"], **attributes),
        node("Conv", ["p", "w"], ["y"], **options),
    ]
    weights = {"w": FILTERS, "one": 1.0, "zero": 0.0}
    return RewriteCase(name, nodes, SHAPE, titles, weights)


def of_attribute(name: str, *titles: str, **attributes: Any) -> RewriteCase:
    nodes = [
        node("Pad", ["x"], ["p"], **attributes),
        node("Conv", ["p", "w"], ["y"], strides=[2, 2]),
    ]
    return RewriteCase(name, nodes, SHAPE, titles, {"w": FILTERS}, opset=10)


PADDED = [
    case("zeros_at_one_end", AROUND, "Abs", "Conv", strides=[2, 2]),
    case("zeros_and_more_of_its_own", AROUND, "Abs", "Conv", pads=[1, 1, 0, 1]),
    case("a_zero_that_is_given", AROUND, "Abs", "Conv", pad=(("zero",), {})),
    case("zeros_along_some_axes", [2, 0, 1, 1], "Abs", "Conv", pad=(("", "axes"), {})),
    case("zeros_of_a_valid_one", AROUND, "Abs", "Conv", auto_pad="VALID"),
    case("zeros_before_more_of_the_same", [0, 0, 0, 1, 0, 0, 1, 0], "Abs", "Conv",
         auto_pad="SAME_UPPER", strides=[2, 1]),
    case("zeros_under_wide_windows", [0, 0, 3, 4, 0, 0, 4, 3], "Abs", "Conv", dilations=[2, 2]),
    of_attribute("zeros_of_an_attribute", "Conv", pads=AROUND),
]  # fmt: skip

NOT_PADDED = [
    case("ones", AROUND, "Abs", "Pad", "Conv", pad=(("one",), {})),
    case("mirrored", AROUND, "Abs", "Pad", "Conv", pad=((), {"mode": "reflect"})),
    case("taken_away", [0, 0, -1, 0, 0, 0, 1, 0], "Abs", "Pad", "Conv"),
    case("images_of_zeros", [1, 0, 0, 0, 0, 0, 1, 0], "Abs", "Pad", "Conv"),
    case("wider_than_windows", [0, 0, 3, 0, 0, 0, 0, 0], "Abs", "Pad", "Conv"),
    of_attribute("a_number_of_an_attribute", "Pad", "Conv", pads=AROUND, value=2.0),
]
