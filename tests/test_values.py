"""Values inside a graph: by name from `run`, and as the outputs of `to_jax`."""

from __future__ import annotations

import pickle
from typing import Any

import jax
import ml_dtypes  # noqa: F401  (its dtypes get their names)
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import sardonyx
from sardonyx.graph.model.forms import MOST_WITH_VALUES

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
W = np.asarray([1, 2, 3], np.float32)
TEXT = """<ir_version: 10, opset_import: ["": 22]>
g (float[n, 3] x, float[n, 3] unused, float[n, 3] z) => (float[n, 3] y, float[n, 3] other)
<float[3] w = {1, 2, 3}, float[3] v = {4, 5, 6}, int64[1] axes = {1}> {
  h = Mul (x, w)
  [first] act = Relu (h)
  y = Add (act, x)
  [second] other = Mul (z, v)
  shape = Shape (x)
}"""


@pytest.fixture(params=["numpy", "jax"])
def model(request: pytest.FixtureRequest) -> sardonyx.Model:
    return sardonyx.load(parser.parse_model(TEXT), backend=request.param, compile="now")


def test_any_value_can_be_asked_for(model: sardonyx.Model) -> None:
    names = ["h", "w", "x", "axes", "shape", "act", "h"]
    h, w, x, axes, shape, act, again = model.run(names, {"x": X})
    np.testing.assert_array_equal(h, X * W)
    np.testing.assert_array_equal(again, h)
    np.testing.assert_array_equal(act, np.maximum(h, 0))
    np.testing.assert_array_equal(w, [1, 2, 3])
    np.testing.assert_array_equal(x, X)
    assert axes.tolist() == [1]
    assert shape.tolist() == [2, 3]


def test_outputs_alone_do_not_need_the_inputs_of_others(model: sardonyx.Model) -> None:
    (y,) = model.run(["y"], {"x": X})
    np.testing.assert_array_equal(y, np.maximum(X * W, 0) + X)
    feeds = {"x": X, "unused": X, "z": X}
    np.testing.assert_array_equal(model.run(["y"], feeds)[0], y)


def test_an_input_that_is_needed_must_be_fed(model: sardonyx.Model) -> None:
    with pytest.raises(sardonyx.InvalidInput, match="needs x"):
        model.run(["h"], {"z": X})
    with pytest.raises(sardonyx.InvalidInput, match="no input 'q'"):
        model.run(["h"], {"x": X, "q": X})


def test_nodes_that_are_not_needed_do_not_run() -> None:
    """The product has wrong shapes, so a program with it could not be traced."""
    text = """<ir_version: 10, opset_import: ["": 22]>
    g (float[2, 3] x) => (float[m, n] y) { h = Relu (x) y = MatMul (h, h) }"""
    for backend in ("numpy", "jax"):
        loaded = sardonyx.load(parser.parse_model(text), backend=backend)
        np.testing.assert_array_equal(loaded.run(["h"], {"x": X})[0], np.maximum(X, 0))


@pytest.mark.parametrize(
    ("pattern", "values"),
    [("h*", ["h"]), ("first", ["act"]), ("sec*", ["other"]), ("[wv]", ["w", "v"])],
)
def test_patterns_mean_values_then_nodes_then_weights(
    model: sardonyx.Model, pattern: str, values: list[str]
) -> None:
    feeds = {"x": X, "z": X}
    found, expected = model.run([pattern], feeds), model.run(values, feeds)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_exact_name_wins_over_a_pattern() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["block[0]"]),
        helper.make_node("Neg", ["block[0]"], ["block0"]),
    ]
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in ("x", "block0")]
    proto = helper.make_model(helper.make_graph(nodes, "g", value[:1], value[1:]), ir_version=10)
    loaded = sardonyx.load(proto, backend="numpy")
    (relu,) = loaded.run(["block[0]"], {"x": X})
    np.testing.assert_array_equal(relu, np.maximum(X, 0))


def test_unknown_names_suggest_near_ones(model: sardonyx.Model) -> None:
    with pytest.raises(sardonyx.InvalidInput, match=r"no output 'shap'.*'shape'"):
        model.run(["shap"], {"x": X})
    with pytest.raises(sardonyx.InvalidInput, match="no output 7"):
        model.run([7], {"x": X})


