"""Arrays as tensors of a ModelProto, inside it or in a file beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

_DATA = (
    "raw_data",
    "float_data",
    "int32_data",
    "int64_data",
    "uint64_data",
    "double_data",
    "string_data",
    "external_data",
    "data_location",
)


def fill(tensor: TensorProto, array: np.ndarray[Any, Any]) -> None:
    """Write an array as the data of a tensor, whose name and texts stay."""
    for field in _DATA:
        tensor.ClearField(field)
    encoded = numpy_helper.from_array(np.asarray(array, order="C"))
    tensor.dims[:] = encoded.dims
    tensor.data_type = encoded.data_type
    tensor.raw_data = encoded.raw_data
    tensor.string_data.extend(encoded.string_data)
    if not encoded.raw_data:
        tensor.ClearField("raw_data")
        _copy_typed(encoded, tensor)


def _copy_typed(encoded: TensorProto, tensor: TensorProto) -> None:
    for field in _DATA[1:6]:
        getattr(tensor, field).extend(getattr(encoded, field))


def refer(tensor: TensorProto, location: str, offset: int, length: int) -> None:
    """Let a tensor refer to data in another file."""
    for field in _DATA:
        tensor.ClearField(field)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))


def data_of(array: np.ndarray[Any, Any]) -> memoryview | bytes:
    """Return the bytes of an array as ONNX stores them; narrow types are packed."""
    return numpy_helper.from_array(np.asarray(array, order="C")).raw_data


def described(name: str, array: np.ndarray[Any, Any]) -> TensorProto:
    """Return a tensor without data."""
    number = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return TensorProto(name=name, dims=array.shape, data_type=number)
