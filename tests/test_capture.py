"""`model(x, capture=...)`: values inside a graph beside its output."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from onnx import parser

import sardonyx
from tests.support.named_nodes import TEXT, W, X


def dotted() -> Any:
    """The model with names of nodes that the parser of texts refuses."""
    proto = parser.parse_model(TEXT)
    for node, name in zip(proto.graph.node, ("blocks.0.mul", "blocks.0.act"), strict=False):
        node.name = name
    return proto


@pytest.fixture(params=["numpy", "jax"])
def model(request: pytest.FixtureRequest) -> sardonyx.Model:
    return sardonyx.load(dotted(), backend=request.param)


def test_output_and_captured_values(model: sardonyx.Model) -> None:
    for _ in range(4):  # Interpreted first, then compiled in the background.
        output, captured = model(X, capture=["blocks.0.*", "shape", "w", "x"])
        assert list(captured) == ["h", "act", "shape", "w", "x"]
        np.testing.assert_array_equal(captured["h"], X * W)
        np.testing.assert_array_equal(captured["act"], np.maximum(X * W, 0))
        np.testing.assert_array_equal(output["y"], model(X)["y"])
        assert captured["x"] is X
        assert np.asarray(captured["shape"]).tolist() == [2, 3]


def test_repeated_calls_are_not_traced_again(model: sardonyx.Model) -> None:
    model(X, capture="h")
    traces = model.stats().traces
    model(X, capture="h")
    assert model.stats().traces == traces


def test_overridden_initializers(model: sardonyx.Model) -> None:
    _, captured = model(X, w=2 * W, capture=["h", "w"])
    np.testing.assert_array_equal(captured["h"], X * 2 * W)
    np.testing.assert_array_equal(captured["w"], 2 * W)


def test_replaced_params(model: sardonyx.Model) -> None:
    model(X, capture="h")
    model.params["w"] = 2 * W
    np.testing.assert_array_equal(model(X, capture="h")[1]["h"], X * 2 * W)


def test_nothing_and_unknown_values(model: sardonyx.Model) -> None:
    output, captured = model(X, capture=[])
    assert not captured
    np.testing.assert_array_equal(output["y"], model(X)["y"])
    with pytest.raises(sardonyx.InvalidInput, match=r"near matches are 'blocks\.0\.act'"):
        model(X, capture="blocks.0.acts")
    with pytest.raises(sardonyx.InvalidInput, match="'capture' is 3"):
        model(X, capture=3)


def test_an_input_called_capture() -> None:
    text = """<ir_version: 10, opset_import: ["": 22]>
    g (float[n] capture) => (float[n] y) { h = Neg (capture) y = Relu (h) }"""
    loaded = sardonyx.load(parser.parse_model(text), backend="numpy")
    assert loaded(capture=-W).tolist() == [1, 2, 3]
    output, captured = loaded.bind(capture="h")(capture=-W)
    assert output.tolist() == captured["h"].tolist() == [1, 2, 3]


@pytest.mark.sampled(3)
def test_bound_models_and_pickles(model: sardonyx.Model) -> None:
    bound = pickle.loads(pickle.dumps(model.bind(capture="h")))
    np.testing.assert_array_equal(bound(X)[1]["h"], X * W)
    assert "captures h" in repr(bound)
    model.release()
    np.testing.assert_array_equal(model.bind(capture="h")(X)[1]["h"], X * W)


def test_under_jit_and_grad() -> None:
    loaded = sardonyx.load(dotted(), backend="jax")
    output, captured = jax.jit(lambda x: loaded(x, capture=["w", "h", "act"]))(X)
    assert list(captured) == ["w", "h", "act"]
    np.testing.assert_allclose(captured["h"], X * W, rtol=1e-6)
    slope = jax.grad(lambda x: loaded(x, capture="h")[1]["h"].sum())(jnp.asarray(X))
    np.testing.assert_array_equal(slope, np.broadcast_to(W, X.shape))
    assert output["y"].shape == X.shape


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_random_draws_are_those_of_a_plain_call(backend: str) -> None:
    text = """<ir_version: 10, opset_import: ["": 22]>
    g (float[n] x) => (float[n] y) { noise = RandomNormalLike (x) y = Add (x, noise) }"""
    loaded = sardonyx.load(parser.parse_model(text), backend=backend, compile="now")
    keyed = loaded.bind(key=3)
    plain = keyed(W)
    output, captured = keyed(W, capture="noise")
    np.testing.assert_allclose(output, plain, rtol=1e-6)  # The programs may round differently.
    np.testing.assert_allclose(W + captured["noise"], plain, rtol=1e-6)
    np.testing.assert_array_max_ulp(keyed.run(["noise"], {"x": W})[0], captured["noise"], 4)


def test_donation_and_buckets() -> None:
    proto = dotted()
    donating = sardonyx.load(proto, backend="jax", compile="now").bind(donate="x")
    x = jnp.asarray(X)
    _, captured = donating(x, capture="h")
    np.testing.assert_array_equal(captured["h"], X * W)
    padded = sardonyx.load(proto, backend="jax", buckets={"n": [4]})
    for size in (2, 3, 4):
        rows = np.ones((size, 3), np.float32)
        _, captured = padded(rows, capture=["h", "shape"])
        np.testing.assert_array_equal(captured["h"], rows * W)
        assert np.asarray(captured["shape"]).tolist() == [size, 3]


def test_threads_capture_different_values(model: sardonyx.Model) -> None:
    faults: list[Any] = []

    def capture(name: str, expected: Any) -> None:
        for _ in range(10):
            found = model(X, capture=name)[1][name]
            faults.extend([] if np.array_equal(found, expected) else [name])

    wanted = {"h": X * W, "act": np.maximum(X * W, 0), "x": X}
    threads = [threading.Thread(target=capture, args=pair) for pair in wanted.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


def test_exported_programs_have_outputs_alone(tmp_path: Any) -> None:
    loaded = sardonyx.load(dotted(), backend="jax")
    path = tmp_path / "program"
    sardonyx.export(loaded, {"x": (2, 3)}, ["cpu"]).save(path)
    program = sardonyx.load(path)
    with pytest.raises(sardonyx.InvalidInput, match="no values besides its outputs"):
        program(X, capture="h")


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_checked_models_capture_and_report(backend: str) -> None:
    text = """<ir_version: 10, opset_import: ["": 22]> g (float[n] x, int64[m] i) => (float[m] y) {
      h = Neg (x) y = Gather (h, i) }"""
    checked = sardonyx.load(parser.parse_model(text), backend=backend, checked=True)
    for _ in range(3):
        output, captured = checked(W, np.int64([2, 0]), capture="h")
        np.testing.assert_array_equal(output, [-3, -1])
        np.testing.assert_array_equal(captured["h"], -W)
    with pytest.raises(sardonyx.SardonyxError, match="Gather"):
        checked(W, np.int64([5]), capture="h")


def test_a_captured_input_is_not_that_of_a_donated_buffer() -> None:
    donating = sardonyx.load(dotted(), backend="jax", compile="now").bind(donate="x")
    for i in range(3):
        _, captured = donating(jnp.asarray(X + i), capture=["x", "h"])
        np.testing.assert_array_equal(captured["x"], X + i)
        np.testing.assert_array_equal(captured["h"], (X + i) * W)
