"""Memory by its address, as an array; and the element types of arrays."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable
from typing import Any, cast

import numpy as np

from sardonyx.compat.exceptions import RefusedCall, WrongType
from sardonyx.errors import SardonyxError
from sardonyx.graph.standard.types import ELEMENT_TYPES, ElementType, element_type

_OF_DTYPE = {row.dtype: row for row in ELEMENT_TYPES.values()}


def row_of_dtype(dtype: Any) -> ElementType:
    """Return ONNX's element type for a dtype of NumPy.

    >>> row_of_dtype(np.float16).name
    'float16'
    """
    row = _OF_DTYPE.get(np.dtype(dtype))
    if row is None:
        raise RefusedCall(f"ONNX has no element type for the dtype {np.dtype(dtype)}: convert it.")
    return row


def is_number(dtype: np.dtype[Any]) -> bool:
    """Return whether ONNX has numbers or booleans of this dtype.

    >>> is_number(np.dtype(np.float16)), is_number(np.dtype(object))
    (True, False)
    """
    return dtype.kind != "O" and dtype in _OF_DTYPE


def is_float8_dtype(dtype: np.dtype[Any]) -> bool:
    """Return whether elements are floats of 8 bits, for which NumPy has no dtype of its own.

    >>> is_float8_dtype(np.dtype(np.float16))
    False
    """
    return dtype.itemsize == 1 and dtype.name.startswith("float8")


def dtype_of(kind: Any) -> np.dtype[Any]:
    """Return the dtype for a NumPy type, or the number of an ONNX element type.

    >>> dtype_of(1), dtype_of("int64")
    (dtype('float32'), dtype('int64'))
    """
    try:
        if isinstance(kind, (int, np.integer)) and not isinstance(kind, bool):
            return element_type(int(kind)).dtype
        return row_of_dtype(np.dtype(kind)).dtype
    except (TypeError, SardonyxError) as error:
        raise RefusedCall(
            f"There is no element type {kind!r:.100}: pass a dtype such as numpy.float32, or a "
            "number such as onnx.TensorProto.BFLOAT16."
        ) from error


def number_dtype(kind: Any) -> np.dtype[Any]:
    """Return the dtype of elements that are numbers, and refuse strings."""
    dtype = dtype_of(kind)
    if dtype.kind == "O":
        raise RefusedCall("Strings have no memory of a fixed size: pass arrays of numbers.")
    return dtype


def shape_of(shape: Any) -> tuple[int, ...]:
    """Return a shape as a tuple of sizes.

    >>> shape_of([2, 3])
    (2, 3)
    """
    if isinstance(shape, (str, bytes)) or not isinstance(shape, Iterable):
        raise WrongType(f"A shape is {shape!r:.100}: pass a list of sizes.")
    sizes = list(shape)
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)):
            raise WrongType(f"A size in the shape {sizes!r:.200} is {size!r:.50}: pass integers.")
        if size < 0:
            raise RefusedCall(f"The shape {sizes!r:.200} has the size {size}: pass sizes from 0.")
    return tuple(map(int, sizes))


def array_at(address: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return the array whose elements are at an address of this process.

    The caller keeps the memory alive as long as it is used.
    """
    size = math.prod(shape) * dtype.itemsize
    check_address(address, size)
    if not size:
        return np.empty(shape, dtype)
    memory = (ctypes.c_char * size).from_address(int(address))
    flat: np.ndarray[Any, Any] = np.frombuffer(cast("Any", memory), dtype)
    return flat.reshape(shape)


def check_address(address: Any, size: int) -> None:
    """Refuse what can be no address of so many bytes.

    >>> check_address(0, 0)
    """
    if isinstance(address, bool) or not isinstance(address, (int, np.integer)):
        raise WrongType(
            f"The address of memory is {address!r:.100}: pass a number, as array.ctypes.data."
        )
    if address < 0 or (size and not address):
        raise RefusedCall(f"The address {address} is no address of {size:,} bytes.")
