"""Long programs: cut between their layers, so that equal pieces are compiled once."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import sardonyx
from sardonyx.graph.tracing import tape

WIDTH = 8
X = np.random.default_rng(0).normal(size=(WIDTH, WIDTH)).astype(np.float32)
LAYERS = 60


@pytest.fixture(autouse=True)
def _cut_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let programs of 128 steps be long, so that the tests are short."""
    monkeypatch.setattr(tape, "LONGEST_SEGMENT", 128)


def residual_network(layers: int) -> onnx.ModelProto:
    """Layers that each read their input twice, with weights of their own."""
    rng, nodes, weights, last = np.random.default_rng(1), [], [], "x"
    for i in range(layers):
        weight = rng.normal(size=(WIDTH, WIDTH)).astype(np.float32) / WIDTH
        weights.append(numpy_helper.from_array(weight, f"w{i}"))
        nodes += [
            helper.make_node("MatMul", [last, f"w{i}"], [f"product{i}"]),
            helper.make_node("Tanh", [f"product{i}"], [f"shares{i}"]),
            helper.make_node("Sub", [f"shares{i}", "mean"], [f"centred{i}"]),
            helper.make_node("Add", [last, f"centred{i}"], [f"sum{i}"]),
            helper.make_node("Relu", [f"sum{i}"], [f"layer{i}"]),
        ]
        last = f"layer{i}"
    weights.append(numpy_helper.from_array(np.float32(1 / WIDTH), "mean"))
    return _model(nodes, weights, [last])


def _model(nodes: list[Any], weights: list[Any], outputs: list[str]) -> onnx.ModelProto:
    def info(name: str) -> Any:
        return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [WIDTH, WIDTH])

    graph = helper.make_graph(nodes, "long", [info("x")], [info(n) for n in outputs], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def test_equal_layers_of_a_long_program_are_compiled_once() -> None:
    proto = residual_network(LAYERS)
    model = sardonyx.load(proto, backend="jax")
    expected = sardonyx.load(proto, backend="numpy")(X)
    for _ in range(2):
        np.testing.assert_allclose(model(X), expected, rtol=1e-4, atol=1e-5)
    told = model.stats()
    assert told.compiles <= 2 <= told.shared


def test_tracing_a_long_program_compiles_nothing() -> None:
    model = sardonyx.load(residual_network(LAYERS), backend="jax")
    assert len(model.trace(x=X).segments) > 2
    assert model.stats().compiles == 0


def test_a_value_is_read_after_pieces_that_have_not_run() -> None:
    proto = residual_network(LAYERS)
    graph = proto.graph
    graph.node.extend(
        [
            helper.make_node("NonZero", [graph.output[0].name], ["places"]),
            helper.make_node("Transpose", ["places"], ["rows"]),
            helper.make_node("GatherND", ["x", "rows"], ["y"]),
        ]
    )
    graph.output[0].name = "y"
    graph.output[0].type.tensor_type.ClearField("shape")
    model = sardonyx.load(proto, backend="jax")
    np.testing.assert_array_equal(model(X), sardonyx.load(proto, backend="numpy")(X))


def test_values_of_every_piece_can_be_outputs() -> None:
    proto = residual_network(LAYERS)
    names = [f"sum{i}" for i in range(0, LAYERS - 5, 9)]
    proto = _model(list(proto.graph.node), list(proto.graph.initializer), names)
    results = sardonyx.load(proto, backend="jax")(X)
    expected = sardonyx.load(proto, backend="numpy")(X)
    for ours, theirs in zip(results, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_steps_that_do_not_repeat_are_cut_too() -> None:
    rng, last, nodes = np.random.default_rng(2), ["x"], []
    for i in range(400):
        op = rng.choice(["Sin", "Tanh", "Mean", "Max"])
        inputs = [last[-1]] if op in ("Sin", "Tanh") else [last[-1], *rng.choice(last, 1)]
        nodes.append(helper.make_node(op, inputs, [f"v{i}"]))
        last = [*last[-2:], f"v{i}"]
    proto = _model(nodes, [], [last[-1]])
    program = sardonyx.load(proto, backend="jax").trace(x=X)
    lengths = [len(segment.steps) for segment in program.segments]
    assert sum(lengths) > 300
    assert max(lengths) < 128


@pytest.mark.slow
def test_a_donated_input_is_reused_in_the_piece_that_reads_it_last() -> None:
    jax = pytest.importorskip("jax")
    model = sardonyx.load(residual_network(LAYERS), backend="jax")
    expected = np.asarray(model(jax.numpy.asarray(X)))
    donated = jax.device_put(X)
    np.testing.assert_array_equal(model.bind(donate="x")(donated), expected)
    assert donated.is_deleted()
