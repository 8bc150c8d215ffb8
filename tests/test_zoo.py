"""The zoo's graphs, recorded without their weights, against onnxruntime: see docs/zoo.md."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import pytest

from tests.support.agreement import COARSE, EXACT, of_all
from tests.zoo.judge import Level, in_onnxruntime, in_sardonyx
from tests.zoo.recording import FOLDER, restored

# Hundreds of graphs: NumPy runs all of them in the slow tests, and JAX, which compiles each for
# seconds, one in so many. `python -m tests.zoo` runs all on both.
JAX_ONE_IN = 8
# And of these so many run by default.
ONE_IN = 20


def parameters() -> list[object]:
    paths = sorted(FOLDER.glob("*/*.onnx.xz"))
    return [
        pytest.param(path, backend, id=f"{path.parent.name}-{_stem(path)}-{backend}")
        for path in paths
        for backend in ("jax", "numpy")
        if backend == "numpy" or crc32(path.name.encode()) % JAX_ONE_IN == 0
    ]


def _stem(path: Path) -> str:
    return path.name.removesuffix(".onnx.xz")


@pytest.mark.sampled(ONE_IN)
@pytest.mark.parametrize(("path", "backend"), parameters())
def test_results_agree_with_onnxruntime(path: Path, backend: str, tmp_path: Path) -> None:
    graph = restored(path)
    file = tmp_path / "model.onnx"
    file.write_bytes(graph.content)
    plain = in_onnxruntime(file, graph.calls, Level.ORT_DISABLE_ALL)
    fused = in_onnxruntime(file, graph.calls, Level.ORT_ENABLE_ALL)
    ours = in_sardonyx(file, graph.calls, backend)
    agreed = of_all(plain, fused, ours, COARSE if graph.coarse else EXACT)
    assert not agreed.why, agreed.why
