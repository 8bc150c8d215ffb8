"""`sardonyx.compare` with onnxruntime, which has no NumPy arrays for many of ONNX's types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import sardonyx

pytest.importorskip("onnxruntime")

NARROW = ["BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E5M2", "INT4", "UINT4"]
X = np.float32([0, 1, -2, 3.5, 7])


def info(name: str, kind: int = TensorProto.FLOAT, shape: Any = ("n",)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(
    nodes: list[onnx.NodeProto], inputs: list[Any], outputs: list[Any], opset: int = 21
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "graph", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def cast(kind: int, factor: str = "x") -> onnx.ModelProto:
    """To a narrow type and back; `c` has the type."""
    nodes = [
        helper.make_node("Add", ["x", factor], ["a"]),
        helper.make_node("Cast", ["a"], ["c"], to=kind),
        helper.make_node("Cast", ["c"], ["y"], to=TensorProto.FLOAT),
    ]
    return model_of(nodes, [info("x")], [info("y"), info("c", kind)])


@pytest.mark.parametrize("backend", ["numpy", "jax"])
@pytest.mark.parametrize("size", [0, 1, 4, 5])
@pytest.mark.parametrize("name", NARROW)
def test_narrow_types_are_compared(name: str, size: int, backend: str) -> None:
    kind = getattr(TensorProto, name)
    model = sardonyx.load(cast(kind), backend=backend)
    x = np.abs(X[:size]) if name == "UINT4" else X[:size]
    found = sardonyx.compare(model, "onnxruntime", x)
    assert found.agrees, found
    assert [row.name for row in found.rows] == ["a", "c", "y"]
    assert np.dtype(found["c"].difference.dtype) == helper.tensor_dtype_to_np_dtype(kind)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int4"])
@pytest.mark.parametrize("size", [0, 1, 5])
def test_inputs_of_narrow_types(dtype: str, size: int) -> None:
    x = np.arange(-2, 3)[:size].astype(getattr(ml_dtypes, dtype))
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    nodes = [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)]
    model = sardonyx.load(model_of(nodes, [info("x", kind)], [info("y")]), backend="numpy")
    assert sardonyx.compare(model, "onnxruntime", x).agrees


def test_a_planted_error_in_a_narrow_type_is_found(tmp_path: Path) -> None:
    right, wrong = cast(TensorProto.BFLOAT16), cast(TensorProto.BFLOAT16)
    wrong.graph.node[1].input[0] = "x"
    onnx.save(wrong, tmp_path / "wrong.onnx")
    found = sardonyx.compare(
        sardonyx.load(right, backend="numpy"), ("onnxruntime", tmp_path / "wrong.onnx"), X
    )
    assert found.first is not None
    assert found.first.name == "c"
    assert found.first.is_born_here


@pytest.mark.parametrize("word", ["onnxruntime", "numpy", "jax"])
def test_two_files_each_in_its_own_library(word: str, tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Neg", ["h"], ["y"])]
    one = model_of(nodes, [info("x")], [info("y")])
    nodes[1] = helper.make_node("Exp", ["h"], ["y"])
    onnx.save(one, tmp_path / "one.onnx")
    onnx.save(model_of(nodes, [info("x")], [info("y")]), tmp_path / "other.onnx")
    found = sardonyx.compare(tmp_path / "one.onnx", (word, tmp_path / "other.onnx"), X)
    assert [row.name for row in found.rows] == ["h", "y"]
    assert not found["h"].parts
    assert found.first is found["y"]
    assert found.b == f"b ({word})"
    turned = sardonyx.compare((word, tmp_path / "other.onnx"), sardonyx.load(one), X)
    assert turned.first is turned["y"]
    assert sardonyx.compare((word, one), ("numpy", one), X).agrees


@pytest.mark.parametrize("side", [("onnxruntime",), ("torch", "m.onnx"), ("jax", "numpy"), (1, 2)])
def test_tuples_that_are_no_sides(side: Any) -> None:
    with pytest.raises(sardonyx.InvalidInput, match="is a word"):
        sardonyx.compare("examples/encoder.onnx", side, X)


def test_strings_sequences_and_optionals() -> None:
    words = np.array(["a", "", "ü"], object)
    text = [info("x", TensorProto.STRING)], [info("y", TensorProto.STRING)]
    nodes = [helper.make_node("StringConcat", ["x", "x"], ["y"])]
    model = sardonyx.load(model_of(nodes, *text), backend="numpy")
    assert sardonyx.compare(model, "onnxruntime", words).agrees

    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["s"]),
        helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0),
        helper.make_node("Optional", ["x"], ["o"]),
        helper.make_node("OptionalHasElement", ["o"], ["has"]),
    ]
    outputs = [info("y"), info("has", TensorProto.BOOL, ())]
    model = sardonyx.load(model_of(nodes, [info("x")], outputs), backend="numpy")
    found = sardonyx.compare(model, "onnxruntime", X)
    assert found.agrees
    assert [row.name for row in found.rows] == ["s", "y", "o", "has"]


def test_what_onnxruntime_cannot_return_is_left_out_with_a_sentence() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("SequenceConstruct", ["f", "f"], ["s"]),
        helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0),
    ]
    proto = model_of(nodes, [info("x", TensorProto.BFLOAT16)], [info("y")])
    model = sardonyx.load(proto, backend="numpy")
    found = sardonyx.compare(model, "onnxruntime", X.astype(ml_dtypes.bfloat16))
    assert found.agrees
    assert [row.name for row in found.rows] == ["f", "y"]
    assert "cannot return it beside bfloat16" in found.left_out["s"]
    assert "'s' is left out: onnxruntime" in repr(found)
    assert "is left out" in found._repr_html_()


def test_what_onnxruntime_cannot_run_is_an_error_of_this_library() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["c"], to=TensorProto.BFLOAT16),
        helper.make_node("Sinh", ["c"], ["s"]),
        helper.make_node("Cast", ["s"], ["y"], to=TensorProto.FLOAT),
    ]
    proto = model_of(nodes, [info("x")], [info("y")], opset=22)
    model = sardonyx.load(proto, backend="numpy")
    with pytest.raises(sardonyx.InvalidInput, match=r"onnxruntime cannot open .*Sinh"):
        sardonyx.compare(model, "onnxruntime", X)
