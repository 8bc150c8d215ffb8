"""Layers of networks."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.property.case import Case
from tests.property.disagreements.entry import ONNXRUNTIME, SARDONYX, Disagreement
from tests.property.features import (
    batch_of_none,
    doubles,
    dtype_in,
    floats,
    halves,
    has,
    is_constant_over_axes,
    is_no_power_of_two,
    largest,
    shape_of,
    shares_keys,
)


def attention(
    query: np.ndarray,
    keys: np.ndarray,
    past: np.ndarray | None = None,
    mask: np.ndarray | None = None,
    *,
    opset: int = 23,
    mode: int | None = None,
    **given: Any,
) -> Case:
    """One query of one number, and keys that are their own values."""
    q, k = query.reshape(1, 1, -1, 1), keys.reshape(1, 1, -1, 1)
    if past is None:
        return Case("Attention", opset, (q, k, k), given)
    past, outputs = past.reshape(1, 1, -1, 1), 3
    if mode is not None:
        given, outputs = given | {"qk_matmul_output_mode": mode}, 4
    return Case("Attention", opset, (q, k, k, mask, past, past), given, outputs=outputs)


ENTRIES = (
    Disagreement(
        ("LSTM",),
        "`clip`: onnxruntime does not clip the cell before the activation `h`.",
        "`clip` applies to the input of activations, and `h` is one of them.",
        SARDONYX,
        lambda case: "clip" in case.attributes,
        Case(
            "LSTM",
            14,
            (
                np.ones((9, 1, 1), np.float32),
                np.ones((1, 4, 1), np.float32),
                np.ones((1, 4, 1), np.float32),
            ),
            {"hidden_size": 1, "clip": 0.25},
        ),
    ),
    Disagreement(
        ("GRU", "LSTM", "RNN"),
        "Softplus of large numbers as an activation: onnxruntime returns infinity.",
        "log(1 + exp(x)) is about x for large x, and not infinite.",
        SARDONYX,
        lambda case: (
            "Softplus" in case.attributes.get("activations", ())
            and any(x is not None and largest(x) > 20 for x in case.inputs)
        ),
        Case(
            "RNN",
            14,
            tuple(floats(number).reshape(1, 1, 1) for number in (100, 1, 0)),
            {"hidden_size": 1, "activations": ["Softplus"]},
        ),
    ),
    Disagreement(
        ("QuantizeLinear",),
        "float16: onnxruntime divides in float32.",
        "From opset 23 on, the type of `y_scale` sets the precision of the division. Earlier "
        "versions do not contradict this.",
        SARDONYX,
        lambda case: dtype_in(case) == "float16" and has(case, is_no_power_of_two, 1),
        Case("QuantizeLinear", 23, (halves(5.25), halves(0.1), None)),
    ),
    Disagreement(
        ("QuantizeLinear",),
        "Infinity in float16: sardonyx returns the largest value of the quantized type, "
        "onnxruntime the smallest.",
        "The formula saturates. In float32, onnxruntime saturates too.",
        SARDONYX,
        lambda case: dtype_in(case) == "float16" and has(case, np.isposinf),
        Case("QuantizeLinear", 21, (halves(np.inf), halves(1), None)),
    ),
    Disagreement(
        ("Attention",),
        "`is_causal` with a past: onnxruntime aligns the first query with the first key of the "
        "past.",
        "Query i attends key j if j <= i + past_sequence_length.",
        SARDONYX,
        lambda case: case.attributes.get("is_causal") == 1 and case.inputs[4] is not None,
        attention(floats(1), floats(1, 2), floats(3), is_causal=1),
    ),
    Disagreement(
        ("Attention",),
        "`qk_matmul_output_mode` 2: sardonyx returns -inf for masked elements, onnxruntime the "
        "smallest finite number.",
        "A forbidden element adds -inf to the bias.",
        SARDONYX,
        lambda case: case.attributes.get("qk_matmul_output_mode") == 2,
        attention(floats(1), floats(1), floats(3), np.array([[False, True]]), mode=2),
    ),
    Disagreement(
        ("Attention",),
        "float64 from opset 25 on, and earlier if heads share keys: onnxruntime computes the root "
        "of the scale in float32.",
        "The standard's function body, which onnxruntime runs, does this too. But the result has "
        "the precision of its type.",
        SARDONYX,
        lambda case: dtype_in(case) == "float64" and (case.opset >= 25 or shares_keys(case)),
        attention(doubles(0.1), doubles(0.3, 0.9), opset=25, scale=0.5),
    ),
    Disagreement(
        ("MatMul",),
        "An inner axis of size 0: with batches that broadcast, onnxruntime returns a batch that is "
        "too small; with a vector, it leaves the result unset.",
        "The operator behaves like numpy.matmul, which broadcasts the batches and returns zeros.",
        SARDONYX,
        lambda case: (
            0 in case.inputs[0].shape[-1:]
            and (
                1 in (len(shape_of(case)), len(shape_of(case, 1)))
                or shape_of(case)[:-2] != shape_of(case, 1)[:-2]
            )
        ),
        Case("MatMul", 13, (np.zeros((1, 1, 0), np.int64), np.zeros((2, 0, 1), np.int64))),
    ),
    Disagreement(
        ("Gemm",),
        "An inner axis of size 0: onnxruntime ignores `beta`.",
        "The product is 0, and C is still multiplied by `beta`.",
        SARDONYX,
        lambda case: (
            0 in case.inputs[0].shape
            and len(case.inputs) > 2
            and case.attributes.get("beta", 1.0) != 1.0
        ),
        Case(
            "Gemm",
            13,
            (np.zeros((1, 0), np.float32), np.zeros((0, 1), np.float32), floats(1)),
            {"beta": 2.0},
        ),
    ),
    Disagreement(
        ("MatMul",),
        "A batch axis of size 0 against one of size 1 or a missing one, and a matrix without rows "
        "times a vector: onnxruntime raises an error.",
        "The operator behaves like numpy.matmul, which broadcasts 1 to 0.",
        SARDONYX,
        batch_of_none,
        Case("MatMul", 13, (floats(1, 2), np.zeros((0, 2, 3), np.float32))),
    ),
    Disagreement(
        ("BatchNormalization",),
        "`training_mode` with one output: onnxruntime requires all three.",
        "The running mean and variance are optional outputs.",
        SARDONYX,
        lambda case: case.attributes.get("training_mode") == 1 and case.outputs == 1,
        Case(
            "BatchNormalization",
            15,
            (np.ones((2, 1, 2), np.float32), *(floats(1) for _ in range(4))),
            {"training_mode": 1},
        ),
    ),
    Disagreement(
        ("GroupNormalization",),
        "float64 from opset 21 on: onnxruntime computes the statistics in float32.",
        "`stash_type` sets the precision, and is float32 by default. sardonyx uses at least the "
        "precision of the input.",
        ONNXRUNTIME,
        lambda case: case.opset >= 21 and dtype_in(case) == "float64",
        Case(
            "GroupNormalization",
            21,
            (doubles(0.1, 0.2, 0.7).reshape(1, 1, 3), doubles(1), doubles(0)),
            {"num_groups": 1},
        ),
    ),
    Disagreement(
        ("MeanVarianceNormalization",),
        "Elements that are almost equal: sardonyx returns 0, onnxruntime NaN or noise.",
        "The standard's formula is the mean of the squared deviations. onnxruntime computes the "
        "difference of two means, which can be negative.",
        SARDONYX,
        is_constant_over_axes,
        Case("MeanVarianceNormalization", 13, (np.full((1, 1, 1, 3), 3.3, np.float32),)),
    ),
)
