"""JAX's devices by name, and the one on which an array lies."""

from __future__ import annotations

from typing import Any

import jax

from sardonyx.backends.jax import presence
from sardonyx.errors import BackendUnavailable

_INSTALL = {"gpu": "pip install 'sardonyx[cuda]'", "tpu": "pip install 'sardonyx[tpu]'"}


def has_accelerator() -> bool:
    """Whether there is a GPU or a TPU that JAX can use."""
    try:
        return any(device.platform != "cpu" for device in jax.devices())
    except (AssertionError, RuntimeError):  # The former if a plugin of JAX does not start.
        return False


def device_for(kind: str | None, index: int | None) -> jax.Device | None:
    """Return the device of a kind with an index; None is JAX's own choice."""
    presence.fork().refuse()
    if kind is None:
        return None
    try:
        devices = jax.local_devices(backend=kind)
    except RuntimeError as error:
        raise BackendUnavailable(
            f"JAX finds no {kind.upper()} here ({str(error).splitlines()[0]}): "
            f"{_INSTALL.get(kind, 'look at JAX_PLATFORMS')}"
        ) from error
    if (index or 0) >= len(devices):
        raise BackendUnavailable(
            f"JAX finds no {kind}:{index}; this machine has {len(devices)}, counted from 0"
        )
    chosen = devices[index or 0]
    # Where JAX has a single CPU, naming it changes nothing, and calls would copy NumPy's arrays.
    return None if chosen.platform == "cpu" and jax.devices() == [chosen] else chosen


def device_of(array: Any) -> jax.Device | None:
    """Return the device of an array.

    None stands for JAX's own choice, for arrays on several devices, and for tracers.
    """
    if isinstance(array, jax.core.Tracer) or len(array.sharding.device_set) != 1:
        return None
    (device,) = array.sharding.device_set
    return None if device == jax.devices()[0] else device