INNER = """<ir_version: 10, opset_import: ["": 22, "own": 1]>
g (float[2, 3] x, bool c) => (float[2, 3] y) {
  f = own.twice (x)
  y = If (c) <
    then_branch = t () => (float[2, 3] a) { deep = Neg (f) a = Relu (deep) },
    else_branch = e () => (float[2, 3] b) { b = Identity (f) }
  >
}
<domain: "own", opset_import: ["": 22]>
twice (p) => (q) { hidden = Add (p, p) q = Identity (hidden) }
"""


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_values_inside_subgraphs_and_functions_are_refused(backend: str) -> None:
    loaded = sardonyx.load(parser.parse_model(INNER), backend=backend)
    feeds = {"x": X, "c": np.asarray(True)}
    with pytest.raises(sardonyx.InvalidInput, match="'deep' is inside a subgraph"):
        loaded.run(["deep"], feeds)
    with pytest.raises(sardonyx.InvalidInput, match="'hidden' is inside the function 'twice'"):
        loaded.run(["hidden"], feeds)
    (f,) = loaded.run(["f"], {"x": X})
    np.testing.assert_array_equal(f, 2 * X)
    f, y = loaded.run(["f", "y"], feeds)  # The subgraph reads f by name.
    np.testing.assert_array_equal(y, np.maximum(-f, 0))


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float8_e4m3fn", "int4", "complex64"])
@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_values_of_every_type(name: str, backend: str) -> None:
    to = helper.np_dtype_to_tensor_dtype(np.dtype(name))
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Relu", ["r"], ["y"])]
    weight = numpy_helper.from_array(np.arange(3, dtype=np.float32), "w")
    tensor = helper.make_tensor("typed", to, [3], [1, 2, 3])
    nodes.append(helper.make_node("Identity", ["typed"], ["copied"]))
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in ("x", "y")]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], [tensor, weight])
    proto = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 22)])
    loaded = sardonyx.load(proto, backend=backend)
    typed, copied = loaded.run(["typed", "copied"], {})
    assert typed.dtype.name == copied.dtype.name == name
    assert copied.astype(np.complex64).tolist() == [1, 2, 3]


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_containers_strings_and_empty_arrays(backend: str) -> None:
    text = """<ir_version: 10, opset_import: ["": 22]>
    g (float[n, 3] x, string[m] s) => (float[a, b] y) {
      list = SequenceConstruct (x, x)
      y = ConcatFromSequence <axis = 0> (list)
      total = ReduceSum <keepdims = 0> (x)
      joined = StringConcat (s, s)
    }"""
    loaded = sardonyx.load(parser.parse_model(text), backend=backend)
    empty = np.zeros((0, 3), np.float32)
    listed, total = loaded.run(["list", "total"], {"x": empty})
    assert [one.shape for one in listed] == [(0, 3), (0, 3)]
    assert total.shape == ()
    (joined,) = loaded.run(["joined"], {"s": np.array(["a", "b"], object)})
    assert joined.tolist() == ["aa", "bb"]


@pytest.mark.slow
def test_forms_are_bounded_and_counts_never_fall(model: sardonyx.Model) -> None:
    for i in range(MOST_WITH_VALUES + 5):
        model.run([*["h"] * (i + 1), "act"], {"x": X})
    assert model.stats().calls == MOST_WITH_VALUES + 5
    assert len(model._forms.all()) == MOST_WITH_VALUES + 1
    model.release()
    np.testing.assert_array_equal(model.run(["h"], {"x": X})[0], X * W)
    restored = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(restored.run(["h"], {"x": X})[0], X * W)


def test_the_plain_call_keeps_its_program(model: sardonyx.Model) -> None:
    before = str(model.trace(X, X, X))
    model(X, X, X)
    model.run(["h"], {"x": X})
    traces = model.stats().traces
    model(X, X, X)
    assert model.stats().traces == traces
    assert str(model.trace(X, X, X)) == before


# -- to_jax ----------------------------------------------------------------------------------------


def test_a_pure_function_of_inner_values_takes_only_what_it_needs() -> None:
    fn, params = sardonyx.to_jax(parser.parse_model(TEXT), outputs=["act"])
    assert [info.name for info in fn.inputs] == ["x"]
    assert set(params) == {"w"}
    np.testing.assert_array_equal(jax.jit(fn)(params, X), np.maximum(X * W, 0))

    def total(params: Any, x: Any) -> Any:
        return fn(params, x).sum()

    by_params, by_input = jax.grad(total, argnums=(0, 1))(params, X)
    mask = (X * W > 0).astype(np.float32)
    np.testing.assert_allclose(by_params["w"], (mask * X).sum(0), rtol=1e-6)
    np.testing.assert_allclose(by_input, mask * [1, 2, 3], rtol=1e-6)


def test_a_pure_function_of_several_values() -> None:
    fn, params = sardonyx.to_jax(parser.parse_model(TEXT), outputs=["h", "w", "x", "h"])
    h, w, x, again = fn(params, X)
    np.testing.assert_array_equal(h, again)
    np.testing.assert_array_equal(w, params["w"])
    np.testing.assert_array_equal(x, X)
    with pytest.raises(sardonyx.InvalidInput, match="'outputs' is empty"):
        sardonyx.to_jax(parser.parse_model(TEXT), outputs=[])
    with pytest.raises(sardonyx.InvalidInput, match="no output"):
        sardonyx.to_jax(parser.parse_model(TEXT), outputs="nothing of this name")
