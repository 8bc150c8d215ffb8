"""Quantized operators of com.microsoft, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from sardonyx.graph.standard.types import DType
from tests.property.agreement import Draw
from tests.property.case import Case
from tests.property.microsoft import (
    EIGHTHS,
    HALF,
    INT32,
    SINGLE,
    assert_drawn_agree,
    drawn_bytes,
    drawn_float,
    drawn_scale,
    node,
    or_none,
)
from tests.property.strategies import (
    Shape,
    chosen,
    drawn_array,
    drawn_axis,
    drawn_part,
    drawn_shape,
    one_in,
    wild,
)
from tests.property.test_quantization import MANY, SCALES, drawn_filters, drawn_zero
from tests.support.byte_products import byte_factors

# -- element by element ---------------------------------------------------------------------------


def granularity(draw: Draw, shape: Shape) -> tuple[Shape, dict[str, Any]]:
    """The shape of the scale, and the attributes that lay it over an input."""
    if not shape or draw(st.booleans()):
        return (), {}
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    return (shape[axis],), {"axis": axis}


def linear(draw: Draw, op: str) -> Case:
    names = ["uint8", "int8", "uint16", "int16"]
    dtype = np.dtype(draw(st.sampled_from(names)))
    shape = drawn_shape(draw, most=4)
    per, given = granularity(draw, shape)
    zero = drawn_zero(draw, dtype, per)
    if op == "QuantizeLinear":
        x = drawn_array(draw, SINGLE, shape, MANY)
        scale = drawn_array(draw, SINGLE, per, SCALES)
        return node(draw, op, [x, scale, zero], given)
    x, scale = drawn_array(draw, dtype, shape, wild), drawn_array(draw, SINGLE, per, SCALES)
    return node(draw, op, [x, scale, or_none(draw, zero)], given)


def operand(draw: Draw, dtype: DType, shape: Shape) -> list[np.ndarray | None]:
    """An array, its scale and its zero point."""
    return [drawn_array(draw, dtype, shape, wild), *units(draw, dtype)]


def units(draw: Draw, dtype: DType) -> list[np.ndarray | None]:
    return [drawn_scale(draw), drawn_zero(draw, dtype)]


def elementwise(draw: Draw, op: str) -> Case:
    dtype, whole = drawn_bytes(draw), drawn_shape(draw, most=4)
    inputs: list[np.ndarray | None] = []
    if op == "QLinearWhere":
        inputs.append(drawn_array(draw, np.dtype(bool), drawn_part(draw, whole)))
    for _ in range(2):
        inputs += operand(draw, dtype, drawn_part(draw, whole))
    return node(draw, op, [*inputs, *units(draw, dtype)])


def leaky_relu(draw: Draw, op: str) -> Case:
    dtype = drawn_bytes(draw)
    inputs = [*operand(draw, dtype, drawn_shape(draw, most=4)), *units(draw, dtype)]
    return node(draw, op, inputs, chosen(draw, {"alpha": [0.5, -0.25, 0.0]}))


def concat(draw: Draw, op: str) -> Case:
    dtype, shape = drawn_bytes(draw), drawn_shape(draw, least=1, most=4)
    axis = drawn_axis(draw, len(shape))
    inputs = units(draw, dtype)
    for _ in range(draw(st.integers(1, 3))):
        part = list(shape)
        part[axis % len(shape)] = draw(st.integers(0, 4))
        inputs += operand(draw, dtype, tuple(part))
    return node(draw, op, inputs, {"axis": axis})


# -- products -------------------------------------------------------------------------------------


def convolution(draw: Draw, op: str) -> Case:
    """QLinearConv with the channels first, as in the standard, or last."""
    one, other = drawn_bytes(draw), drawn_bytes(draw)
    x, w, given = drawn_filters(draw, {"T1": one, "T2": other})
    if draw(st.booleans()):
        x, given = np.moveaxis(x, 1, -1), given | {"channels_last": 1}
    per = w.shape[:1] if one_in(draw, 3) else ()
    inputs: list[np.ndarray | None] = [
        *(x, drawn_scale(draw), drawn_zero(draw, one)),
        *(w, drawn_scale(draw, per), drawn_zero(draw, other, per)),
        *(drawn_array(draw, SINGLE, (), [64, 256]), drawn_zero(draw, one)),
    ]
    if draw(st.booleans()):
        inputs.append(drawn_array(draw, INT32, w.shape[:1]))
    return node(draw, op, inputs, given)


def quantized_gemm(draw: Draw, op: str) -> Case:
    one, other = drawn_bytes(draw), drawn_bytes(draw)
    m, k, n = (draw(st.integers(1, 6)) for _ in range(3))
    given = chosen(draw, {"transA": [0, 1], "transB": [0, 1], "alpha": [0.5, 2.0]})
    a = drawn_array(draw, one, (k, m) if given.get("transA") else (m, k), wild)
    b = drawn_array(draw, other, (n, k) if given.get("transB") else (k, n), wild)
    per = (n,) if one_in(draw, 3) else ()
    inputs = [a, drawn_scale(draw), drawn_zero(draw, one)]
    inputs += [byte_factors(b), drawn_scale(draw, per), drawn_zero(draw, other, per)]
    c = or_none(draw, drawn_array(draw, INT32, drawn_part(draw, (m, n)), range(-999, 999)))
    rest = [drawn_array(draw, SINGLE, (), [64, 256]), drawn_zero(draw, one)]
    return node(draw, op, [*inputs, c, *(rest if draw(st.booleans()) else [])], given)


def to_floats(draw: Draw, op: str) -> Case:
    """Bytes times bytes, the first of which the operator itself may quantize."""
    other = drawn_bytes(draw)
    m, k, n = (draw(st.integers(1, 6)) for _ in range(3))
    batch = drawn_shape(draw, most=2, empty=False)
    stack = batch if one_in(draw, 3) else ()
    per = (n,) if one_in(draw, 3) and not stack else ()
    b = byte_factors(drawn_array(draw, other, (*stack, k, n), wild))
    scale = drawn_scale(draw, per)
    zero = or_none(draw, drawn_zero(draw, other, per))
    bias = or_none(draw, drawn_array(draw, SINGLE, (n,), EIGHTHS))
    if op == "DynamicQuantizeMatMul":
        a = drawn_array(draw, SINGLE, (*batch, m, k), EIGHTHS)
        return node(draw, op, [a, b, scale, zero, bias], ulps=16, scale=512 * k)
    one = drawn_bytes(draw)
    a = drawn_array(draw, one, (*batch, m, k), wild)
    a_zero = or_none(draw, drawn_zero(draw, one))
    inputs = [a, b, drawn_scale(draw), scale, a_zero, zero, bias]
    return node(draw, op, inputs, ulps=16)


def matmul_nbits(draw: Draw, op: str) -> Case:
    """Weights of 2, 4 or 8 bits in blocks, the last of which may be cut."""
    dtype, bits = drawn_float(draw, SINGLE, HALF), draw(st.sampled_from([2, 4, 8]))
    size = draw(st.sampled_from([16, 32, 64]))
    K, N = draw(st.integers(1, 80)), draw(st.integers(1, 5))
    blocks = -(-K // size)
    octets = np.dtype(np.uint8)
    a = drawn_array(draw, dtype, (*drawn_shape(draw, most=2), K), EIGHTHS)
    b = drawn_array(draw, octets, (N, blocks, size * bits // 8), range(256))
    scales = drawn_array(draw, dtype, (N, blocks), [0.25, 0.5, 1])
    kind = draw(st.sampled_from(["none", "packed", "float"] if bits == 4 else ["none", "packed"]))
    zero = None
    if kind == "packed":
        zero = drawn_array(draw, octets, (N, -(-blocks * bits // 8)), range(256))
    elif kind == "float":
        zero = drawn_array(draw, dtype, (N, blocks), range(16))
    groups = bits == 4 and one_in(draw, 4)
    index = drawn_array(draw, INT32, (K,), range(blocks)) if groups else None
    bias = or_none(draw, drawn_array(draw, dtype, (N,), EIGHTHS))
    given = {"K": K, "N": N, "block_size": size, "bits": bits}
    fixed = {"weights": frozenset(i for i, x in enumerate([b, scales, zero], 1) if x is not None)}
    inputs = [a, b, scales, zero, index, bias]
    return node(draw, op, inputs, given, ulps=16, scale=K * 2.0 ** (bits - 1), **fixed)


CASES = {
    **dict.fromkeys(["QuantizeLinear", "DequantizeLinear"], linear),
    **dict.fromkeys(["QLinearAdd", "QLinearMul", "QLinearWhere"], elementwise),
    "QLinearLeakyRelu": leaky_relu,
    "QLinearConcat": concat,
    "QLinearConv": convolution,
    "QGemm": quantized_gemm,
    **dict.fromkeys(["DynamicQuantizeMatMul", "MatMulIntegerToFloat"], to_floats),
    "MatMulNBits": matmul_nbits,
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("op", CASES)
def test_quantized(op: str) -> None:
    assert_drawn_agree(CASES[op], op)
