"""Arrays of types that a library cannot read from DLPack: their bytes, and what these are.

A capsule of DLPack points to a structure. Its type is replaced by that of integers before the
library reads it.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any

import ml_dtypes
import numpy as np

from sardonyx.backends.dtypes import is_low_precision

# The numbers of types in DLPack.
UNSIGNED = 1
CODES = {
    np.dtype(ml_dtypes.bfloat16): 4,
    np.dtype(ml_dtypes.float8_e4m3fn): 10,
    np.dtype(ml_dtypes.float8_e4m3fnuz): 11,
    np.dtype(ml_dtypes.float8_e5m2): 12,
    np.dtype(ml_dtypes.float8_e5m2fnuz): 13,
    np.dtype(ml_dtypes.float8_e8m0fnu): 14,
    np.dtype(ml_dtypes.float6_e2m3fn): 15,
    np.dtype(ml_dtypes.float6_e3m2fn): 16,
    np.dtype(ml_dtypes.float4_e2m1fn): 17,
}
_DTYPES = {code: dtype for dtype, code in CODES.items()}
# The first version with these numbers.
VERSION = (1, 1)
# The number of CUDA's devices in DLPack.
_CUDA = 2
# The flag of arrays with a byte for each element of fewer bits.
_IS_PADDED = 4


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("owner", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint32 * 2),
        ("owner", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_STRUCTURES: dict[bytes, Any] = {b"dltensor": _Managed, b"dltensor_versioned": _Versioned}
# Found by name, each function is an object of its own: other libraries declare types of the shared
# ones.
_name = ctypes.pythonapi["PyCapsule_GetName"]
_name.restype, _name.argtypes = ctypes.c_char_p, (ctypes.py_object,)
_pointer = ctypes.pythonapi["PyCapsule_GetPointer"]
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def content(capsule: Any) -> Any:
    """Return the structure that a capsule points to, which lives as long as the capsule."""
    name = _name(capsule)
    return _STRUCTURES[name].from_address(_pointer(capsule, name))


def exported(dtype: np.dtype[Any], integers: Any, **options: Any) -> Any:
    """Return the capsule of an array of integers, which says that they are of another type."""
    if dtype not in CODES or dtype.itemsize * 8 != ml_dtypes.finfo(dtype).bits:
        raise BufferError(
            f"{dtype} has fewer than 8 bits, and libraries differ in how they pack it for DLPack; "
            "pass an array of uint8 with an element in each byte"
        )
    capsule = integers.__dlpack__(**options)
    structure = content(capsule)
    structure.tensor.dtype.code = CODES[dtype]
    if isinstance(structure, _Versioned):
        structure.version[:] = VERSION
    return capsule


class Exported:
    """An array of NumPy of a type of ml_dtypes, which NumPy does not export by DLPack."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        integers = self._array.view(f"u{self._array.dtype.itemsize}")
        return exported(self._array.dtype, integers, **options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


class CudaMemory:
    """Elements at an address of a CUDA device, which libraries share by DLPack.

    Whoever names the address keeps the memory, and waits for the work that writes to it.
    """

    def __init__(
        self, address: int, shape: tuple[int, ...], dtype: np.dtype[Any], device: int
    ) -> None:
        self.shape, self.dtype = shape, dtype
        self._address, self._device = address, device

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CUDA, self._device

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("memory at an address is shared where it is, and not copied")
        # NumPy writes the capsule, of an array that has all but the address and the device.
        is_numpys = not is_low_precision(self.dtype)
        here = np.empty((), self.dtype if is_numpys else f"u{self.dtype.itemsize}")
        steps = [here.itemsize * math.prod(self.shape[i + 1 :]) for i in range(len(self.shape))]
        alike = np.lib.stride_tricks.as_strided(here, self.shape, steps)
        if is_numpys:
            capsule = alike.__dlpack__(max_version=max_version)
        else:
            capsule = exported(self.dtype, alike, max_version=max_version)
        tensor = content(capsule).tensor
        tensor.data, tensor.device[:] = self._address, self.__dlpack_device__()
        return capsule


class _Producer:
    """An array of another library, which calls its elements integers."""

    def __init__(self, value: Any) -> None:
        self._value = value
        # Of the array that was taken: its own type, and how many elements are one integer.
        self.dtype: np.dtype[Any] | None = None
        self.lanes = 1
        self.is_packed = False

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self._value.__dlpack__(**options)
        structure = content(capsule)
        stated = structure.tensor.dtype
        found = _DTYPES.get(stated.code)
        if found is None or stated.bits != ml_dtypes.finfo(found).bits:
            return capsule
        has_bytes = stated.bits >= 8 or getattr(structure, "flags", 0) & _IS_PADDED
        if stated.lanes > 1 if has_bytes else stated.bits != 4 or stated.lanes > 2:
            return capsule
        self.dtype, self.lanes, self.is_packed = found, stated.lanes, not has_bytes
        stated.code, stated.bits, stated.lanes = UNSIGNED, 8 * found.itemsize, 1
        return capsule

    def __dlpack_device__(self) -> Any:
        return self._value.__dlpack_device__()


def as_integers(value: Any, xp: Any) -> tuple[Any, np.dtype[Any] | None]:
    """Return an array by the library's `from_dlpack`, and the type of the elements in its integers.

    The type is None if the library knows it. Packed elements are copied, each to a byte.
    """
    producer = _Producer(value)
    array = xp.from_dlpack(producer)
    if producer.is_packed:
        array = _unpacked(array, producer.lanes, xp)
    return array, producer.dtype


def _unpacked(array: Any, lanes: int, xp: Any) -> Any:
    """Return elements of 4 bits from bytes, whose lower half is the first of two neighbours."""
    if lanes == 2:
        if not array.ndim:
            raise TypeError("its two elements of 4 bits have no axis")
        return _halves(array, xp).reshape(*array.shape[:-1], 2 * array.shape[-1])
    # It has a byte for each two elements, and not for each, as the library thinks.
    if not array.flags.c_contiguous:
        raise TypeError("its elements of 4 bits do not lie in order")
    count = array.size
    return _halves(array.reshape(-1)[: -(-count // 2)], xp).reshape(-1)[:count].reshape(array.shape)


def _halves(array: Any, xp: Any) -> Any:
    return xp.stack([array & 15, array >> 4], axis=-1)


def on_host(value: Any) -> np.ndarray[Any, Any]:
    """Return a NumPy array of a value that is the host's, or that its library brings there."""
    if not hasattr(value, "__dlpack__"):
        if hasattr(value, "__cuda_array_interface__") and not hasattr(value, "__array__"):
            raise BufferError("its memory is that of a CUDA device, which this backend lacks")
        return np.asarray(value)
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError) as error:
        # Of a type that NumPy lacks, or on a device.
        array = _of_other_type(value)
        return _by_its_library(value, error) if array is None else array


def _of_other_type(value: Any) -> np.ndarray[Any, Any] | None:
    try:
        array, dtype = as_integers(value, np)
    except (BufferError, RuntimeError, TypeError):
        return None
    found: np.ndarray[Any, Any] = array if dtype is None else array.view(dtype)
    return found


def _by_its_library(value: Any, error: Exception) -> np.ndarray[Any, Any]:
    if not hasattr(value, "__array__"):
        raise error
    try:
        return np.asarray(value)
    except Exception:
        # DLPack's reason, as that a tensor needs gradients, is the plainer one.
        raise error from None
