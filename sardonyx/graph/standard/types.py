"""ONNX's element types: their numbers, their names, and the NumPy dtypes that hold them."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import ml_dtypes
import numpy as np

from sardonyx.errors import InvalidInput, InvalidModel

DType: TypeAlias = np.dtype[Any]


class ElementType(NamedTuple):
    """One row of ONNX's table of element types."""

    number: int
    name: str
    dtype: DType
    bits: int
    field: str  # The field of TensorProto with the values, unless they are in raw_data.


def _row(number: int, name: str, dtype: Any, field: str, bits: int | None = None) -> ElementType:
    dtype = np.dtype(dtype)
    return ElementType(number, name, dtype, bits or dtype.itemsize * 8, field)


_ROWS = (
    _row(1, "float", np.float32, "float_data"),
    _row(2, "uint8", np.uint8, "int32_data"),
    _row(3, "int8", np.int8, "int32_data"),
    _row(4, "uint16", np.uint16, "int32_data"),
    _row(5, "int16", np.int16, "int32_data"),
    _row(6, "int32", np.int32, "int32_data"),
    _row(7, "int64", np.int64, "int64_data"),
    _row(8, "string", object, "string_data"),
    _row(9, "bool", np.bool_, "int32_data"),
    _row(10, "float16", np.float16, "int32_data"),
    _row(11, "double", np.float64, "double_data"),
    _row(12, "uint32", np.uint32, "uint64_data"),
    _row(13, "uint64", np.uint64, "uint64_data"),
    _row(14, "complex64", np.complex64, "float_data"),
    _row(15, "complex128", np.complex128, "double_data"),
    _row(16, "bfloat16", ml_dtypes.bfloat16, "int32_data"),
    _row(17, "float8e4m3fn", ml_dtypes.float8_e4m3fn, "int32_data"),
    _row(18, "float8e4m3fnuz", ml_dtypes.float8_e4m3fnuz, "int32_data"),
    _row(19, "float8e5m2", ml_dtypes.float8_e5m2, "int32_data"),
    _row(20, "float8e5m2fnuz", ml_dtypes.float8_e5m2fnuz, "int32_data"),
    _row(21, "uint4", ml_dtypes.uint4, "int32_data", bits=4),
    _row(22, "int4", ml_dtypes.int4, "int32_data", bits=4),
    _row(23, "float4e2m1", ml_dtypes.float4_e2m1fn, "int32_data", bits=4),
    _row(24, "float8e8m0", ml_dtypes.float8_e8m0fnu, "int32_data"),
    _row(25, "uint2", ml_dtypes.uint2, "int32_data", bits=2),
    _row(26, "int2", ml_dtypes.int2, "int32_data", bits=2),
    _row(27, "float6e2m3", ml_dtypes.float6_e2m3fn, "int32_data", bits=6),
    _row(28, "float6e3m2", ml_dtypes.float6_e3m2fn, "int32_data", bits=6),
)
ELEMENT_TYPES = {row.number: row for row in _ROWS}
_OF_DTYPE = {row.dtype: row for row in _ROWS}
_OF_NAME = {f"tensor({row.name})": row.dtype for row in _ROWS}


def dtype_of(number: int) -> DType:
    """Return the NumPy dtype of a TensorProto element type; strings are Python objects.

    >>> dtype_of(1), dtype_of(8)
    (dtype('float32'), dtype('O'))
    """
    if number not in ELEMENT_TYPES:
        raise InvalidModel(
            f"Element type {number} is unknown; ONNX defines {min(ELEMENT_TYPES)} to "
            f"{max(ELEMENT_TYPES)}: the file is damaged, or newer than this sardonyx."
        )
    return ELEMENT_TYPES[number].dtype


def number_of(dtype: DType) -> int:
    """Return the TensorProto element type of a NumPy dtype: the inverse of `dtype_of`."""
    return _element_type(dtype).number


def type_name(dtype: DType) -> str:
    """Return the ONNX name of the type of a tensor of `dtype`.

    >>> type_name(np.dtype(np.float32)), type_name(np.dtype("U5"))
    ('tensor(float)', 'tensor(string)')
    """
    return f"tensor({_element_type(dtype).name})"


def short_name(dtype: DType) -> str:
    """Return the name of `dtype` for messages: NumPy's name, or "string".

    >>> short_name(np.dtype(np.float32)), short_name(np.dtype(object))
    ('float32', 'string')
    """
    return "string" if is_string(dtype) else dtype.name


def is_string(dtype: DType) -> bool:
    """Whether a tensor of `dtype` holds strings: as objects, or in one of NumPy's own types."""
    return dtype.kind in "OUST"


def _element_type(dtype: DType) -> ElementType:
    dtype = np.dtype(object) if is_string(dtype) else dtype.newbyteorder("=")
    if dtype not in _OF_DTYPE:
        raise InvalidInput(
            f"ONNX has no element type for NumPy's {dtype}: convert the array first."
        )
    return _OF_DTYPE[dtype]


def dtype_of_type(type_text: str | None) -> DType | None:
    """Return the dtype of a tensor type; None for other types and for an unknown type.

    >>> dtype_of_type("tensor(double)"), dtype_of_type("seq(tensor(float))")
    (dtype('float64'), None)
    """
    return None if type_text is None else _OF_NAME.get(type_text)
