"""Labels that are strings: devices compute scores and places, and the host looks names up."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import sardonyx
from tests.ops.forests import grown, with_ids
from tests.ops.ml_oracle import drawn

ML = "ai.onnx.ml"
FEATURES = 3
NAMES = {"classlabels_strings": ["low", "middle", "high"]}

rng = np.random.default_rng(0)
CLASSIFIERS: dict[str, dict[str, Any]] = {
    "LinearClassifier": {"coefficients": drawn(3, FEATURES), "intercepts": drawn(3), **NAMES},
    "SVMClassifier": {
        "coefficients": drawn(2, 6),
        "support_vectors": drawn(6, FEATURES),
        "vectors_per_class": [2, 2, 2],
        "kernel_type": "RBF",
        "kernel_params": [0.5, 0.0, 3.0],
        "rho": drawn(3),
        **NAMES,
    },
    "TreeEnsembleClassifier": {
        **with_ids([grown(rng, targets=3, votes="all") for _ in range(5)], "class"),
        **NAMES,
    },
}


def model_of(*nodes: onnx.NodeProto, outputs: dict[str, int]) -> onnx.ModelProto:
    types = {
        name: helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()
    }
    graph = helper.make_graph(
        list(nodes),
        "classes",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, FEATURES])],
        list(types.values()),
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(ML, 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def pipeline(operator: str) -> onnx.ModelProto:
    """As scikit-learn's converter writes it: steps on the device follow those of the labels."""
    return model_of(
        helper.make_node(operator, ["x"], ["y", "s"], domain=ML, **CLASSIFIERS[operator]),
        helper.make_node("Identity", ["y"], ["label"]),
        helper.make_node("Normalizer", ["s"], ["scores"], domain=ML, norm="L1"),
        outputs={"label": TensorProto.STRING, "scores": TensorProto.FLOAT},
    )


def inputs(rows: int) -> np.ndarray:
    return np.random.default_rng(rows).integers(-3, 4, (rows, FEATURES)).astype(np.float32)


@pytest.mark.parametrize("operator", CLASSIFIERS)
@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_labels_and_scores_are_those_of_onnxruntime(operator: str, backend: str) -> None:
    proto = pipeline(operator)
    model = sardonyx.load(proto, backend=backend)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    for rows in (1, 9):
        label, scores = model(inputs(rows))
        expected_label, expected_scores = session.run(None, {"x": inputs(rows)})
        assert label.tolist() == expected_label.tolist()
        np.testing.assert_allclose(scores, expected_scores, rtol=1e-4, atol=1e-5)
    assert [result.shape for result in model(inputs(0))] == [(0,), (0, 3)]


@pytest.mark.parametrize("operator", CLASSIFIERS)
def test_only_the_lookup_is_on_the_host_and_it_comes_last(operator: str) -> None:
    program = sardonyx.load(pipeline(operator), backend="jax").trace(inputs(4))
    segments = [stage.segment for stage in program.stages if stage.segment is not None]
    assert [segment.host for segment in segments] == [False, True]
    assert [len(segment.steps) for segment in segments] == [2, 1]


def test_names_that_later_nodes_read_are_looked_up_in_time() -> None:
    table = {"keys_strings": NAMES["classlabels_strings"], "values_int64s": [7, 8, 9]}
    proto = model_of(
        helper.make_node(
            "LinearClassifier", ["x"], ["y", "s"], domain=ML, **CLASSIFIERS["LinearClassifier"]
        ),
        helper.make_node("LabelEncoder", ["y"], ["n"], domain=ML, **table),
        helper.make_node("Add", ["n", "n"], ["twice"]),
        outputs={"y": TensorProto.STRING, "twice": TensorProto.INT64},
    )
    names, twice = sardonyx.load(proto, backend="jax")(inputs(9))
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    expected_names, expected = session.run(None, {"x": inputs(9)})
    assert names.tolist() == expected_names.tolist()
    np.testing.assert_array_equal(twice, expected)


def test_scores_alone_need_no_host() -> None:
    proto = model_of(
        helper.make_node(
            "LinearClassifier", ["x"], ["", "s"], domain=ML, **CLASSIFIERS["LinearClassifier"]
        ),
        outputs={"s": TensorProto.FLOAT},
    )
    program = sardonyx.load(proto, backend="jax").trace(inputs(4))
    assert not any(stage.segment.host for stage in program.stages if stage.segment is not None)


def test_under_a_transformation_the_error_names_the_node() -> None:
    jax = pytest.importorskip("jax")
    model = sardonyx.load(pipeline("LinearClassifier"), backend="jax")
    with pytest.raises(sardonyx.InvalidInput, match="LinearClassifier"):
        jax.jit(lambda x: model(x)[1])(inputs(4))
