"""What is taken of the GPU's memory."""

from __future__ import annotations

import jax
import pytest

import sardonyx
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.errors import BackendUnavailable

pytestmark = pytest.mark.gpu


def test_the_cap_cannot_be_set_once_jax_has_started(jax_backend: JaxBackend) -> None:
    assert jax_backend.device in jax.devices()
    with pytest.raises(BackendUnavailable, match="before anything else uses JAX"):
        sardonyx.load("examples/encoder.onnx", backend="jax", memory_fraction=0.125)


def test_what_jax_holds_is_told(jax_backend: JaxBackend) -> None:
    memory = sardonyx.load("examples/encoder.onnx", backend=jax_backend).memory(x=(1, 8, 48))
    assert 0 < memory.peak <= memory.limit
