"""Activations, products and normalizations of com.microsoft, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.property.agreement import Draw
from tests.property.case import Case
from tests.property.microsoft import (
    DOUBLE,
    EIGHTHS,
    HALF,
    SINGLE,
    assert_drawn_agree,
    drawn_float,
    node,
    or_none,
)
from tests.property.strategies import (
    SPECIAL,
    chosen,
    drawn_array,
    drawn_part,
    drawn_shape,
    one_in,
)
from tests.property.test_windows import drawn_sides, drawn_sizes, drawn_window

WIDE = [*np.arange(-24, 25) / 4, *SPECIAL, 30.0, -30.0, 1e-3]

# -- activations ----------------------------------------------------------------------------------


def activation(draw: Draw, op: str) -> Case:
    dtype = drawn_float(draw, SINGLE, HALF)
    x = drawn_array(draw, dtype, drawn_shape(draw, least=int(op != "Gelu")), WIDE)
    given = chosen(draw, {"alpha": [1.0, 1.702, -0.5, 0.0]}) if op == "QuickGelu" else {}
    inputs: list[np.ndarray | None] = [x]
    if op in ("BiasGelu", "FastGelu"):
        length = x.shape[-1] + one_in(draw, 24)
        bias = drawn_array(draw, dtype, (length,), EIGHTHS)
        inputs.append(bias if op == "BiasGelu" else or_none(draw, bias))
    return node(draw, op, inputs, given, ulps=16, scale=4)


def gated(draw: Draw, op: str) -> Case:
    dtype = drawn_float(draw, SINGLE, HALF)
    # onnxruntime takes no rows without elements.
    shape = (*drawn_shape(draw, most=4), draw(st.integers(1, 5)))
    x = drawn_array(draw, dtype, shape, EIGHTHS)
    if op == "ScaledSiLU":
        inputs = [x, or_none(draw, drawn_array(draw, dtype, (), EIGHTHS))]
        return node(draw, op, inputs, chosen(draw, {"alpha": [0.5, -2.0]}), ulps=8, scale=4)
    y = drawn_array(draw, dtype, shape, EIGHTHS)
    gate = drawn_array(draw, dtype, (*shape[:-1], 1), EIGHTHS)
    return node(draw, op, [x, y, gate], scale=8)


# -- products -------------------------------------------------------------------------------------


def fused_matmul(draw: Draw, op: str) -> Case:
    """Stacks of matrices, each of which may be transposed, and have the stack behind its rows."""
    dtype = drawn_float(draw, SINGLE, DOUBLE, HALF)
    m, k, n = (draw(st.integers(1, 5)) for _ in range(3))
    given = chosen(draw, {"transA": [0, 1], "transB": [0, 1], "alpha": [0.5, 2.0, 0.0, -1.0]})
    # Like MatMul of the standard, onnxruntime's does not broadcast to a batch of none.
    batch = drawn_shape(draw, most=2, empty=False)
    a_batch, b_batch = (drawn_part(draw, batch) for _ in range(2))
    a = (*a_batch, k, m) if given.get("transA") else (*a_batch, m, k)
    b = (*b_batch, n, k) if given.get("transB") else (*b_batch, k, n)
    if op == "FusedMatMul" and a_batch and a_batch == b_batch and draw(st.booleans()):
        given |= chosen(draw, {"transBatchA": [0, 1], "transBatchB": [0, 1]})
        a = (*a[1:-1], a[0], a[-1]) if given.get("transBatchA") else a
        b = (*b[1:-1], b[0], b[-1]) if given.get("transBatchB") else b
    inputs = [drawn_array(draw, dtype, shape) for shape in (a, b)]
    return node(draw, op, inputs, given, scale=32 * k)


ACTIVATIONS: dict[str, dict[str, Any]] = {
    "Relu": {},
    "Tanh": {},
    "Sigmoid": {},
    "LeakyRelu": {"alpha": [0.1, -0.5]},
    "HardSigmoid": {"alpha": [0.25], "beta": [0.5]},
    "Clip": {"alpha": [-1.0], "beta": [1.0]},
}


def fused_gemm(draw: Draw, op: str) -> Case:
    dtype = drawn_float(draw, SINGLE, HALF)
    m, k, n = (draw(st.integers(1, 5)) for _ in range(3))
    factors = [1.0, 0.5, 0.0]
    given = chosen(draw, {"transA": [0, 1], "transB": [0, 1], "alpha": factors, "beta": factors})
    a = drawn_array(draw, dtype, (k, m) if given.get("transA") else (m, k), EIGHTHS)
    b = drawn_array(draw, dtype, (n, k) if given.get("transB") else (k, n), EIGHTHS)
    c = or_none(draw, drawn_array(draw, dtype, drawn_part(draw, (m, n)), EIGHTHS))
    kind = draw(st.sampled_from(["Relu", "Tanh", "Sigmoid", "LeakyRelu", "HardSigmoid"]))
    given["activation"] = kind
    for name, values in ACTIVATIONS[kind].items():
        given[f"activation_{name}"] = draw(st.sampled_from(values))
    return node(draw, op, [a, b, c], given, ulps=16, scale=8 * k)


def fused_conv(draw: Draw, op: str) -> Case:
    dtype = drawn_float(draw, SINGLE, HALF)
    kernel = drawn_sides(draw, draw(st.integers(1, 2)), 3)
    group, per_group, filters = (draw(st.integers(1, 2)) for _ in range(3))
    given = drawn_window(draw, kernel)
    shape = (draw(st.integers(1, 2)), group * per_group, *drawn_sizes(draw, kernel, given))
    x = drawn_array(draw, dtype, shape, EIGHTHS)
    w = drawn_array(draw, dtype, (group * filters, per_group, *kernel), EIGHTHS)
    inputs: list[np.ndarray | None] = [x, w]
    if draw(st.booleans()):
        inputs.append(drawn_array(draw, dtype, w.shape[:1], EIGHTHS))
    given |= {"group": group} if group > 1 else {}
    if draw(st.booleans()):
        kind = draw(st.sampled_from([*ACTIVATIONS]))
        given["activation"] = kind
        params = [draw(st.sampled_from(values)) for values in ACTIVATIONS[kind].values()]
        given |= {"activation_params": params} if params else {}
    return node(draw, op, inputs, given, ulps=16, scale=32)


# -- normalizations -------------------------------------------------------------------------------


def skip_normalization(draw: Draw, op: str) -> Case:
    dtype = drawn_float(draw, SINGLE, DOUBLE, HALF)
    shape = (*drawn_shape(draw, least=1, most=2), draw(st.integers(1, 5)))
    x = drawn_array(draw, dtype, shape, EIGHTHS)
    skips = [shape] + ([(1, *shape[1:]), shape[1:]] if len(shape) == 3 else [])
    skip = drawn_array(draw, dtype, draw(st.sampled_from(skips)), EIGHTHS)
    rows = [drawn_array(draw, dtype, shape[-1:], EIGHTHS) for _ in range(3)]
    inputs: list[np.ndarray | None] = [x, skip, rows[0]]
    if op == "SkipLayerNormalization":
        inputs.append(or_none(draw, rows[1]))
    inputs.append(or_none(draw, rows[2]))
    given = chosen(draw, {"epsilon": [1e-5, 0.5]})
    return node(draw, op, inputs, given, outputs=1, ulps=64, scale=8)


CASES = {
    **dict.fromkeys(["Gelu", "BiasGelu", "FastGelu", "QuickGelu"], activation),
    **dict.fromkeys(["GatedAdd", "ScaledSiLU"], gated),
    **dict.fromkeys(["FusedMatMul", "TransposeMatMul"], fused_matmul),
    "FusedGemm": fused_gemm,
    "FusedConv": fused_conv,
    **dict.fromkeys(
        ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"], skip_normalization
    ),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("op", CASES)
def test_floats(op: str) -> None:
    assert_drawn_agree(CASES[op], op)
