"""Which library runs a program's steps while XLA compiles it: NumPy, or CuPy on CUDA."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import jax

from sardonyx.backends.executable import FirstTier
from sardonyx.backends.interpreter import NumpyTier
from sardonyx.backends.jax.traits import JaxTraits

if TYPE_CHECKING:
    from sardonyx.backends.cupy.cutter import CupyCutter

# Set by `memory_fraction`, or by users: this process has no memory beside XLA's.
LIMIT = "XLA_PYTHON_CLIENT_MEM_FRACTION"


def first_tier(
    backend: JaxTraits,
    device: jax.Device,
    is_overtaken: Callable[[], bool],
    *,
    is_final: bool,
) -> FirstTier:
    if device.platform == "cpu":
        return NumpyTier(backend, is_overtaken, backend.host_kernels, is_final=is_final)
    tier: Callable[..., FirstTier] = _cupy("interpreter").CupyTier
    return tier(device.local_hardware_id, copy_of, is_overtaken)


def reason_to_wait(device: jax.Device) -> str | None:
    """Return why no library computes on the device until XLA has compiled; None if one does."""
    if device.platform == "cpu":
        return None
    if "cuda" not in str(device.client.platform_version).lower():
        return f"only XLA computes on {device.device_kind}"
    if find_spec("cupy") is None:
        return "CuPy is not installed: pip install 'sardonyx[cuda]'"
    if LIMIT in os.environ:
        return "XLA's memory is limited, and CuPy would need more beside it"
    try:
        _cupy("backend").CupyBackend.device_for("gpu", device.local_hardware_id)
    except Exception as error:  # Whatever an installation lacks.
        return f"CuPy does not run here: {error}"
    return None


def cutter(device: jax.Device) -> CupyCutter | None:
    """Return what pads and cuts arrays on the device without a program for each size, if it can."""
    if device.platform == "cpu" or reason_to_wait(device) is not None:
        return None
    made: CupyCutter = _cupy("cutter").CupyCutter(device.local_hardware_id, copies_of)
    return made


def copy_of(array: Any) -> jax.Array:
    """Return a copy of another library's array in XLA's own memory, on the same device.

    XLA ends the process if memory that is not its own is donated.
    """
    (copy,) = copies_of([array])
    return copy


def copies_of(arrays: Sequence[Any]) -> list[jax.Array]:
    """Return such copies of several arrays, which wait for the device once."""
    copies = [own_copy(jax.dlpack.from_dlpack(array)) for array in arrays]
    jax.block_until_ready(copies)
    return copies


def own_copy(array: jax.Array) -> jax.Array:
    (device,) = array.devices()
    copy: jax.Array = jax.device_put(array, device, may_alias=False)
    return copy


def _cupy(module: str) -> Any:
    return import_module(f"sardonyx.backends.cupy.{module}")
