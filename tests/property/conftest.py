from __future__ import annotations

import pytest

from sardonyx.backends import available
from tests.property import agreement

ON_CUPY = pytest.param(("cupy",), marks=[pytest.mark.gpu, pytest.mark.slow], id="cupy")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Where there is CUDA, each operator's examples run on CuPy too, as a test of their own."""
    if {"op", "version"} <= set(metafunc.fixturenames) and "cupy" in available():
        metafunc.fixturenames.append("backends")
        usual = pytest.param(agreement.BACKENDS, id="usual")
        metafunc.parametrize("backends", [usual, ON_CUPY], indirect=True)


@pytest.fixture
def backends(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "BACKENDS", request.param)
