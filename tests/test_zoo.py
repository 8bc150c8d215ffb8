"""The zoo's graphs, recorded without their weights, against onnxruntime: see docs/zoo.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from sardonyx.backends import available
from tests.support.agreement import COARSE, EXACT, of_all
from tests.zoo.judge import Level, in_onnxruntime, in_sardonyx
from tests.zoo.recording import FOLDER, restored

RECORDED = sorted(FOLDER.glob("*/*.onnx.xz"))
ON_CUPY = [pytest.param("cupy", marks=pytest.mark.gpu)] if "cupy" in available() else []


@pytest.mark.sampled(4)
@pytest.mark.parametrize("backend", ["jax", "numpy", *ON_CUPY])
@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.removesuffix(".onnx.xz"))
def test_results_agree_with_onnxruntime(path: Path, backend: str, tmp_path: Path) -> None:
    graph = restored(path)
    file = tmp_path / "model.onnx"
    file.write_bytes(graph.content)
    plain = in_onnxruntime(file, graph.calls, Level.ORT_DISABLE_ALL)
    fused = in_onnxruntime(file, graph.calls, Level.ORT_ENABLE_ALL)
    ours = in_sardonyx(file, graph.calls, backend)
    agreed = of_all(plain, fused, ours, COARSE if graph.coarse else EXACT)
    assert not agreed.why, agreed.why
