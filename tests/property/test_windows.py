"""Convolutions and pools, against onnxruntime."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
from hypothesis import strategies as st

from tests.property.agreement import Draw, assert_examples_agree, versions_of
from tests.property.case import Case
from tests.property.strategies import (
    Shape,
    chosen,
    drawn_array,
    drawn_types,
    one_in,
    placed,
)

DILATES_SINCE = {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}


def drawn_window(draw: Draw, kernel: Shape, dilated: bool = True) -> dict[str, Any]:
    """Strides, dilations and padding for a kernel, some of them left to their defaults."""
    rank = len(kernel)
    found: dict[str, Any] = {}
    if draw(st.booleans()):
        found["strides"] = list(drawn_sides(draw, rank, 3))
    if dilated and one_in(draw, 3):
        found["dilations"] = list(drawn_sides(draw, rank, 2))
    if draw(st.booleans()):
        # A pad as wide as the kernel would hold windows of nothing but padding.
        found["pads"] = [draw(st.integers(0, k - 1)) for k in (*kernel, *kernel)]
    elif draw(st.booleans()):
        padding = ["VALID", "NOTSET"]
        if "dilations" not in found:
            padding += ["SAME_UPPER", "SAME_LOWER"]
        found["auto_pad"] = draw(st.sampled_from(padding))
    return found


def drawn_sizes(draw: Draw, kernel: Shape, window: dict[str, Any]) -> Shape:
    """Lengths of axes over which the kernel fits."""
    dilations = window.get("dilations", [1] * len(kernel))
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    more = {1: 8, 2: 4, 3: 2}[len(kernel)]
    return tuple(draw(st.integers(extent, extent + more)) for extent in extents)


def drawn_sides(draw: Draw, rank: int, most: int) -> Shape:
    return tuple(draw(st.integers(1, most)) for _ in range(rank))


# -- convolutions ---------------------------------------------------------------------------------


def convolution(draw: Draw, op: str, opset: int) -> Case:
    dtype = drawn_types(draw, op, opset)["T"]
    rank = draw(st.integers(1, 3))
    group, per_group, filters = (draw(st.integers(1, 3)) for _ in range(3))
    kernel = drawn_sides(draw, rank, 3)
    attributes = drawn_window(draw, kernel)
    sizes = drawn_sizes(draw, kernel, attributes)
    channels = group * per_group + one_in(draw, 24)
    x = drawn_array(draw, dtype, (draw(st.integers(1, 2)), channels, *sizes))
    if op == "Conv":
        w = drawn_array(draw, dtype, (group * filters, per_group, *kernel))
    else:
        w = drawn_array(draw, dtype, (group * per_group, filters, *kernel))
    b = drawn_array(draw, dtype, (group * filters,)) if draw(st.booleans()) else None
    if group > 1 or draw(st.booleans()):
        attributes["group"] = group
    if draw(st.booleans()):
        attributes["kernel_shape"] = list(kernel)
    if op == "ConvTranspose":
        attributes |= drawn_output(draw, attributes, sizes, kernel)
    inputs = (x, w, b)
    scale = 16.0 * per_group * prod(kernel)
    return Case(op, opset, inputs, attributes, scale=scale, **placed(draw, inputs))


def drawn_output(
    draw: Draw, attributes: dict[str, Any], sizes: Shape, kernel: Shape
) -> dict[str, Any]:
    """What ConvTranspose may say of its output besides."""
    strides = attributes.get("strides", [1] * len(sizes))
    if one_in(draw, 3):
        return {"output_padding": [draw(st.integers(0, s - 1)) for s in strides]}
    if one_in(draw, 4) and "pads" not in attributes:
        dilations = attributes.get("dilations", [1] * len(sizes))
        whole = [
            (n - 1) * s + (k - 1) * d + 1
            for n, s, k, d in zip(sizes, strides, kernel, dilations, strict=True)
        ]
        return {"output_shape": [max(1, n - draw(st.integers(0, 2))) for n in whole]}
    return {}


# -- pools ----------------------------------------------------------------------------------------


def pool(draw: Draw, op: str, opset: int) -> Case:
    dtype = drawn_types(draw, op, opset)["T"]
    rank = draw(st.integers(1, 3))
    kernel = drawn_sides(draw, rank, 4)
    window = drawn_window(draw, kernel, opset >= DILATES_SINCE[op])
    x = drawn_array(draw, dtype, (*drawn_sides(draw, 2, 2), *drawn_sizes(draw, kernel, window)))
    attributes = {"kernel_shape": list(kernel), **window}
    outputs = 1
    if opset >= {"MaxPool": 10, "AveragePool": 10, "LpPool": 18}[op]:
        attributes |= chosen(draw, {"ceil_mode": [0, 1]})
    if op == "AveragePool":
        attributes |= chosen(draw, {"count_include_pad": [0, 1]})
    if op == "LpPool":
        attributes |= chosen(draw, {"p": [1, 2, 3]})
    if op == "MaxPool" and opset >= 8:
        attributes |= chosen(draw, {"storage_order": [0, 1]})
        outputs = draw(st.integers(1, 2))
    return Case(op, opset, (x,), attributes, outputs=outputs, scale=4, **placed(draw, [x]))


def global_pool(draw: Draw, op: str, opset: int) -> Case:
    rank = draw(st.integers(1, 3))
    sizes = (*drawn_sides(draw, 2, 3), *drawn_sides(draw, rank, 4))
    x = drawn_array(draw, drawn_types(draw, op, opset)["T"], sizes)
    given = chosen(draw, {"p": [1, 2, 3]}) if op == "GlobalLpPool" else {}
    return Case(op, opset, (x,), given, ulps=8, scale=4, **placed(draw, [x]))


CASES = {
    **dict.fromkeys(["Conv", "ConvTranspose"], convolution),
    **dict.fromkeys(["MaxPool", "AveragePool", "LpPool"], pool),
    **dict.fromkeys(["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"], global_pool),
}


@versions_of(CASES)
@pytest.mark.sampled(5)
def test_windows(op: str, version: int) -> None:
    assert_examples_agree(CASES[op], op, version)
