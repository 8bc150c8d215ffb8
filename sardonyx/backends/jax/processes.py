"""JAX in other processes: the same device there."""

from __future__ import annotations

import jax


def place_of(device: jax.Device) -> tuple[str, int]:
    """The platform of a device, and its index there: other processes may have one like it."""
    return device.platform, jax.local_devices(backend=device.platform).index(device)
