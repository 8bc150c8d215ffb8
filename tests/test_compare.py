"""`sardonyx.compare`: two computations of a graph, and where they part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import sardonyx
from sardonyx.comparing.differences import TOLERANCES, difference
from sardonyx.comparing.page import MOST_ROWS

ENCODER = Path("examples/encoder.onnx")
X = np.random.default_rng(0).normal(size=(1, 8, 48)).astype(np.float32)


def product_in_the_middle(proto: onnx.ModelProto) -> tuple[onnx.NodeProto, onnx.TensorProto]:
    """A node of a transformer that reads a matrix, and the matrix."""
    weights = {t.name: t for t in proto.graph.initializer if len(t.dims) == 2}
    found = [
        (node, weights[name])
        for node in proto.graph.node
        if node.op_type in ("MatMul", "Gemm")
        for name in node.input
        if name in weights
    ]
    return found[len(found) // 2]


def planted() -> tuple[bytes, str, str]:
    """The encoder with one element of a weight in its middle changed."""
    proto = onnx.load(ENCODER)
    node, weight = product_in_the_middle(proto)
    array = numpy_helper.to_array(weight).copy()
    array[0, 0] += 1
    weight.CopyFrom(numpy_helper.from_array(array, weight.name))
    return proto.SerializeToString(), node.output[0], weight.name


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_a_planted_error_is_found_at_its_node(backend: str) -> None:
    changed, output, weight = planted()
    wrong = sardonyx.load(changed, backend=backend, compile="now")
    found = sardonyx.compare(wrong, ENCODER, X)
    assert found.first is not None
    assert found.first.name == output
    assert found.first.inputs[weight].parts
    assert not found.agrees
    assert output in repr(found)
    before = [row.name for row in found.rows].index(output)
    assert not any(row.parts for row in found.rows[:before])
    assert len(repr(found).splitlines()) < 24


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_onnxruntime_agrees_and_a_changed_operator_is_found(backend: str) -> None:
    pytest.importorskip("onnxruntime")
    right = sardonyx.load(ENCODER, backend=backend, compile="now")
    assert sardonyx.compare(right, "onnxruntime", X).agrees
    proto = onnx.load(ENCODER)
    node, _ = product_in_the_middle(proto)
    after = next(n for n in proto.graph.node if n.op_type == "Add" and node.output[0] in n.input)
    after.op_type = "Sub"
    wrong = sardonyx.load(proto, backend=backend, compile="now")
    found = sardonyx.compare(wrong, right, {"x": X})
    assert found.first is not None
    assert found.first.name == after.output[0]
    assert found.first.operator == "Sub"
    assert found.first.is_born_here
    assert "the error is born here" in repr(found)


def test_a_session_has_its_outputs_and_replaced_params_are_passed_on() -> None:
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(str(ENCODER), providers=["CPUExecutionProvider"])
    found = sardonyx.compare(ENCODER, session, X)
    assert found.agrees
    assert len(found.rows) == 1
    assert found.only_in_a
    model = sardonyx.load(ENCODER, backend="numpy")
    _, _, weight = planted()
    model.params[weight] = model.params.host(weight) * 2
    assert sardonyx.compare(model, "onnxruntime", X).agrees
    assert sardonyx.compare("numpy", model, X, values="layer_norm*").agrees


@pytest.mark.slow
def test_groups_give_what_one_group_gives() -> None:
    whole = sardonyx.compare(ENCODER, "numpy", X)
    parts = sardonyx.compare(ENCODER, "numpy", X, group_bytes=20_000)
    assert [row.name for row in whole.rows] == [row.name for row in parts.rows]
    assert parts.agrees


def test_page_and_table() -> None:
    found = sardonyx.compare(ENCODER, "numpy", X)
    page = found._repr_html_()
    assert page.count("<circle") == len(found.rows) == len(found.table)
    assert page.count("<details>") == min(len(found.rows), MOST_ROWS) + 1
    assert found["layer_norm"].difference.cosine == pytest.approx(1)
    with pytest.raises(KeyError):
        found["nothing"]


TEXT = """<ir_version: 10, opset_import: ["": 22]> g (float[n] x) => (float[n] {last}) {{
  a = Neg (x) {last} = Relu (a) }}"""


def test_values_of_other_graphs_are_listed() -> None:
    ones, others = (parser.parse_model(TEXT.format(last=name)) for name in ("y", "z"))
    x = np.ones(3, np.float32)
    found = sardonyx.compare(sardonyx.load(ones), sardonyx.load(others), x)
    assert [row.name for row in found.rows] == ["a"]
    assert (found.only_in_a, found.only_in_b) == (("y",), ("z",))


def test_bad_sides_are_refused() -> None:
    with pytest.raises(sardonyx.InvalidInput, match="Both sides are words"):
        sardonyx.compare("jax", "numpy", X)


@pytest.mark.parametrize("word", ["numpy", "jax", "onnxruntime"])
def test_any_model_can_be_compared_with_itself_elsewhere(word: str) -> None:
    """Loaded from a proto or recorded, with weights that were replaced since."""
    ops = sardonyx.opset(20)
    x = np.linspace(-1, 1, 3, dtype=np.float32)
    loaded = sardonyx.load(parser.parse_model(TEXT.format(last="y")))
    recorded = sardonyx.record(lambda x: ops.Relu(x * X[0, 0, :3]), {"x": ("float32", ["n"])})
    (name,) = recorded.params
    recorded.params[name] = np.full(3, 7, np.float32)
    for model in (loaded, recorded):
        assert sardonyx.compare(model, word, x).agrees
        assert sardonyx.compare(word, model, x).agrees


FLOATS = [np.float16, np.float32, np.float64, np.complex64, ml_dtypes.bfloat16]


@pytest.mark.parametrize("dtype", [*FLOATS, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_nan_and_infinity_agree_with_themselves(dtype: Any) -> None:
    is_short = dtype is ml_dtypes.float8_e4m3fn  # It has no infinity.
    a = np.asarray([1, np.nan, 2 if is_short else np.inf, 0], dtype)
    assert not difference(a, a.copy(), TOLERANCES).parts
    b = a.copy()
    b[1] = 1
    assert difference(a, b, TOLERANCES).finding == "1 elements are infinite or NaN in one of them"


def test_kinds_of_values() -> None:
    def parts(a: Any, b: Any) -> bool:
        return difference(a, b, TOLERANCES).parts

    ints = np.asarray([1, 2], ml_dtypes.int4)
    assert not parts(ints, ints)
    assert parts(ints, ints[::-1])
    assert parts(np.asarray([True]), np.asarray([False]))
    texts = np.asarray(["a", "b"], object)
    assert not parts(texts, texts.copy())
    assert parts(texts, texts[::-1])
    assert parts(np.zeros(2), np.zeros(3))
    assert parts(np.zeros(2), np.zeros(2, np.float32))
    assert not parts(np.zeros((0, 3)), np.zeros((0, 3)))
    assert not parts(np.float32(1), np.float32(1 + 1e-6))
    assert parts(None, np.zeros(2))
    assert not parts(None, None)
    assert not parts([np.zeros(2), np.ones(1)], [np.zeros(2), np.ones(1)])
    assert parts([np.zeros(2), np.ones(1)], [np.zeros(2), np.zeros(1)])
    assert parts({"a": np.ones(1)}, {"b": np.ones(1)})
    assert parts([], [np.ones(1)])
