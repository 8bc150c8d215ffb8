"""Programs that were written for onnxruntime, and that installed packages carry, after one line."""

from __future__ import annotations

import subprocess
import sys
import warnings
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from onnxruntime.datasets import get_example

import sardonyx.compat
from tests.compat.pairs import MODULES, assert_equal, both_modules, parsed

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    backend: Any = import_module("onnxruntime.backend.backend")
    calibrate: Any = import_module("onnxruntime.quantization.calibrate")


class Reader(calibrate.CalibrationDataReader):  # type: ignore[misc]
    """Some batches of inputs."""

    def __init__(self) -> None:
        random = np.random.default_rng(0)
        self._batches = iter([{"x": random.normal(size=(3, 4)).astype(np.float32)} for _ in "abc"])

    def get_next(self) -> Any:
        return next(self._batches, None)


def layered() -> onnx.ModelProto:
    proto = parsed("g (float[N,4] x) => (float[N,2] y) { h = MatMul(x,w) y = Relu(h) }", opset=17)
    drawn = np.random.default_rng(1).normal(size=(4, 2)).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(drawn, "w"))
    return onnx.shape_inference.infer_shapes(proto)


@pytest.mark.parametrize("method", ["MinMax", "Entropy"])
def test_calibration_for_quantization(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(layered(), path)
    kind = calibrate.CalibrationMethod[method]

    def ranges(ort: ModuleType) -> dict[str, Any]:
        monkeypatch.setattr(calibrate, "onnxruntime", ort)
        augmented = str(tmp_path / f"augmented_{ort.__name__}.onnx")
        found = calibrate.create_calibrator(
            path, ["MatMul", "Relu"], augmented_model_path=augmented, calibrate_method=kind
        )
        found.collect_data(Reader())
        data = found.compute_data()
        return {name: np.asarray(data[name].range_value, np.float64) for name in data.keys()}  # noqa: SIM118

    expected, found = map(ranges, MODULES)
    assert set(expected) == {"x", "h", "y"}
    assert_equal(found, expected)


def test_the_backend_of_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(ort: ModuleType) -> Any:
        for name in ("InferenceSession", "SessionOptions", "get_available_providers", "get_device"):
            monkeypatch.setattr(backend, name, getattr(ort, name))
        prepare = backend.OnnxRuntimeBackend.prepare
        prepared = prepare(layered(), ort.get_device(), intra_op_num_threads=1)
        x = np.arange(8, dtype=np.float32).reshape(2, 4)
        return prepared.run([x])

    expected, found = map(run, MODULES)
    assert_equal(found, expected)


@both_modules
@pytest.mark.parametrize("name", ["sigmoid.onnx", "mul_1.onnx", "logreg_iris.onnx"])
def test_models_that_onnxruntime_comes_with(ort: ModuleType, name: str) -> None:
    loaded = ort.InferenceSession(get_example(name), providers=ort.get_available_providers())
    (info,) = loaded.get_inputs()
    x = np.linspace(-2, 2, int(np.prod(info.shape)), dtype=np.float32).reshape(info.shape)
    expected = onnxruntime.InferenceSession(get_example(name)).run(None, {info.name: x})
    assert_equal(loaded.run(None, {info.name: x}), expected)


PROGRAM = """
import numpy as np
import {module} as ort

np.random.seed(0)
options = ort.SessionOptions()
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
options.intra_op_num_threads = 1
session = ort.InferenceSession({path!r}, options, providers=["CPUExecutionProvider"])
print(session.get_inputs()[0], session.get_outputs()[0])
print(session.get_providers(), session.get_provider_options())
x = np.random.normal(size=(2, 3, 48)).astype(np.float32)
(y,) = session.run(None, {{"x": x}})
print(y.dtype, y.shape, y.round(3).sum().round(1))
binding = session.io_binding()
binding.bind_cpu_input("x", x)
binding.bind_output("y")
session.run_with_iobinding(binding)
print(binding.copy_outputs_to_cpu()[0].shape, binding.get_outputs()[0].data_type())
try:
    session.run(["nothing"], {{"x": x}})
except ort.capi.onnxruntime_pybind11_state.InvalidArgument:
    print("refused")
"""


@pytest.mark.slow
def test_a_program_prints_the_same_after_one_line() -> None:
    """Also what it draws at random: loading a session draws nothing."""
    path = str(Path(__file__).parents[2] / "examples" / "encoder.onnx")

    def printed(module: str) -> str:
        code = PROGRAM.format(module=module, path=path)
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout

    assert printed("sardonyx.compat") == printed("onnxruntime")


def test_importing_it_imports_no_other_runtime() -> None:
    code = (
        "import sys, sardonyx; assert 'sardonyx.compat' not in sys.modules; import sardonyx.compat;"
        "assert not {'onnxruntime', 'jax', 'cupy', 'onnx.reference'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert sardonyx.compat.__version__.split(".")[:2] == onnxruntime.__version__.split(".")[:2]
