"""JAX in other processes: the same device there, unless they were forked too late."""

from __future__ import annotations

from functools import cache

import jax
from jax._src import xla_bridge

from sardonyx.backends.forks import Fork


@cache
def fork() -> Fork:
    """Whether this process was forked after JAX had started its threads."""
    return Fork("JAX", xla_bridge.backends_are_initialized)


def place_of(device: jax.Device) -> tuple[str, int]:
    """The platform of a device, and its index there: other processes may have one like it."""
    return device.platform, jax.local_devices(backend=device.platform).index(device)
