"""Nodes on results of trees are folded into the leaves where that is exact."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import sardonyx
from tests.ops.forests import grown, with_ids

ROWS, FEATURES = 37, 3
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
CONSTANTS = {
    "one": np.ones(1, np.float32),
    "two": np.full((1, 1), 2, np.float32),
    "zero": np.zeros((), np.float32),
    "column": np.asarray([-1, 1]),
    "three": np.asarray([3, 1]),
    "several": np.arange(ROWS, dtype=np.float32)[:, None],
    "backwards": np.asarray([2, 1, 0]),
    "first": np.asarray([0, -3, -3]),
}


def tree(name: str, seed: int, matrix: str = "x", **changed: Any) -> onnx.NodeProto:
    known = with_ids([grown(np.random.default_rng(seed))]) | {"n_targets": 1} | changed
    return helper.make_node("TreeEnsembleRegressor", [matrix], [name], domain="ai.onnx.ml", **known)


def labelled(name: str, seed: int) -> list[onnx.NodeProto]:
    """Whole numbers in place of a tree's leaves, as in an isolation forest."""
    known = with_ids([grown(np.random.default_rng(seed))]) | {"n_targets": 1}
    leaves = list(range(len(known["target_weights"])))
    known["target_weights"] = [float(leaf) for leaf in leaves]
    depths = {"keys_int64s": leaves, "values_floats": [1.0 + leaf % 5 for leaf in leaves]}
    return [
        helper.make_node(
            "TreeEnsembleRegressor", ["x"], [f"{name} 0"], domain="ai.onnx.ml", **known
        ),
        helper.make_node("Cast", [f"{name} 0"], [f"{name} 1"], to=INT64),
        helper.make_node(
            "LabelEncoder", [f"{name} 1"], [f"{name} 2"], domain="ai.onnx.ml", **depths
        ),
        helper.make_node("Reshape", [f"{name} 2", "column"], [f"{name} 3"]),
        helper.make_node("Log", [f"{name} 3"], [f"{name} 4"]),
        helper.make_node("Mul", [f"{name} 4", "two"], [f"{name} 5"]),
        helper.make_node("Add", [f"{name} 5", f"{name} 3"], [name]),
    ]


def node(op: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(","), [output], **attributes)


