"""Operators that treat each element by itself, against onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from sardonyx.backends.dtypes import isdtype
from sardonyx.graph.standard.types import DType
from tests.property.agreement import Draw, Maker, assert_examples_agree, versions_of
from tests.property.case import Case
from tests.property.strategies import (
    Pool,
    Shape,
    chosen,
    drawn_array,
    drawn_part,
    drawn_shape,
    drawn_types,
    one_in,
    ordinary,
    placed,
    wild,
)

FACTORS = [0.0, 0.5, -1.25, 3.0]

# -- one input ------------------------------------------------------------------------------------


def unary(
    pool: Pool = wild,
    ulps: float = 4,
    scale: float = 0,
    attributes: Mapping[str, Sequence[Any]] | None = None,
) -> Maker:
    def make(draw: Draw, op: str, opset: int) -> Case:
        dtype = next(iter(drawn_types(draw, op, opset).values()))
        x = drawn_array(draw, dtype, drawn_shape(draw), pool)
        given = chosen(draw, attributes or {})
        return Case(op, opset, (x,), given, ulps=ulps, scale=scale, **placed(draw, [x]))

    return make


UNARY = {
    **dict.fromkeys(["Abs", "Neg", "Ceil", "Floor", "Round", "Sign", "Not", "BitwiseNot"], unary()),
    **dict.fromkeys(["IsNaN", "Relu", "Sqrt", "Reciprocal", "Identity", "Size"], unary()),
    **dict.fromkeys(["Exp", "Log", "Erf", "Tanh", "Softplus", "Softsign", "HardSwish"], unary()),
    **dict.fromkeys(["Sin", "Cos", "Tan", "Asin", "Acos", "Atan"], unary()),
    **dict.fromkeys(["Asinh", "Acosh", "Atanh"], unary()),
    # exp(x - log 2) has an error in proportion to x.
    **dict.fromkeys(["Sinh", "Cosh"], unary(ulps=32)),
    # These are differences of numbers near 1, times the input, in one of the two or in both.
    "Sigmoid": unary(scale=1),
    "Mish": unary(scale=4),
    "Gelu": unary(scale=4, attributes={"approximate": ["none", "tanh"]}),
    "Swish": unary(scale=4, attributes={"alpha": FACTORS}),
    "IsInf": unary(attributes={"detect_negative": [0, 1], "detect_positive": [0, 1]}),
    **dict.fromkeys(
        ["LeakyRelu", "ThresholdedRelu", "Elu", "Celu"], unary(attributes={"alpha": FACTORS})
    ),
    "Selu": unary(attributes={"alpha": FACTORS, "gamma": FACTORS}),
    "HardSigmoid": unary(attributes={"alpha": FACTORS, "beta": FACTORS}),
    "Shrink": unary(attributes={"bias": FACTORS, "lambd": FACTORS}),
}


@versions_of(UNARY)
@pytest.mark.sampled(5)
def test_of_one_input(op: str, version: int) -> None:
    assert_examples_agree(UNARY[op], op, version)


# -- two inputs, and more -------------------------------------------------------------------------


def drawn_parts(draw: Draw, count: int) -> list[Shape]:
    """Shapes that broadcast against each other; one time in twelve they may not."""
    whole = drawn_shape(draw)
    shapes = [drawn_part(draw, whole) for _ in range(count)]
    if one_in(draw, 12):
        shapes[-1] = (*shapes[-1][:-1], 4)
    return shapes


def binary(pool: Pool = wild, second: Pool | None = None, **attributes: Sequence[Any]) -> Maker:
    def make(draw: Draw, op: str, opset: int) -> Case:
        types = list(drawn_types(draw, op, opset).items())
        dtypes = [types[0][1], types[1][1] if op == "Pow" and opset >= 12 else types[0][1]]
        a, b = (
            drawn_array(draw, dtype, shape, values)
            for dtype, shape, values in zip(
                dtypes, drawn_parts(draw, 2), (pool, second or pool), strict=True
            )
        )
        given = chosen(draw, attributes)
        return Case(op, opset, (a, b), given, **placed(draw, [a, b]))

    return make


def not_zero(dtype: DType) -> np.ndarray:
    """Integers are divided by neither 0 nor -1: both make a processor trap."""
    values = wild(dtype)
    return values[(values != 0) & (values + 1 != 0)] if isdtype(dtype, "integral") else values


def shift(draw: Draw, op: str, opset: int) -> Case:
    dtype = drawn_types(draw, op, opset)["T"]
    shapes = drawn_parts(draw, 2)
    x = drawn_array(draw, dtype, shapes[0], wild)
    y = drawn_array(draw, dtype, shapes[1], range(8 * dtype.itemsize))
    direction = draw(st.sampled_from(["LEFT", "RIGHT"]))
    return Case(op, opset, (x, y), {"direction": direction}, **placed(draw, [x, y]))


def modulo(draw: Draw, op: str, opset: int) -> Case:
    case = binary(wild, not_zero)(draw, op, opset)
    fmod = isdtype(case.inputs[0].dtype, "real floating") or draw(st.booleans())
    attributes = {"fmod": int(fmod)} if fmod or draw(st.booleans()) else {}
    return Case(op, opset, case.inputs, attributes, weights=case.weights, on_jax=case.on_jax)


def prelu(draw: Draw, op: str, opset: int) -> Case:
    dtype = drawn_types(draw, op, opset)["T"]
    shape = drawn_shape(draw)
    x = drawn_array(draw, dtype, shape, wild)
    slope = drawn_array(draw, dtype, drawn_part(draw, shape))
    return Case(op, opset, (x, slope), **placed(draw, [x, slope]))


BINARY = {
    **dict.fromkeys(["Add", "Sub", "Mul", "And", "Or", "Xor"], binary()),
    **dict.fromkeys(["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"], binary()),
    **dict.fromkeys(["BitwiseAnd", "BitwiseOr", "BitwiseXor"], binary()),
    "Div": binary(wild, not_zero),
    "Mod": modulo,
    "Pow": binary(),
    "BitShift": shift,
    "PRelu": prelu,
}


@versions_of(BINARY)
@pytest.mark.sampled(5)
def test_of_two_inputs(op: str, version: int) -> None:
    assert_examples_agree(BINARY[op], op, version)


def several(draw: Draw, op: str, opset: int) -> Case:
    dtype = drawn_types(draw, op, opset)["T"]
    count = draw(st.integers(1, 4))
    # Before opset 8 they did not broadcast.
    shapes = drawn_parts(draw, count) if opset >= 8 else [drawn_shape(draw)] * count
    pool = wild if op in ("Max", "Min") else ordinary
    inputs = tuple(drawn_array(draw, dtype, shape, pool) for shape in shapes)
    return Case(op, opset, inputs, scale=4, **placed(draw, inputs))


def where(draw: Draw, op: str, opset: int) -> Case:
    dtype = drawn_types(draw, op, opset)["T"]
    dtypes = (np.dtype(bool), dtype, dtype)
    shapes = drawn_parts(draw, 3)
    inputs = tuple(drawn_array(draw, d, s, wild) for d, s in zip(dtypes, shapes, strict=True))
    return Case(op, opset, inputs, **placed(draw, inputs))


def clip(draw: Draw, op: str, opset: int) -> Case:
    dtype = drawn_types(draw, op, opset)["T"]
    x = drawn_array(draw, dtype, drawn_shape(draw), wild)
    if opset < 11:
        given = chosen(draw, {"min": [-1.5, 0.0, 5.0], "max": [2.5, 0.0, -3.0]})
        return Case(op, opset, (x,), given, **placed(draw, [x]))
    shape = (1,) if one_in(draw, 8) else ()
    given = [drawn_array(draw, dtype, shape) if draw(st.booleans()) else None for _ in range(2)]
    return Case(op, opset, (x, *given), **placed(draw, [x, *given]))


OTHERS = {**dict.fromkeys(["Max", "Min", "Sum", "Mean"], several), "Where": where, "Clip": clip}


@versions_of(OTHERS)
@pytest.mark.sampled(5)
def test_of_several_inputs(op: str, version: int) -> None:
    assert_examples_agree(OTHERS[op], op, version)
