from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import jax
import pytest

from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.errors import BackendUnavailable

if TYPE_CHECKING:
    from sardonyx.backends.cupy.backend import CupyBackend


@pytest.fixture(scope="session")
def cupy_backend() -> CupyBackend:
    pytest.importorskip("cupy", reason="no CuPy; pip install 'sardonyx[cuda]'")
    from sardonyx.backends.cupy.backend import CupyBackend  # noqa: PLC0415

    try:
        return CupyBackend()
    except BackendUnavailable as error:
        pytest.skip(f"no NVIDIA GPU: {error}")


@pytest.fixture
def device(cupy_backend: CupyBackend) -> Iterator[CupyBackend]:
    """CuPy, with its device as the current one."""
    with cupy_backend.scope():
        yield cupy_backend


@pytest.fixture
def with_cudnn(device: CupyBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """cuDNN without any plans, of which the first right one is taken, without a clock."""
    from sardonyx.backends.cupy.cudnn.frontend import frontend  # noqa: PLC0415
    from sardonyx.backends.cupy.cudnn.plans import plans_of  # noqa: PLC0415

    if frontend() is None:
        pytest.skip("no cuDNN; pip install 'sardonyx[cudnn]'")
    plans_of.cache_clear()
    monkeypatch.setattr(device, "measures_convolutions", False)


@pytest.fixture(scope="session")
def jax_backend() -> JaxBackend:
    try:
        return JaxBackend(jax.devices("cuda")[0])
    except RuntimeError as error:
        pytest.skip(f"no NVIDIA GPU: {error}")
