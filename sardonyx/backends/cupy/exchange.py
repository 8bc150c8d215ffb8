"""Arrays on their way to the device, and those of other libraries that are on one."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

# DLPack's numbers for CUDA's memory: a device's own, and memory that host and device share.
CUDA_MEMORY = (2, 13)


def uploaded(value: Any, **options: Any) -> Any:
    """A copy on the device. Of an array without axes CuPy would lose the sign of zero."""
    if isinstance(value, cupy.ndarray) or np.ndim(value) > 0:
        return cupy.asarray(value, **options)
    return cupy.asarray(np.asarray(value)[None], **options).reshape(())


def is_on_cuda(value: Any) -> bool:
    if not hasattr(value, "__dlpack_device__"):
        return False
    try:
        memory, _ = value.__dlpack_device__()
    except Exception:
        # An array of JAX that was deleted has no device; reading it raises an error that says so.
        return False
    return memory in CUDA_MEMORY
