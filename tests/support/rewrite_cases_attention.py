"""Attention as exporters write it in small operators, and graphs that only resemble it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.onnx_builders import node
from tests.support.rewrite_cases import RewriteCase

HEADS = (2, 4, 5, 8)
QKV = {"shape": HEADS, "others": {"k": (2, 4, 6, 8), "v": (2, 4, 6, 3)}}
MASKED = {"shape": HEADS, "others": {**QKV["others"], "mask": (2, 1, 5, 6)}}
TRANSPOSED = node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2])
SCORES = node("MatMul", ["x", "kt"], ["s"])
SOFTMAX = node("Softmax", ["s"], ["p"], axis=-1)
MIX = node("MatMul", ["p", "v"], ["y"])
SCALE = {"root": 0.5946035385131836, "scale": 0.125}


def scaled(before: Any) -> list[Any]:
    return [TRANSPOSED, node("MatMul", ["x", "kt"], ["r"]), *before]


OF_ATTENTION = [
    RewriteCase("plain", [TRANSPOSED, SCORES, SOFTMAX, MIX], titles=["Attention"], **QKV),
    RewriteCase(
        "of_old",
        [TRANSPOSED, SCORES, node("Softmax", ["s"], ["p"], axis=3), MIX],
        titles=["Attention"], opset=11, **QKV,
    ),
    RewriteCase(
        "keys_by_token",
        [node("Transpose", ["k"], ["kt"], perm=[0, 2, 3, 1]), SCORES, SOFTMAX, MIX],
        titles=["Transpose", "Attention"],
        shape=HEADS, others={"k": (2, 6, 4, 8), "v": (2, 4, 6, 3)},
    ),
    RewriteCase(
        "keys_given_transposed",
        [node("MatMul", ["x", "k"], ["s"]), SOFTMAX, MIX],
        titles=["Transpose", "Attention"],
        shape=(4, 5, 8), others={"k": (4, 8, 6), "v": (4, 6, 3)},
    ),
    RewriteCase(
        "scaled_after",
        [*scaled([node("Mul", ["r", "scale"], ["s"])]), SOFTMAX, MIX],
        HEADS, ["Attention"], SCALE, QKV["others"],
    ),
    RewriteCase(
        "divided_after",
        [*scaled([node("Div", ["r", "eight"], ["s"])]), SOFTMAX, MIX],
        HEADS, ["Attention"], {"eight": 8.0}, QKV["others"],
    ),
    RewriteCase(
        "scaled_by_roots",
        [TRANSPOSED, node("Mul", ["x", "root"], ["q"]), node("Mul", ["kt", "root"], ["kr"]),
         node("MatMul", ["q", "kr"], ["s"]), SOFTMAX, MIX],
        HEADS, ["Attention"], SCALE, QKV["others"],
    ),
    RewriteCase(
        "masked",
        [*scaled([node("Mul", ["r", "scale"], ["m"]), node("Add", ["m", "mask"], ["s"])]), SOFTMAX,
         MIX],
        HEADS, ["Attention"], SCALE, MASKED["others"],
    ),
    RewriteCase(
        "guarded",
        [*scaled([node("Add", ["mask", "r"], ["s"])]), SOFTMAX, node("IsNaN", ["p"], ["n"]),
         node("Where", ["n", "zero", "p"], ["g"]), node("MatMul", ["g", "v"], ["y"])],
        HEADS, ["Attention"], {"zero": 0.0}, MASKED["others"],
    ),
    RewriteCase(
        "keys_through_flat_heads",
        [node("Reshape", ["k", "flat"], ["kf"]), node("Transpose", ["kf"], ["kx"], perm=[0, 2, 1]),
         node("Reshape", ["kx", "heads"], ["kt"]), SCORES, SOFTMAX, MIX],
        HEADS, ["Attention"],
        {"flat": np.array([-1, 6, 8]), "heads": np.array([2, 4, 8, 6])}, QKV["others"],
    ),
    RewriteCase(
        "shared_heads",
        [node("Unsqueeze", ["k", "two"], ["ku"]), node("Expand", ["ku", "many"], ["ke"]),
         node("Reshape", ["ke", "heads"], ["kh"]),
         node("Transpose", ["kh"], ["kt"], perm=[0, 1, 3, 2]),
         node("Unsqueeze", ["v", "two"], ["vu"]), node("Expand", ["vu", "many"], ["ve"]),
         node("Reshape", ["ve", "heads"], ["vh"]), SCORES, SOFTMAX,
         node("MatMul", ["p", "vh"], ["y"])],
        HEADS, ["Attention"],
        {"two": np.array([2]), "many": np.array([1, 1, 2, 1, 1]), "heads": np.array([2, 4, 6, 8])},
        {"k": (2, 2, 6, 8), "v": (2, 2, 6, 8)},
    ),
]  # fmt: skip

KEPT = ["Transpose", "MatMul", "Softmax", "MatMul"]

OF_NO_ATTENTION = [
    RewriteCase(
        "weights_too", [TRANSPOSED, SCORES, SOFTMAX, MIX], titles=KEPT, outputs=("y", "p"), **QKV
    ),
    RewriteCase(
        "another_axis",
        [TRANSPOSED, SCORES, node("Softmax", ["s"], ["p"], axis=2), MIX], titles=KEPT, **QKV,
    ),
    RewriteCase(
        "more_axes_of_old",
        [TRANSPOSED, SCORES, node("Softmax", ["s"], ["p"], axis=2), MIX],
        titles=KEPT, opset=11, **QKV,
    ),
    RewriteCase(
        "values_broadcast",
        [TRANSPOSED, SCORES, SOFTMAX, MIX], HEADS, KEPT,
        others={"k": (2, 4, 6, 8), "v": (1, 4, 6, 3)},
    ),
    RewriteCase(
        "mask_of_more_axes",
        [*scaled([node("Add", ["r", "mask"], ["s"])]), SOFTMAX, MIX],
        (1, 4, 5, 8), ["Transpose", "MatMul", "Add", "Softmax", "MatMul"],
        others={"k": (1, 4, 6, 8), "v": (1, 4, 6, 3), "mask": (2, 1, 5, 6)},
    ),
    RewriteCase(
        "other_guard",
        [TRANSPOSED, SCORES, SOFTMAX, node("IsNaN", ["p"], ["n"]),
         node("Where", ["n", "one", "p"], ["g"]), node("MatMul", ["g", "v"], ["y"])],
        HEADS, ["Transpose", "MatMul", "Softmax", "IsNaN", "Where", "MatMul"], {"one": 1.0},
        QKV["others"],
    ),
]  # fmt: skip
