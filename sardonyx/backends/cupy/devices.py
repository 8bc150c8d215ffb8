"""The CUDA devices of this process."""

from __future__ import annotations

from functools import cache
from threading import RLock

import cupy

from sardonyx.backends.forks import Fork
from sardonyx.errors import BackendUnavailable

# Held while a stream is captured. Meanwhile CUDA refuses to wait for a whole device.
CAPTURING = RLock()


@cache
def fork() -> Fork:
    """Since its first use of CuPy the process holds a CUDA context, which no child inherits."""
    return Fork("CUDA", lambda: True)


def present_device(device: int | None) -> int:
    """The index of this device, or of the current one for None, if it exists."""
    try:
        count = cupy.cuda.runtime.getDeviceCount()
        current = cupy.cuda.runtime.getDevice()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise BackendUnavailable(
            f"CuPy finds no NVIDIA GPU ({error}); install NVIDIA's driver, or run the model on "
            "JAX or NumPy"
        ) from error
    if device is None:
        return int(current)
    if not 0 <= device < count:
        raise BackendUnavailable(
            f"there is no CUDA device {device}; this machine has {count}, counted from 0"
        )
    return device


def limit_pool(device: int, fraction: float) -> None:
    with cupy.cuda.Device(device):
        cupy.get_default_memory_pool().set_limit(fraction=fraction)