def model_of(nodes: list[onnx.NodeProto], *outputs: str) -> onnx.ModelProto:
    read = {name for one in nodes for name in one.input}
    graph = helper.make_graph(
        nodes,
        "trees",
        [helper.make_tensor_value_info("x", FLOAT, [None, FEATURES])],
        [onnx.ValueInfoProto(name=output) for output in outputs],
        [onnx.numpy_helper.from_array(v, k) for k, v in CONSTANTS.items() if k in read],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def inputs() -> np.ndarray:
    return np.random.default_rng(0).integers(-3, 4, (ROWS, FEATURES)).astype(np.float32)


def operators(model: sardonyx.Model) -> list[str]:
    return [step.node.op_type for stage in model.trace(inputs()).stages for step in stage.steps]


def assert_as_in_onnxruntime(proto: onnx.ModelProto, model: Any) -> None:
    x = inputs()
    # onnxruntime wants types of outputs.
    typed = onnx.shape_inference.infer_shapes(proto)
    session = onnxruntime.InferenceSession(typed.SerializeToString())
    for actual, expected in zip(_several(model(x)), session.run(None, {"x": x}), strict=True):
        assert actual.dtype == expected.dtype
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def _several(results: Any) -> Any:
    return results if isinstance(results, tuple) else (results,)


FOREST = [*labelled("a", 1), *labelled("b", 2), *labelled("c", 3)]
REGRESSOR = "TreeEnsembleRegressor"

CASES: dict[str, tuple[list[onnx.NodeProto], list[str]]] = {
    "a sum of trees is one forest": (
        [*FOREST, node("Sum", "a,b,c", "y"), node("Div", "y,two", "z")],
        [REGRESSOR, "Div"],
    ),
    "a chain behind one tree": ([*labelled("a", 1), node("Neg", "a", "z")], [REGRESSOR]),
    "columns that a tree reads": (
        [node("Gather", "x,backwards", "g", axis=1), tree("t", 1, "g"), node("Exp", "t", "z")],
        [REGRESSOR],
    ),
    "columns from the end": (
        [
            node("Gather", "x,first", "g", axis=1),
            tree("t", 1, "g"),
            tree("u", 2),
            node("Add", "t,u", "z"),
        ],
        [REGRESSOR],
    ),
    "a tree that is read twice is walked once": (
        [
            tree("t", 1),
            node("Exp", "t", "u"),
            node("Sum", "t,several", "v"),
            node("Add", "u,v", "z"),
        ],
        [REGRESSOR, "Exp", "Sum", "Add"],
    ),
    "constants of many elements": (
        [tree("t", 1), node("Mul", "t,several", "z")],
        [REGRESSOR, "Mul"],
    ),
    "another dtype at the end": (
        [tree("t", 1), node("Exp", "t", "u"), node("Cast", "u", "z", to=INT64)],
        [REGRESSOR, "Cast"],
    ),
    "a negative zero": (
        [
            tree("t", 1),
            node("Mul", "t,zero", "u"),
            node("Add", "u,several", "w"),
            node("Cast", "w", "z", to=INT64),
        ],
        [REGRESSOR, "Mul", "Add", "Cast"],
    ),
    "base values": ([tree("t", 1, base_values=[1.5]), node("Exp", "t", "z")], [REGRESSOR, "Exp"]),
    "trees over different matrices": (
        [tree("t", 1), node("Exp", "x", "e"), tree("u", 2, "e"), node("Add", "t,u", "z")],
        [REGRESSOR, "Exp", REGRESSOR, "Add"],
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_results_and_steps(case: str, backend: str) -> None:
    nodes, expected = CASES[case]
    proto = model_of(nodes, "z")
    model = sardonyx.load(proto, backend=backend)
    assert operators(model) == expected
    assert_as_in_onnxruntime(proto, model)


def test_a_transform_stays_behind_its_tree() -> None:
    """Here onnxruntime leaves a single score as it is."""
    nodes = [tree("t", 1, post_transform="LOGISTIC"), node("Exp", "t", "z")]
    model = sardonyx.load(model_of(nodes, "z"), backend="numpy")
    assert operators(model) == [REGRESSOR, "Exp"]


def test_values_within_the_chain_may_be_outputs() -> None:
    proto = model_of([*FOREST, node("Sum", "a,b,c", "z")], "z", "a 3", "b")
    assert_as_in_onnxruntime(proto, sardonyx.load(proto, backend="numpy"))


def test_a_reshape_to_the_number_of_leaves_is_no_column() -> None:
    """The table of leaves has the shape that the reshape names, but rows do not."""
    known = with_ids([grown(np.random.default_rng(1))]) | {"n_targets": 1}
    leaves = len(known["target_weights"])
    nodes = [tree("t", 1), node("Reshape", "t,three", "u"), node("Exp", "u", "z")]
    proto = model_of(nodes, "z")
    proto.graph.initializer[0].CopyFrom(
        onnx.numpy_helper.from_array(np.asarray([leaves, 1]), "three")
    )
    x = np.random.default_rng(0).normal(size=(leaves, FEATURES)).astype(np.float32)
    model = sardonyx.load(proto, backend="numpy")
    plain = sardonyx.load(proto, backend="numpy", rewrites=False)
    np.testing.assert_array_equal(model(x), plain(x))
    with pytest.raises(sardonyx.InvalidInput, match="Reshape"):
        model(inputs())


def test_a_replaced_constant_changes_the_leaves() -> None:
    model = sardonyx.load(model_of([tree("t", 1), node("Mul", "t,one", "z")], "z"), backend="numpy")
    other = sardonyx.load(model_of([tree("t", 1), node("Mul", "t,one", "z")], "z"), backend="numpy")
    before = model(inputs())
    model.params["one"] = np.full(1, 3, np.float32)
    np.testing.assert_allclose(model(inputs()), 3 * before, rtol=1e-6)
    np.testing.assert_array_equal(other(inputs()), before)


def test_without_rewrites_each_node_is_a_step() -> None:
    proto = model_of([*FOREST, node("Sum", "a,b,c", "z")], "z")
    assert len(operators(sardonyx.load(proto, backend="numpy", rewrites=False))) > 15


def test_folding_is_done_once_for_all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    model = sardonyx.load(model_of([*FOREST, node("Sum", "a,b,c", "z")], "z"), backend="numpy")
    model(inputs())
    before = model.stats().traces
    monkeypatch.setattr("sardonyx.graph.tracing.tree_folding._Folding.graph", None)
    assert model(inputs()[:5]).shape == (5, 1)
    assert model.stats().traces == before + 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", ["a sum of trees is one forest", "base values"])
def test_graphs_are_freed_with_their_models(case: str) -> None:
    model = sardonyx.load(model_of(CASES[case][0], "z"), backend="numpy")
    model(inputs())
    graph = weakref.ref(model._source.graph)
    del model
    gc.collect()
    assert graph() is None


def test_new_numbers_of_rows_share_a_program() -> None:
    """Padded rows walk the trees too, and must not be seen."""
    proto = model_of([*FOREST, node("Sum", "a,b,c", "z")], "z")
    model, plain = (sardonyx.load(proto, backend=backend) for backend in ("jax", "numpy"))
    for rows in (20, 22, 24, 27):
        model(inputs()[:rows])
    before = model.stats().compiles
    for rows in (21, 25, 28):
        np.testing.assert_allclose(model(inputs()[:rows]), plain(inputs()[:rows]), rtol=1e-6)
    assert model.stats().compiles == before
