"""The zoo's graphs, recorded without their weights, against onnxruntime: see docs/zoo.md."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import pytest

from sardonyx.backends import available, find
from sardonyx.backends.base import Backend
from tests.conftest import as_parameter
from tests.support.agreement import COARSE, EXACT, of_all
from tests.zoo.judge import Level, in_onnxruntime, in_sardonyx
from tests.zoo.recording import recorded_graphs, restored

# Hundreds of graphs: NumPy runs all of them in the slow tests. JAX takes seconds for each and runs
# one in so many; so does CuPy, if it is here. `python -m tests.zoo` runs all.
OTHERS_ONE_IN = 8
# And of these so many run by default.
ONE_IN = 30


def parameters() -> list[object]:
    return [
        as_parameter(find(backend), path, name=f"{path.parent.name}-{_stem(path)}")
        for path in recorded_graphs()
        for backend in [name for name in ("numpy", "jax", "cupy") if name in available()]
        if backend == "numpy" or crc32(path.name.encode()) % OTHERS_ONE_IN == 0
    ]


def _stem(path: Path) -> str:
    return path.name.removesuffix(".onnx.xz")


@pytest.mark.sampled(ONE_IN)
@pytest.mark.parametrize(("path", "xp"), parameters())
def test_results_agree_with_onnxruntime(path: Path, xp: Backend, tmp_path: Path) -> None:
    graph = restored(path)
    file = tmp_path / "model.onnx"
    file.write_bytes(graph.content)
    plain = in_onnxruntime(file, graph.calls, Level.ORT_DISABLE_ALL)
    fused = in_onnxruntime(file, graph.calls, Level.ORT_ENABLE_ALL)
    ours = in_sardonyx(file, graph.calls, xp.name)
    agreed = of_all(plain, fused, ours, COARSE if graph.coarse else EXACT)
    assert not agreed.why, agreed.why
