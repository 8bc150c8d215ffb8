"""Arrays on their way to the device: the host's, and those of other libraries that are on one."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from sardonyx.backends.cupy.alignment import aligned
from sardonyx.backends.cupy.bits import Bits, cast, copied
from sardonyx.backends.cupy.cuda_interface import described_array
from sardonyx.backends.cupy.graph_memory import current_capture
from sardonyx.backends.dlpack import as_integers
from sardonyx.backends.fusion.narrow_types import NARROW
from sardonyx.backends.numpy import HOST

# DLPack's numbers for CUDA's memory: a device's own, and memory that host and device share.
CUDA_MEMORY = (2, 13)


def uploaded(value: Any, *, dtype: Any = None, **options: Any) -> Any:
    """A copy on the device.

    In a capture the copy is uploaded at once, outside of the graph: what the host knows there does
    not depend on data. The graph copies it, since steps may write to their own arrays.
    """
    capture = current_capture()
    if capture is None or isinstance(value, (Bits, cupy.ndarray)):
        return _uploaded(value, dtype=dtype, **options)
    with capture.outside():
        constant = _uploaded(value, dtype=dtype, **options)
    capture.keep(constant)
    return copied(constant)


def _uploaded(value: Any, *, dtype: Any = None, **options: Any) -> Any:
    """Upload an array. Of one without axes CuPy would lose the sign of zero."""
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
    return Bits.of(host) if dtype in NARROW else _uploaded(host)


def is_on_cuda(value: Any) -> bool:
    """Whether the array says through DLPack that a device can read it in place."""
    if not hasattr(value, "__dlpack_device__"):
        return False
    try:
        memory, _ = value.__dlpack_device__()
    except Exception:
        # An array of JAX that was deleted has no device; reading it raises an error that says so.
        return False
    return memory in CUDA_MEMORY


def imported(value: Any, device: int) -> Any:
    """Return an array of the current device, sharing the value's memory if it lies there.

    None if the value is the host's. The current stream waits for the work of its producer.
    """
    if isinstance(value, Bits):
        data = imported(value.bits, device)
        return value if data is value.bits else Bits(data, value.dtype)
    array = _shared(value)
    if array is None:
        return None
    if isinstance(array, Bits):
        # The array is new, or its bytes are shared: those of another device are brought here.
        return imported(array, device)
    array = aligned(array)
    return array if array.data.device_id == device else _moved(array)


def _shared(value: Any) -> Any:
    if isinstance(value, cupy.ndarray):
        return value
    if is_on_cuda(value):
        try:
            # CuPy passes its current stream, and the producer lets that wait.
            return cupy.from_dlpack(value)
        except (BufferError, NotImplementedError, TypeError, ValueError):
            # A type that one of the two libraries does not exchange.
            array = _narrow(value)
            if array is not None:
                return array
    return described_array(value) if _is_described(value) else None


def _is_described(value: Any) -> bool:
    try:
        return hasattr(value, "__cuda_array_interface__")
    except Exception:
        # torch raises a KeyError where the interface lacks the type.
        return False


def _narrow(value: Any) -> Bits | None:
    """Return an array of a type that CuPy lacks; it shares the memory if that has bytes for it."""
    try:
        array, dtype = as_integers(value, cupy)
    except (BufferError, NotImplementedError, TypeError, ValueError):
        return None
    return None if dtype is None else Bits(array, dtype)


def _moved(array: Any) -> Any:
    """Return a copy on the current device, and wait for it: nobody else knows of its reads."""
    with cupy.cuda.Device(array.data.device_id):
        whole = cupy.ascontiguousarray(array)
        written = cupy.cuda.get_current_stream().record()
    stream = cupy.cuda.get_current_stream()
    stream.wait_event(written)
    copy = whole.copy()
    stream.synchronize()
    return copy.reshape(array.shape)
