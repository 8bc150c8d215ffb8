"""Files of onnxruntime's optimizer, quantizers and converters run here as they do there."""

from __future__ import annotations

from pathlib import Path

import onnxruntime
import pytest

import sardonyx
from sardonyx.errors import UnsupportedModel
from tests.support.onnxruntime_files import TOOLS, outcome, quiet
from tests.support.raises import refused
from tests.test_exporter_models import FOLDER, NAMES

# Tool and model of files whose results differ, with the reason.
CERTAIN = (
    "a softmax of one element is 1, which is 256 steps of its scale: onnxruntime's QLinearSoftmax "
    "returns 0, and sardonyx 255, the nearest number of the type"
)
WITH_QUANTIZED_SOFTMAX = (
    "QOperator, int8",
    "QOperator, int8 per channel",
    "QDQ, then optimizer, ALL",
    "QOperator, then optimizer, ALL",
)
DIFFERENT = {
    (tool, name): CERTAIN
    for tool in WITH_QUANTIZED_SOFTMAX
    for name in ("encoder_dynamo", "encoder_torchscript")
}
# Tool and model without a file that onnxruntime runs, with the reason.
FAILS = "the tool itself fails on this model"
REFUSES = "onnxruntime refuses the file that its own tool wrote"
DYNAMIC = ("dynamic, uint8 weights", "dynamic, int8 weights", "dynamic, then optimizer, ALL")
FEW_BITS = tuple(tool for tool in TOOLS if tool.startswith("MatMulNBits"))
SPELLED = ("spelled_torchscript_13", "spelled_torchscript_9")
NOT_RUN = {
    **{(tool, name): FAILS for tool in DYNAMIC for name in ("cnn_dynamo", "mlp_dynamo")},
    **{("QDQ, int8 per channel", name): FAILS for name in ("spelled_dynamo", *SPELLED)},
    ("QDQ, int8 per channel", "cnn_torchscript"): REFUSES,
    ("QDQ, int8 per channel", "mlp_torchscript"): REFUSES,
    **{(tool, "sklearn_linear_float64"): REFUSES for tool in FEW_BITS},
    ("MatMulNBits, 4 bits QDQ", "encoder_torchscript"): REFUSES,
    ("MatMulNBits, 4 bits QDQ", "sklearn_kmeans"): REFUSES,
    **{("MatMulNBits, 4 bits QDQ", name): REFUSES for name in SPELLED},
}
# Each tool is tried on one of these by default, and on all models in the slow tests.
SMALL = ("mlp_dynamo", "cnn_torchscript", "encoder_dynamo", "sklearn_mlp")


def agrees(tool: str, name: str) -> None:
    found = outcome(tool, name)
    if (tool, name) in NOT_RUN:
        assert found.kind == "not run by onnxruntime"
        pytest.xfail(NOT_RUN[tool, name])
    if (tool, name) in DIFFERENT:
        assert found.kind == "different"
        pytest.xfail(DIFFERENT[tool, name])
    assert found.kind == "equal", found.detail


@pytest.mark.parametrize(
    ("tool", "name"), [(tool, SMALL[i % len(SMALL)]) for i, tool in enumerate(TOOLS)]
)
def test_a_file_of_each_tool(tool: str, name: str) -> None:
    agrees(tool, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tool", TOOLS)
def test_all_files(tool: str, name: str) -> None:
    agrees(tool, name)


def test_a_file_in_onnxruntimes_own_format(tmp_path: Path) -> None:
    target = tmp_path / "model.ort"
    options = quiet(onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC)
    options.optimized_model_filepath = str(target)
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(str(FOLDER / "mlp_dynamo.onnx"), options)
    for source in (target, target.read_bytes()):
        with refused(UnsupportedModel, ".ort", "load the ONNX file"):
            sardonyx.load(source)
