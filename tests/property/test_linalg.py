"""Products of matrices, and normalisations, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from sardonyx.backends.dtypes import isdtype
from tests.property.agreement import Draw, assert_examples_agree, versions_of
from tests.property.case import Case
from tests.property.strategies import (
    chosen,
    drawn_array,
    drawn_axes,
    drawn_part,
    drawn_shape,
    drawn_types,
    one_in,
    placed,
)

EPSILONS = [1e-5, 1e-3, 0.5]
POSITIVE = np.arange(1, 17) / 4

# -- products -------------------------------------------------------------------------------------


def matmul(draw: Draw, op: str, opset: int) -> Case:
    dtype = drawn_types(draw, op, opset)["T"]
    batch = drawn_shape(draw, most=3)
    m, k, n = (draw(st.integers(0 if one_in(draw, 16) else 1, 5)) for _ in range(3))
    left, right = (*drawn_part(draw, batch), m, k), (*drawn_part(draw, batch), k, n)
    left = left[-1:] if one_in(draw, 8) else left
    right = (k,) if one_in(draw, 8) else right
    if one_in(draw, 16):
        right = (*right[:-1], n, n)
    inputs = tuple(drawn_array(draw, dtype, shape) for shape in (left, right))
    return Case(op, opset, inputs, scale=16 * max(k, 1), **placed(draw, inputs))


def gemm(draw: Draw, op: str, opset: int) -> Case:
    dtype = drawn_types(draw, op, opset)["T"]
    m, k, n = (draw(st.integers(1, 5)) for _ in range(3))
    factors = [1.0, 0.5, 2.0, 0.0] if isdtype(dtype, "real floating") else [1.0, 2.0]
    given = chosen(draw, {"transA": [0, 1], "transB": [0, 1], "alpha": factors, "beta": factors})
    a = drawn_array(draw, dtype, (k, m) if given.get("transA") else (m, k))
    b = drawn_array(draw, dtype, (n, k) if given.get("transB") else (k, n))
    shape = (m, n + 1) if one_in(draw, 16) else drawn_part(draw, (m, n))
    c = drawn_array(draw, dtype, shape) if opset < 11 or draw(st.booleans()) else None
    inputs = (a, b, c)
    return Case(op, opset, inputs, given, scale=16 * k, **placed(draw, inputs))


def determinant(draw: Draw, op: str, opset: int) -> Case:
    side = draw(st.integers(1, 4))
    shape = (*drawn_shape(draw, most=3), side, side)
    x = drawn_array(draw, drawn_types(draw, op, opset)["T"], shape)
    return Case(op, opset, (x,), ulps=64, scale=4.0**side, **placed(draw, [x]))


def einsum(draw: Draw, op: str, opset: int) -> Case:
    """Letters of one size each; some stand twice in a term, and some for a broadcast."""
    dtype = drawn_types(draw, op, opset)["T"]
    sizes = {letter: draw(st.integers(1, 3)) for letter in "abcd"}
    dots = drawn_shape(draw, most=2, empty=False) if one_in(draw, 3) else None
    terms, inputs = [], []
    for _ in range(draw(st.integers(1, 3))):
        letters = draw(st.lists(st.sampled_from("abcd"), max_size=3))
        within = draw(st.integers(0, len(letters))) if dots is not None else None
        broadcast = drawn_part(draw, dots) if dots is not None else ()
        shape = [sizes[letter] for letter in letters]
        if within is not None:
            shape[within:within] = broadcast
            letters.insert(within, "...")
        terms.append("".join(letters))
        inputs.append(drawn_array(draw, dtype, tuple(shape)))
    equation = (", " if one_in(draw, 8) else ",").join(terms)
    if draw(st.booleans()):
        used = sorted(set("".join(terms)) - {"."})
        kept = draw(st.permutations(used))[: draw(st.integers(0, len(used)))] if used else []
        equation += "->" + ("..." if dots is not None else "") + "".join(kept)
    given = {"equation": equation}
    return Case(op, opset, tuple(inputs), given, scale=64.0 * 81, **placed(draw, inputs))


# -- normalisations -------------------------------------------------------------------------------


def drawn_image(draw: Draw, op: str, opset: int, channels: int = 3) -> np.ndarray:
    """(batch, channels, ...) of the operator's type."""
    sizes = drawn_shape(draw, least=1, most=3, empty=False)
    dtype = drawn_types(draw, op, opset)["T"]
    return drawn_array(draw, dtype, (draw(st.integers(1, 3)), channels, *sizes))


