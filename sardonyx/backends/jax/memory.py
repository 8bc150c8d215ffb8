"""The part of a GPU's memory that JAX may take, set before JAX starts, and what it has taken."""

from __future__ import annotations

import os
from collections.abc import Callable

import jax
from jax._src import xla_bridge

from sardonyx.errors import BackendUnavailable

# XLA reads it once, when it starts.
_MEMORY = "XLA_PYTHON_CLIENT_MEM_FRACTION"


def limit(fraction: float, has_accelerator: Callable[[], bool]) -> None:
    """Take no more than this part of a GPU's memory, in this process."""
    value = str(fraction)
    if xla_bridge.backends_are_initialized():
        if os.environ.get(_MEMORY) == value or not has_accelerator():
            return
        raise BackendUnavailable(
            "JAX has taken its part of the GPU's memory already: load the model before "
            f"anything else uses JAX, or set {_MEMORY}={value} for the process"
        )
    os.environ[_MEMORY] = value


def reserved(device: jax.Device) -> tuple[int, int]:
    """Return the bytes of a device's memory that JAX holds, and its limit; zeros if unknown."""
    stats = device.memory_stats() or {}
    names = ("pool_bytes", "bytes_reserved", "bytes_in_use")
    held = next((stats[name] for name in names if name in stats), 0)
    return held, stats.get("bytes_limit", 0)
