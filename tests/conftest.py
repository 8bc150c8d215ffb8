from __future__ import annotations

import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.jax import JaxBackend
from sardonyx.backends.numpy import HOST
from tests.strict_backend import StrictBackend


def backends_present() -> list[Backend]:
    return [HOST, JaxBackend(), StrictBackend()]


@pytest.fixture(params=backends_present(), ids=lambda backend: backend.name)
def xp(request: pytest.FixtureRequest) -> Backend:
    """Each array library in turn; ops are functions of it."""
    backend: Backend = request.param
    return backend
