"""Arrays on their way to the device, and those of other libraries that are on one."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from sardonyx.backends.cupy.bits import Bits, cast
from sardonyx.backends.fusion.narrow_types import NARROW
from sardonyx.backends.numpy import HOST

# DLPack's numbers for CUDA's memory: a device's own, and memory that host and device share.
CUDA_MEMORY = (2, 13)


def uploaded(value: Any, *, dtype: Any = None, **options: Any) -> Any:
    """A copy on the device. Of an array without axes CuPy would lose the sign of zero."""
    if isinstance(value, Bits) or getattr(value, "dtype", dtype) in NARROW or dtype in NARROW:
        return _as_bits(value, dtype, **options)
    options["dtype"] = dtype
    if isinstance(value, cupy.ndarray) or np.ndim(value) > 0:
        return cupy.asarray(value, **options)
    return cupy.asarray(np.asarray(value)[None], **options).reshape(())


def _as_bits(value: Any, dtype: Any, *, copy: bool | None = None) -> Any:
    """Convert from or to a type that CuPy lacks."""
    dtype = value.dtype if dtype is None else np.dtype(dtype)
    if isinstance(value, (Bits, cupy.ndarray)):
        found = cast(value, dtype)
        return found.copy() if copy and found is value else found
    host = HOST.astype(np.asarray(value), dtype)
    return Bits.of(host) if dtype in NARROW else uploaded(host)


def on_device(value: Any) -> Any:
    """Return an array of CuPy's, or `Bits`, on the current device: itself, or a copy."""
    if not isinstance(value, Bits):
        return value if value.device == cupy.cuda.Device() else value.copy()
    data = on_device(value.bits)
    return value if data is value.bits else Bits(data, value.dtype)


def is_on_cuda(value: Any) -> bool:
    if not hasattr(value, "__dlpack_device__"):
        return False
    try:
        memory, _ = value.__dlpack_device__()
    except Exception:
        # An array of JAX that was deleted has no device; reading it raises an error that says so.
        return False
    return memory in CUDA_MEMORY
