"""Arrays that describe themselves by `__cuda_array_interface__`, as Numba's do."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from typing import Any

import cupy
import ml_dtypes
import numpy as np
from cupy.cuda import runtime

BFLOAT16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)


def described_array(value: Any) -> Any:
    """Return an array of CuPy that shares the memory, or a copy if it is pinned on the host.

    The current stream of the memory's device waits for the stream that the description names.
    """
    description = value.__cuda_array_interface__
    if description.get("mask") is not None:
        raise ValueError("it has a mask, which ONNX does not have; pass an array without one")
    dtype = _dtype(description)
    shape = tuple(map(int, description["shape"]))
    strides = _strides(description, shape, dtype)
    if not math.prod(shape):
        return cupy.empty(shape, dtype)
    pointer = int(description["data"][0])
    attributes = runtime.pointerGetAttributes(pointer)
    if attributes.type == runtime.memoryTypeUnregistered:
        raise ValueError(f"CUDA knows nothing of its memory at {pointer:#x}")
    with cupy.cuda.Device(attributes.device):
        event = _end_of_work(description.get("stream"))
        if attributes.type == runtime.memoryTypeHost:
            if event is not None:
                event.synchronize()
            return cupy.array(_on_host(pointer, shape, dtype, strides))
        if event is not None:
            cupy.cuda.get_current_stream().wait_event(event)
        low, high = _extent(shape, strides, dtype)
        memory = cupy.cuda.UnownedMemory(pointer + low, high - low, value, attributes.device)
        return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, -low), strides)


def _dtype(description: Mapping[str, Any]) -> np.dtype[Any]:
    dtype: np.dtype[Any] = np.dtype(str(description["typestr"]))
    if dtype.byteorder == ">":
        raise ValueError(f"its elements are big-endian ({dtype.str}); convert them with astype")
    # NumPy has no name for bfloat16, so CuPy and torch describe it as two bytes of anything.
    if dtype.kind == "V" and dtype.itemsize == BFLOAT16.itemsize:
        return BFLOAT16
    if dtype.kind not in "biufc":
        raise ValueError(f"it has elements of {dtype.str}, which ONNX does not have")
    return dtype


def _strides(
    description: Mapping[str, Any], shape: Sequence[int], dtype: np.dtype[Any]
) -> tuple[int, ...]:
    strides = description.get("strides")
    if strides is None:
        return tuple(dtype.itemsize * math.prod(shape[i + 1 :]) for i in range(len(shape)))
    if len(strides) != len(shape):
        raise ValueError(f"it has {len(shape)} axes, but {len(strides)} strides")
    return tuple(map(int, strides))


def _extent(shape: Sequence[int], strides: Sequence[int], dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return where the memory begins and ends, in bytes from the first element."""
    steps = [(n - 1) * stride for n, stride in zip(shape, strides, strict=True)]
    return sum(min(step, 0) for step in steps), dtype.itemsize + sum(max(step, 0) for step in steps)


def _end_of_work(stream: int | None) -> Any:
    """Return an event after all that was put on the stream; None if nobody has to wait.

    The interface numbers the legacy default stream 1 and the one of this thread 2, as CUDA does.
    """
    if stream is None:
        return None
    if stream <= 0:
        raise ValueError(f"its stream is {stream}, which the interface does not allow")
    current = cupy.cuda.get_current_stream().ptr or runtime.streamLegacy
    if stream == current:
        return None
    event = cupy.cuda.Event(disable_timing=True)
    runtime.eventRecord(event.ptr, stream)
    return event


def _on_host(
    pointer: int, shape: Sequence[int], dtype: np.dtype[Any], strides: Sequence[int]
) -> np.ndarray[Any, Any]:
    low, high = _extent(shape, strides, dtype)
    buffer = (ctypes.c_byte * (high - low)).from_address(pointer + low)
    return np.ndarray(shape, dtype, memoryview(buffer), -low, strides)
