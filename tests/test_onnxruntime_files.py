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

# The operators that these files use and sardonyx does not have yet. The files that need one of them
# are expected to be refused, and no others.
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
# Each tool is tried on one of these by default, and on all models in the slow tests.
SMALL = ("mlp_dynamo", "cnn_torchscript", "encoder_dynamo", "sklearn_mlp")


def agrees(tool: str, name: str) -> None:
    found = outcome(tool, name)
    if found.kind == "not run by onnxruntime":
        pytest.skip(found.detail)
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


@pytest.mark.slow
@pytest.mark.parametrize("tool", TOOLS)
def test_each_tool_takes_most_models(tool: str) -> None:
    kinds = [outcome(tool, name).kind for name in NAMES]
    assert kinds.count("not run by onnxruntime") <= len(NAMES) // 4


def test_a_file_in_onnxruntimes_own_format(tmp_path: Path) -> None:
    target = tmp_path / "model.ort"
    options = quiet(onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC)
    options.optimized_model_filepath = str(target)
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(str(FOLDER / "mlp_dynamo.onnx"), options)
    for source in (target, target.read_bytes()):
        with refused(UnsupportedModel, ".ort", "load the ONNX file"):
            sardonyx.load(source)
