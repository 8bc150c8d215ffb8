"""Types of com.microsoft: checked at load, and followed through its nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import sardonyx
from sardonyx.errors import InvalidModel
from sardonyx.graph.standard.types import ELEMENT_TYPES, type_name
from sardonyx.ops.microsoft.types import _ROWS, types_of
from tests.support.onnx_builders import FLOAT, INT64, model, node, value
from tests.support.raises import refused

MICROSOFT = "com.microsoft"
HALF, DOUBLE, INT32, UINT8 = (
    TensorProto.FLOAT16,
    TensorProto.DOUBLE,
    TensorProto.INT32,
    TensorProto.UINT8,
)


def of_types(
    op: str, types: list[int | None], last: str = "", outputs: int = 1, **attributes: Any
) -> onnx.ModelProto:
    """A node of com.microsoft, and one of the standard that reads its last result."""
    names = ["" if type_ is None else f"x{i}" for i, type_ in enumerate(types)]
    results = [f"y{i}" for i in range(outputs)]
    nodes = [node(op, names, results, name="it", domain=MICROSOFT, **attributes)]
    nodes += [node(last, results[-1:], ["z"], name="last")] if last else []
    inputs = [value(n, None, t) for n, t in zip(names, types, strict=True) if t is not None]
    return model(nodes, inputs, [onnx.ValueInfoProto(name=nodes[-1].output[0])], com_microsoft=1)


@pytest.mark.parametrize(
    ("op", "types", "attributes", "words"),
    [
        ("Gelu", [INT64], {}, ["tensor(int64)", "'X'", "tensor(double)", "strict=False"]),
        ("FusedMatMul", [FLOAT, HALF], {}, ["'A' is tensor(float)", "'B'", "tensor(float16)"]),
        ("QuantizeLinear", [DOUBLE, DOUBLE, UINT8], {}, ["tensor(double)", "'x'"]),
        ("QLinearConcat", [FLOAT, UINT8, INT32, FLOAT, UINT8], {"axis": 0}, ["tensor(int32)"]),
        ("SkipLayerNormalization", [FLOAT, FLOAT, HALF], {}, ["'gamma'", "cast one"]),
        (
            "GroupQueryAttention",
            [FLOAT, FLOAT, FLOAT, FLOAT, FLOAT, INT64, INT32],
            {"num_heads": 1, "kv_num_heads": 1},
            ["tensor(int64)", "'seqlens_k'", "tensor(int32)"],
        ),
        ("MatMulNBits", [FLOAT, INT32, FLOAT], {"K": 16, "N": 1, "block_size": 16}, ["uint8"]),
        ("Tokenizer", [FLOAT], {"mark": 1, "mincharnum": 1, "pad_value": "#"}, ["string"]),
    ],
)
def test_wrong_types_are_refused_at_load(
    op: str, types: list[int | None], attributes: dict[str, Any], words: list[str]
) -> None:
    with refused(InvalidModel, "'it'", f"com.microsoft::{op}", *words):
        sardonyx.load(of_types(op, types, **attributes))
    relaxed = of_types(op, types, **attributes)
    assert sardonyx.load(relaxed, strict=False).inputs


# The operator, its types, its attributes, which result, and the type of it.
RESULTS: list[tuple[str, list[int | None], dict[str, Any], int, str]] = [
    ("QuantizeLinear", [FLOAT, FLOAT, UINT8], {}, 1, "tensor(uint8)"),
    ("DequantizeLinear", [UINT8, HALF], {}, 1, "tensor(float16)"),
    ("MatMulIntegerToFloat", [UINT8, UINT8, FLOAT, FLOAT], {}, 1, "tensor(float)"),
    ("QGemm", [UINT8, FLOAT, UINT8, UINT8, FLOAT, UINT8], {}, 1, "tensor(float)"),
    ("QGemm", [UINT8, FLOAT, UINT8] * 2 + [INT32, FLOAT, UINT8], {}, 1, "tensor(uint8)"),
    ("MatMulInteger16", [TensorProto.INT16, TensorProto.UINT16], {}, 1, "tensor(int32)"),
    ("MatMulInteger16", [TensorProto.UINT16, TensorProto.UINT16], {}, 1, "tensor(uint32)"),
    ("ReduceSumInteger", [UINT8], {"axes": [0], "keepdims": 1}, 1, "tensor(uint32)"),
    ("MulInteger", [UINT8, UINT8, UINT8], {}, 1, "tensor(int32)"),
    ("MurmurHash3", [FLOAT], {"positive": 0}, 1, "tensor(int32)"),
    ("MurmurHash3", [FLOAT], {}, 1, "tensor(uint32)"),
    ("EmbedLayerNormalization", [INT32, INT32, *[FLOAT] * 5], {}, 2, "tensor(int32)"),
    ("SkipLayerNormalization", [HALF] * 3, {}, 2, "tensor(float)"),
    ("MultiHeadAttention", [HALF] * 3, {"num_heads": 1}, 4, "tensor(float16)"),
    ("Unique", [FLOAT], {}, 3, "tensor(int64)"),
    ("DynamicTimeWarping", [FLOAT], {}, 1, "tensor(int32)"),
    ("BitmaskDropout", [FLOAT], {}, 2, "tensor(uint32)"),
    ("GridSample", [FLOAT, FLOAT], {}, 1, "tensor(float)"),
    (
        "LinearAttention",
        [HALF] * 3,
        {"q_num_heads": 1, "kv_num_heads": 1, "update_rule": "linear"},
        2,
        "tensor(float16)",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("op", "types", "attributes", "outputs", "result"), RESULTS)
def test_types_of_results_are_known_at_load(
    op: str, types: list[int | None], attributes: dict[str, Any], outputs: int, result: str
) -> None:
    """Not takes booleans alone, so that its error at load names the type of the result."""
    with refused(InvalidModel, "'last'", f"Not, opset 18) does not accept {result}"):
        sardonyx.load(of_types(op, types, "Not", outputs, **attributes))


def test_statistics_are_float32_below_opset_17() -> None:
    for op, outputs in (("LayerNormalization", 3), ("SimplifiedLayerNormalization", 2)):
        names = [f"y{i}" for i in range(outputs)]
        first = node(op, ["x", "scale"], names)
        last = node("Not", names[-1:], ["z"], name="last")
        ends = [value("x", None, DOUBLE), value("scale", None, HALF)]
        with refused(InvalidModel, "'last'", "tensor(float)"):
            sardonyx.load(model([first, last], ends, [onnx.ValueInfoProto(name="z")], opset=13))
    first = node("LayerNormalization", ["x", "scale"], ["y"])
    last = node("Not", ["y"], ["z"], name="last")
    with refused(InvalidModel, "'last'", "tensor(float16)"):
        sardonyx.load(model([first, last], ends, [onnx.ValueInfoProto(name="z")], opset=13))


def test_every_row_can_be_read() -> None:
    for name in _ROWS:
        types = types_of(name)
        assert types is not None
        assert all(each.allowed for side in types for each in side)
        known = {type_name(element.dtype) for element in ELEMENT_TYPES.values()}
        known |= {f"sparse_{type_}" for type_ in known}
        assert all(each.allowed <= known for side in types for each in side), name


def test_results_have_the_types_of_the_schema() -> None:
    """An integer result computed from floats is still what the schema says."""
    inputs = np.ones((2, 3), np.uint8), np.float32(0.5), np.uint8(1)
    found = sardonyx.run_op("DequantizeLinear", *inputs, domain=MICROSOFT, opset=1)
    assert found.dtype == np.float32