def batch_normalization(draw: Draw, op: str, opset: int) -> Case:
    x = drawn_image(draw, op, opset, draw(st.integers(1, 3)))
    channels = (x.shape[1] + one_in(draw, 24),)
    rest = [drawn_array(draw, x.dtype, channels) for _ in range(3)]
    inputs = (x, *rest, drawn_array(draw, x.dtype, channels, POSITIVE))
    given = chosen(draw, {"epsilon": EPSILONS, "momentum": [0.5]})
    outputs = 1
    if opset >= 14 and one_in(draw, 3):
        given["training_mode"], outputs = 1, draw(st.sampled_from([1, 3]))
    if opset < 9:
        given |= chosen(draw, {"spatial": [1]})
    return Case(op, opset, inputs, given, outputs=outputs, ulps=32, scale=8, **placed(draw, inputs))


def instance_normalization(draw: Draw, op: str, opset: int) -> Case:
    x = drawn_image(draw, op, opset, draw(st.integers(1, 3)))
    inputs = (x, *(drawn_array(draw, x.dtype, x.shape[1:2]) for _ in range(2)))
    given = chosen(draw, {"epsilon": EPSILONS})
    return Case(op, opset, inputs, given, ulps=64, scale=8, **placed(draw, inputs))


def group_normalization(draw: Draw, op: str, opset: int) -> Case:
    groups, each = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    x = drawn_image(draw, op, opset, groups * each)
    size = (groups if opset < 21 else groups * each,)
    inputs = (x, *(drawn_array(draw, x.dtype, size) for _ in range(2)))
    given = {"num_groups": groups, **chosen(draw, {"epsilon": EPSILONS})}
    return Case(op, opset, inputs, given, ulps=64, scale=8, **placed(draw, inputs))


def layer_normalization(draw: Draw, op: str, opset: int) -> Case:
    types = drawn_types(draw, op, opset)
    x = drawn_array(draw, types["T"], drawn_shape(draw, least=1, most=4, empty=False))
    axis = draw(st.integers(-x.ndim, x.ndim - 1))
    scale = drawn_array(draw, types.get("V", types["T"]), x.shape[axis:])
    inputs: tuple[np.ndarray | None, ...] = (x, scale)
    if op == "LayerNormalization" and draw(st.booleans()):
        inputs = (*inputs, drawn_array(draw, types["T"], x.shape[axis:]))
    given: dict[str, Any] = {"axis": axis, **chosen(draw, {"epsilon": EPSILONS})}
    outputs = draw(st.integers(1, 3)) if op == "LayerNormalization" else 1
    return Case(op, opset, inputs, given, outputs=outputs, ulps=64, scale=8, **placed(draw, inputs))


def mean_variance(draw: Draw, op: str, opset: int) -> Case:
    dtype = next(iter(drawn_types(draw, op, opset).values()))
    x = drawn_array(draw, dtype, drawn_shape(draw, least=4, most=4, empty=False))
    axes = drawn_axes(draw, 4)
    given = {"axes": axes} if axes and draw(st.booleans()) else {}
    return Case(op, opset, (x,), given, ulps=64, scale=8, **placed(draw, [x]))


def lp_normalization(draw: Draw, op: str, opset: int) -> Case:
    x = drawn_array(
        draw, drawn_types(draw, op, opset)["T"], drawn_shape(draw, least=1, empty=False)
    )
    given = chosen(draw, {"p": [1, 2], "axis": range(-x.ndim, x.ndim)})
    return Case(op, opset, (x,), given, ulps=8, **placed(draw, [x]))


def lrn(draw: Draw, op: str, opset: int) -> Case:
    x = drawn_array(
        draw, drawn_types(draw, op, opset)["T"], drawn_shape(draw, least=4, most=4, empty=False)
    )
    given = {"size": draw(st.sampled_from([1, 3, 5]))}
    given |= chosen(draw, {"alpha": [1e-4, 0.5], "beta": [0.75, 0.5], "bias": [1.0, 2.0]})
    return Case(op, opset, (x,), given, ulps=16, scale=1, **placed(draw, [x]))


CASES = {
    "MatMul": matmul,
    "Gemm": gemm,
    "Det": determinant,
    "Einsum": einsum,
    "BatchNormalization": batch_normalization,
    "InstanceNormalization": instance_normalization,
    "GroupNormalization": group_normalization,
    **dict.fromkeys(["LayerNormalization", "RMSNormalization"], layer_normalization),
    "MeanVarianceNormalization": mean_variance,
    "LpNormalization": lp_normalization,
    "LRN": lrn,
}


@versions_of(CASES)
@pytest.mark.sampled(5)
def test_linear_algebra(op: str, version: int) -> None:
    assert_examples_agree(CASES[op], op, version)
