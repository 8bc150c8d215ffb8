"""Quantization, and products of what is quantized, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from sardonyx.backends.dtypes import isdtype
from sardonyx.graph.standard.types import DType, number_of
from tests.property.agreement import Draw, assert_examples_agree, versions_of
from tests.property.case import Case
from tests.property.strategies import (
    FLOAT32,
    Shape,
    chosen,
    drawn_array,
    drawn_part,
    drawn_shape,
    drawn_types,
    one_in,
    placed,
    wild,
)
from tests.property.test_windows import drawn_sides, drawn_sizes, drawn_window
from tests.support.byte_products import byte_factors

SCALES = [0.25, 0.5, 1, 2, 0.1, 0.3]
# Halves, which are rounded to even, and what is beyond some types or all of them.
MANY = [*np.arange(-24, 25) / 4, 13.5, 100.1, -127.5, 127.5, 300, -40000, 70000]

# -- element by element ---------------------------------------------------------------------------


def drawn_granularity(draw: Draw, shape: Shape, opset: int) -> tuple[Shape, dict[str, Any]]:
    """The shape of the scale, and the attributes that lay it over an input."""
    kinds = ["tensor", *(["axis"] if opset >= 13 else []), *(["block"] if opset >= 21 else [])]
    kind = draw(st.sampled_from(kinds)) if shape else "tensor"
    if kind == "tensor":
        return draw(st.sampled_from([(), (1,)])), {}
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    size = shape[axis]
    if kind == "axis":
        return (size + one_in(draw, 24),), {"axis": axis}
    block = draw(st.integers(1, size))
    blocks = [-(-size // block) if i == axis % len(shape) else n for i, n in enumerate(shape)]
    return tuple(blocks), {} if blocks == [1] else {"axis": axis, "block_size": block}


def zeros_of(dtype: DType) -> Any:
    """Zero points: floats have none but 0, and neither has int32."""
    if not isdtype(dtype, "integral") or dtype.itemsize == 4:
        return [0]
    return [0, 1, 3] if isdtype(dtype, "unsigned integer") else [0, 1, -2]


def quantize(draw: Draw, op: str, opset: int) -> Case:
    types = drawn_types(draw, op, opset)
    # From opset 23 on the scale may be of another type; onnxruntime runs none such.
    scaled = types["T1"] if opset >= 19 else FLOAT32
    to = types["T3" if opset >= 23 else "T2"]
    x = drawn_array(draw, types["T1"], drawn_shape(draw, most=4, empty=False), MANY)
    shape, given = drawn_granularity(draw, x.shape, opset)
    scale = drawn_array(draw, scaled, shape, SCALES)
    zero = drawn_array(draw, to, shape, zeros_of(to)) if draw(st.booleans()) else None
    if zero is None and opset >= 21 and draw(st.booleans()):
        given["output_dtype"] = number_of(to)
    if opset >= 19:
        given |= chosen(draw, {"saturate": [0, 1]})
    inputs = (x, scale, zero)
    return Case(op, opset, inputs, given, **placed(draw, inputs))


def dequantize(draw: Draw, op: str, opset: int) -> Case:
    types = drawn_types(draw, op, opset)
    dtype = types["T1" if opset >= 19 else "T"]
    x = drawn_array(draw, dtype, drawn_shape(draw, most=4, empty=False), wild)
    shape, given = drawn_granularity(draw, x.shape, opset)
    scale = drawn_array(draw, types["T2"] if opset >= 19 else FLOAT32, shape, SCALES)
    zero = drawn_array(draw, dtype, shape, zeros_of(dtype)) if draw(st.booleans()) else None
    if opset >= 23 and draw(st.booleans()):
        given["output_dtype"] = number_of(types["T3"])
    inputs = (x, scale, zero)
    return Case(op, opset, inputs, given, **placed(draw, inputs))


def dynamically(draw: Draw, op: str, opset: int) -> Case:
    x = drawn_array(draw, FLOAT32, drawn_shape(draw), MANY)
    return Case(op, opset, (x,), outputs=3, **placed(draw, [x]))


# -- products -------------------------------------------------------------------------------------


def drawn_matrices(draw: Draw, types: dict[str, DType]) -> tuple[np.ndarray, np.ndarray]:
    batch = drawn_shape(draw, most=2, empty=False)
    m, k, n = (draw(st.integers(1, 4)) for _ in range(3))
    right = (*(drawn_part(draw, batch) if one_in(draw, 2) else ()), k + one_in(draw, 24), n)
    left = (*batch, m, k)
    weights = drawn_array(draw, types["T2"], right, wild)
    return drawn_array(draw, types["T1"], left, wild), byte_factors(weights)


def drawn_filters(
    draw: Draw, types: dict[str, DType]
) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    kernel = drawn_sides(draw, draw(st.integers(1, 2)), 3)
    group, per_group, filters = (draw(st.integers(1, 2)) for _ in range(3))
    given = drawn_window(draw, kernel)
    sizes = drawn_sizes(draw, kernel, given)
    shape = (draw(st.integers(1, 2)), group * per_group, *sizes)
    x = drawn_array(draw, types["T1"], shape, wild)
    w = drawn_array(draw, types["T2"], (group * filters, per_group, *kernel), wild)
    return (
        # onnxruntime may multiply the filters with the windows, either of which saturates.
        byte_factors(x),
        byte_factors(w),
        given | ({"group": group} if group > 1 or draw(st.booleans()) else {}),
    )


def drawn_zero(draw: Draw, dtype: DType, shape: Shape = ()) -> np.ndarray:
    return drawn_array(draw, dtype, shape, zeros_of(dtype))


def integer_product(draw: Draw, op: str, opset: int) -> Case:
    types, given = drawn_types(draw, op, opset), {}
    if op == "ConvInteger":
        a, b, given = drawn_filters(draw, types)
        per_axis = b.shape[:1]
    else:
        a, b = drawn_matrices(draw, types)
        # For stacks of matrices onnxruntime wants the zero points of columns as stacks, too.
        per_axis = b.shape[-1:] if b.ndim == 2 else ()
    zeros = (
        drawn_zero(draw, a.dtype),
        drawn_zero(draw, b.dtype, per_axis if one_in(draw, 3) else ()),
    )
    inputs = (a, b, *(zero if draw(st.booleans()) else None for zero in zeros))
    return Case(op, opset, inputs, given, **placed(draw, inputs))


def quantized_product(draw: Draw, op: str, opset: int) -> Case:
    types, given = drawn_types(draw, op, opset), {}
    if op == "QLinearConv":
        a, b, given = drawn_filters(draw, types)
        per_axis = b.shape[:1] if one_in(draw, 3) else ()
        bias = drawn_array(draw, np.dtype(np.int32), b.shape[:1]) if draw(st.booleans()) else None
    else:
        a, b = drawn_matrices(draw, types)
        per_axis, bias = (), None
    scaled = types.get("TS", FLOAT32)
    inputs = (
        *(a, drawn_array(draw, scaled, (), POWERS), drawn_zero(draw, a.dtype)),
        *(b, drawn_array(draw, scaled, per_axis, POWERS), drawn_zero(draw, b.dtype, per_axis)),
        *(drawn_array(draw, scaled, (), [64, 256]), drawn_zero(draw, types["T3"])),
        *([] if bias is None else [bias]),
    )
    return Case(op, opset, inputs, given, **placed(draw, inputs))


# Of powers of two the products are exact, so that no two ways of rounding differ.
POWERS = [0.5, 1, 2]

CASES = {
    "QuantizeLinear": quantize,
    "DequantizeLinear": dequantize,
    "DynamicQuantizeLinear": dynamically,
    **dict.fromkeys(["ConvInteger", "MatMulInteger"], integer_product),
    **dict.fromkeys(["QLinearConv", "QLinearMatMul"], quantized_product),
}


@versions_of(CASES)
@pytest.mark.sampled(5)
def test_quantization(op: str, version: int) -> None:
    assert_examples_agree(CASES[op], op, version)
