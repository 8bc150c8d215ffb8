"""The zoo's graphs where kernels compute all that they can, in one call if possible.

Sizes below which NumPy takes no longer are left out, so that small graphs take kernels too.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import sardonyx
from sardonyx.backends.jax import traits
from sardonyx.backends.jax.onednn import attention, loaded, stacks
from sardonyx.graph.programs import compiler
from tests.support.agreement import COARSE, EXACT, of_all
from tests.support.background import wait_for_background
from tests.support.kernels import NEEDS_ONEDNN
from tests.zoo.recording import recorded_graphs, restored

pytestmark = NEEDS_ONEDNN

LIMITS = {
    attention: ("FEWEST_PAIRS", "FEWEST_PAIRS_OF_ONE", "FEWEST_QUERIES"),
    compiler: ("LEAST_SAVED", "MOST_STEPS"),
    stacks: ("FEWEST_PAIRS", "MOST_OF_MATRICES", "MOST_OF_VECTORS"),
    traits: ("SMALLEST_PACKED",),
}
# Run by default.
ONE_IN = 40


@pytest.fixture(autouse=True)
def no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert loaded.shared_library() is not None
    for module, names in LIMITS.items():
        for name in names:
            monkeypatch.setattr(module, name, 0)
    attention._planned.cache_clear()


@pytest.mark.sampled(ONE_IN)
@pytest.mark.parametrize("path", recorded_graphs(), ids=lambda path: path.name)
def test_repeated_calls_return_what_the_first_does(path: Path, tmp_path: Path) -> None:
    graph = restored(path)
    file = tmp_path / "model.onnx"
    file.write_bytes(graph.content)
    model = sardonyx.load(file, backend="jax", compile="never", cache=None)
    feeds = graph.calls[0].feeds
    first = model.run(None, feeds)
    for _ in range(4):
        found = model.run(None, feeds)
        agreed = of_all(first, first, found, COARSE if graph.coarse else EXACT)
        assert not agreed.why, agreed.why
        wait_for_background()
