"""What notebooks call, on CuPy: operators as functions, recordings, values by name, profiles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import sardonyx
from tests.support.named_nodes import TEXT, W, X

pytestmark = pytest.mark.gpu

cupy = pytest.importorskip("cupy", reason="no CuPy; pip install 'sardonyx[cuda]'")

ENCODER = Path(__file__).parents[2] / "examples" / "encoder.onnx"
RELU = np.maximum(X * W, 0)
OPS = sardonyx.opset(20)


@pytest.fixture
def model() -> sardonyx.Model:
    return sardonyx.load(parser.parse_model(TEXT), backend="cupy")


def host(value: Any) -> np.ndarray[Any, Any]:
    return np.asarray(value.get() if isinstance(value, cupy.ndarray) else value)


# -- operators as functions -----------------------------------------------------------------------


def test_operators_take_and_return_arrays_of_cupy() -> None:
    x = cupy.asarray(X)
    y = OPS.Softmax(x, axis=-1)
    assert isinstance(y, cupy.ndarray)
    expected = np.exp(X) / np.exp(X).sum(-1, keepdims=True)
    np.testing.assert_allclose(host(y), expected, rtol=1e-6)
    np.testing.assert_allclose(host(OPS.Gemm(x, x, transB=1)), X @ X.T, rtol=1e-5, atol=1e-6)
    values, indices = OPS.TopK(x, np.int64([2]))
    assert host(values).shape == host(indices).shape == (2, 2)
    first, second = OPS.Split(x, axis=1, num_outputs=2)
    assert (host(first).shape, host(second).shape) == ((2, 2), (2, 1))


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)], ids=str)
def test_operators_of_rank_0_and_empty_arrays(shape: tuple[int, ...]) -> None:
    x = cupy.ones(shape, np.float32)
    assert host(OPS.Relu(x)).shape == shape
    assert host(OPS.Concat(x[None], x[None], axis=0)).shape == (2, *shape)


def test_operators_of_views_and_of_mixed_libraries() -> None:
    x = cupy.asarray(X)
    np.testing.assert_allclose(host(OPS.Add(x.T, x.T)), 2 * X.T)
    np.testing.assert_allclose(host(OPS.Mul(x, W)), X * W)
    np.testing.assert_allclose(host(OPS.Relu(x[:, ::-1])), np.maximum(X[:, ::-1], 0))


# -- recordings -----------------------------------------------------------------------------------


def block(x: Any) -> Any:
    return OPS.Relu(OPS.Mul(x, W)) + x


def test_a_recording_runs_and_is_saved(tmp_path: Path) -> None:
    recorded = sardonyx.record(block, {"x": ("float32", ["n", 3])}, backend="cupy")
    y = recorded(cupy.asarray(X))
    assert isinstance(y, cupy.ndarray)
    np.testing.assert_allclose(host(y), RELU + X, rtol=1e-6)
    sardonyx.save(recorded, tmp_path / "block.onnx")
    onnx.checker.check_model(onnx.load(tmp_path / "block.onnx"))
    again = sardonyx.load(tmp_path / "block.onnx", backend="numpy")
    np.testing.assert_allclose(again(X), RELU + X, rtol=1e-6)


def test_a_recording_captures_arrays_of_cupy(tmp_path: Path) -> None:
    w = cupy.asarray(W)
    recorded = sardonyx.record(lambda x: OPS.Mul(x, w), {"x": X}, backend="cupy")
    np.testing.assert_allclose(host(recorded(X)), X * W)
    sardonyx.save(recorded, tmp_path / "product.onnx")
    (weight,) = onnx.load(tmp_path / "product.onnx").graph.initializer
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(weight), W)


def test_replaced_params_are_saved(model: sardonyx.Model, tmp_path: Path) -> None:
    model.params["w"] = cupy.full(3, 7, np.float32)
    sardonyx.save(model, tmp_path / "replaced.onnx")
    again = sardonyx.load(tmp_path / "replaced.onnx", backend="numpy")
    np.testing.assert_array_equal(again.params["w"], np.full(3, 7, np.float32))


# -- values by name -------------------------------------------------------------------------------


@pytest.mark.parametrize("is_on_device", [False, True])
def test_values_by_name(model: sardonyx.Model, *, is_on_device: bool) -> None:
    x = cupy.asarray(X) if is_on_device else X
    for _ in range(3):
        act, shape = model.run(["act", "shape"], {"x": x})
        np.testing.assert_allclose(host(act), RELU)
        assert host(shape).tolist() == [2, 3]
    (h,) = model.run(["mul"], {"x": x})
    np.testing.assert_allclose(host(h), X * W)


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_captured_values(model: sardonyx.Model, rows: int) -> None:
    x = np.resize(X, (rows, 3))
    for _ in range(4):  # Interpreted first, then fused and captured.
        output, captured = model(cupy.asarray(x), capture=["act_node", "w", "x"])
        assert list(captured) == ["act", "w", "x"]
        np.testing.assert_allclose(host(output["y"]), np.maximum(x * W, 0) + x)
        np.testing.assert_allclose(host(captured["act"]), np.maximum(x * W, 0))
        np.testing.assert_array_equal(host(captured["w"]), W)
        np.testing.assert_array_equal(host(captured["x"]), x)


def test_captured_values_outlive_later_calls(model: sardonyx.Model) -> None:
    _, first = model(cupy.asarray(X), capture="act_node")
    for i in range(4):
        model(cupy.asarray(X + i), capture="act_node")
    np.testing.assert_allclose(host(first["act"]), RELU)


# -- comparisons and profiles ---------------------------------------------------------------------


def test_cupy_agrees_with_other_backends() -> None:
    x = np.linspace(-1, 1, 384, dtype=np.float32).reshape(1, 8, 48)
    loaded = sardonyx.load(ENCODER, backend="cupy")
    for other in ("numpy", "jax", "onnxruntime"):
        if other == "onnxruntime":
            pytest.importorskip("onnxruntime")
        found = sardonyx.compare(loaded, other, x)
        assert found.agrees, found
        assert len(found.rows) > 20
    assert sardonyx.compare(ENCODER, "cupy", cupy.asarray(x)).agrees


def test_a_planted_error_is_found_on_cupy(model: sardonyx.Model) -> None:
    wrong = parser.parse_model(TEXT.replace("Relu", "Abs"))
    found = sardonyx.compare(model, sardonyx.load(wrong, backend="cupy"), cupy.asarray(X))
    assert found.first is not None
    assert found.first.name == "act"
    assert found.first.is_born_here


def test_profiles_have_all_nodes(model: sardonyx.Model) -> None:
    profile = model.profile(cupy.asarray(X))
    assert {"mul", "act_node"} <= set(profile.seconds_by_node)
    assert profile.total > 0
    assert "act_node" in profile._repr_html_()
