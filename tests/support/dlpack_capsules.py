"""A producer and a consumer of DLPack, which write and read its structures byte by byte."""

from __future__ import annotations

import ctypes
import struct
from collections import deque
from typing import Any, NamedTuple

PADDED = 4
# Found by name, each function is an object of its own: other libraries declare types of the shared
# ones.
_new = ctypes.pythonapi["PyCapsule_New"]
_new.restype, _new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_name = ctypes.pythonapi["PyCapsule_GetName"]
_name.restype, _name.argtypes = ctypes.c_char_p, (ctypes.py_object,)
_pointer = ctypes.pythonapi["PyCapsule_GetPointer"]
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
# data, device, axes, type's number, bits, lanes, shape, strides, offset
_TENSOR = struct.Struct("<QiiiBBHQQQ")

# What capsules need until their deleters have been called.
_LENT: dict[int, Any] = {}
_ENDED: deque[Any] = deque(maxlen=16)


class Tensor(NamedTuple):
    """What a capsule says."""

    pointer: int
    device: tuple[int, int]
    code: int
    bits: int
    lanes: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    version: tuple[int, int] | None


def read(capsule: Any) -> Tensor:
    name = _name(capsule)
    address = _pointer(capsule, name)
    version = None
    if name == b"dltensor_versioned":
        version = struct.unpack("<II", ctypes.string_at(address, 8))
        address += 32
    content = ctypes.string_at(address, _TENSOR.size)
    data, kind, index, axes, code, bits, lanes, shape, strides, offset = _TENSOR.unpack(content)
    numbers = [
        tuple((ctypes.c_int64 * axes).from_address(at)) if axes else () for at in (shape, strides)
    ]
    return Tensor(data + offset, (kind, index), code, bits, lanes, *numbers, version)


class Producer:
    """An array of any type of DLPack, in memory that the caller keeps."""

    def __init__(
        self,
        pointer: int,
        shape: tuple[int, ...],
        dtype: tuple[int, int, int],
        *,
        device: tuple[int, int] = (1, 0),
        strides: tuple[int, ...] | None = None,
        flags: int | None = None,
    ) -> None:
        """`dtype` is a number, bits and lanes; with `flags` the capsule has a version."""
        self.shape, self.dtype, self.deleted, self.streams = shape, "of DLPack", 0, []
        self._device, self._flags = device, flags
        self._sizes = (ctypes.c_int64 * len(shape))(*shape)
        self._steps = None if strides is None else (ctypes.c_int64 * len(shape))(*strides)
        self._deleter = _DELETER(self._delete)
        steps = 0 if self._steps is None else ctypes.addressof(self._steps)
        places = ctypes.addressof(self._sizes), steps, 0
        tensor = _TENSOR.pack(pointer, *device, len(shape), *dtype, *places)
        deleter = ctypes.cast(self._deleter, ctypes.c_void_p).value
        head = b"" if flags is None else struct.pack("<IIQQQ", 1, 1, 0, deleter, flags)
        tail = struct.pack("<QQ", 0, deleter) if flags is None else b""
        self._tensors = head + tensor + tail

    def _delete(self, address: int) -> None:
        self.deleted += 1
        # This function must outlive its call.
        _ENDED.append(_LENT.pop(address))

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        self.streams.append(stream)
        buffer = ctypes.create_string_buffer(self._tensors, len(self._tensors))
        _LENT[ctypes.addressof(buffer)] = (self, buffer)
        name = b"dltensor" if self._flags is None else b"dltensor_versioned"
        return _new(ctypes.addressof(buffer), name, None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device
