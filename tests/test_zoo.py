"""The zoo's graphs, recorded without their weights, against onnxruntime: see docs/zoo.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.agreement import COARSE, EXACT, of_all
from tests.zoo.judge import Level, in_onnxruntime, in_sardonyx
from tests.zoo.recording import FOLDER, restored

# Of the hundreds of classical models about one in so many runs by default; of all others one in 4.
ONE_IN = dict.fromkeys(["boosting", "classical", "pipelines", "variants"], 40)
RECORDED = [
    pytest.param(
        path,
        marks=pytest.mark.sampled(ONE_IN.get(path.parent.name, 4)),
        id=path.name.removesuffix(".onnx.xz"),
    )
    for path in sorted(FOLDER.glob("*/*.onnx.xz"))
]


@pytest.mark.parametrize("backend", ["jax", "numpy"])
@pytest.mark.parametrize("path", RECORDED)
def test_results_agree_with_onnxruntime(path: Path, backend: str, tmp_path: Path) -> None:
    graph = restored(path)
    file = tmp_path / "model.onnx"
    file.write_bytes(graph.content)
    plain = in_onnxruntime(file, graph.calls, Level.ORT_DISABLE_ALL)
    fused = in_onnxruntime(file, graph.calls, Level.ORT_ENABLE_ALL)
    ours = in_sardonyx(file, graph.calls, backend)
    agreed = of_all(plain, fused, ours, COARSE if graph.coarse else EXACT)
    assert not agreed.why, agreed.why
