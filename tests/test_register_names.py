"""Every register of a program has a name that says what it is, and only one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import sardonyx

MODELS = Path(__file__).parent / "models"
NUMBER = re.compile(r"%-?\d")


def info(name: str, kind: int = TensorProto.FLOAT, shape: Any = (3,)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def program_of(graph: onnx.GraphProto, backend: str, **inputs: Any) -> Any:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    return sardonyx.load(model, backend=backend).trace(**inputs)


def results_of(program: Any) -> list[str]:
    """The names of all results, without those that a block repeats."""
    return [
        segment.names[register]
        for segment in program.segments
        for step in segment.steps
        for register in step.results
    ]


def test_a_step_of_a_rewrite_is_named_after_its_node() -> None:
    model = sardonyx.load("examples/encoder.onnx", backend="numpy")
    program = model.trace(np.zeros((1, 8, 48), np.float32))
    assert "matmul_1/Transpose: float32[1, 6, 8, 8] = Transpose(view_1)" in str(program)
    assert "Attention(transpose, matmul_1/Transpose, transpose_2)" in str(program)
    assert "matmul_1/Transpose" in program._repr_html_()
    assert "matmul_1/Transpose" in repr(program.segments[0])
    assert not NUMBER.search(str(program))


@pytest.mark.parametrize("backend", ["numpy", "jax"])
@pytest.mark.parametrize("name", ["encoder_dynamo", "encoder_torchscript", "cnn_dynamo"])
def test_no_register_is_a_number(name: str, backend: str) -> None:
    model = sardonyx.load(MODELS / f"{name}.onnx", backend=backend)
    shapes = [[s if isinstance(s, int) else 2 for s in i.shape or ()] for i in model.inputs]
    program = model.trace(*(np.ones(shape, np.float32) for shape in shapes))
    assert not NUMBER.search(str(program))
    assert len(set(results_of(program))) == len(results_of(program))


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_each_pass_of_a_loop_has_its_own_names(backend: str) -> None:
    body = helper.make_graph(
        [
            helper.make_node("Add", ["s", "x"], ["s2"]),
            helper.make_node("ReduceMax", ["s2"], ["largest"], keepdims=0),
            helper.make_node("Less", ["largest", "ten"], ["c2"]),
        ],
        "body",
        [info("i", TensorProto.INT64, ()), info("c", TensorProto.BOOL, ()), info("s")],
        [info("c2", TensorProto.BOOL, ()), info("s2")],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["", "go", "x"], ["y"], "repeat", body=body)],
        "loop",
        [info("go", TensorProto.BOOL, ()), info("x")],
        [info("y")],
        [helper.make_tensor("ten", TensorProto.FLOAT, [], [10.0])],
    )
    program = program_of(graph, backend, go=np.array(True), x=np.ones(3, np.float32))
    assert not NUMBER.search(str(program))
    assert len(set(results_of(program))) == len(results_of(program))
    if backend == "numpy":
        assert "s2 3: float32[3] = Add(s2 2, x)" in str(program)
    else:
        assert "Add(y/argument 2, x)" in str(program)


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_the_random_key_is_called_so(backend: str) -> None:
    node = helper.make_node("RandomNormalLike", ["x"], ["y"])
    graph = helper.make_graph([node], "draw", [info("x")], [info("y")])
    program = program_of(graph, backend, x=np.ones(3, np.float32))
    assert "y: float32[3] = RandomNormalLike(random key)" in str(program)
