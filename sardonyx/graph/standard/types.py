"""ONNX's element types: their numbers, their names, and the NumPy dtypes that hold them."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from onnx import TensorProto, helper

from sardonyx.errors import InvalidInput, InvalidModel

DType: TypeAlias = np.dtype[Any]


class ElementType(NamedTuple):
    """One row of ONNX's table of element types."""

    number: int
    name: str
    dtype: DType
    bits: int
    field: str  # The field of TensorProto with the values, unless they are in raw_data.


# The types of fewer bits than a byte, several of which are stored in one.
_NARROW = {
    "uint4": 4,
    "int4": 4,
    "float4e2m1": 4,
    "uint2": 2,
    "int2": 2,
    "float6e2m3": 6,
    "float6e3m2": 6,
}


def _row(number: int) -> ElementType:
    name = TensorProto.DataType.Name(number).lower()
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(number))
    bits = _NARROW.get(name, dtype.itemsize * 8)
    return ElementType(number, name, dtype, bits, helper.tensor_dtype_to_field(number))


_ROWS = [_row(number) for number in TensorProto.DataType.values() if number]
ELEMENT_TYPES = {row.number: row for row in _ROWS}
_OF_DTYPE = {row.dtype: row for row in _ROWS}
_OF_NAME = {f"tensor({row.name})": row.dtype for row in _ROWS}
_NAMES = {dtype: name for name, dtype in _OF_NAME.items()}


def element_type(number: int) -> ElementType:
    """Return the row of a TensorProto element type; refuse an unknown number."""
    if number not in ELEMENT_TYPES:
        raise InvalidModel(
            f"Element type {number} is unknown; ONNX defines {min(ELEMENT_TYPES)} to "
            f"{max(ELEMENT_TYPES)}: the file is damaged, or newer than this sardonyx."
        )
    return ELEMENT_TYPES[number]


def dtype_of(number: int) -> DType:
    """Return the NumPy dtype of a TensorProto element type; strings are Python objects.

    >>> dtype_of(1), dtype_of(8)
    (dtype('float32'), dtype('O'))
    """
    return element_type(number).dtype


def number_of(dtype: DType) -> int:
    """Return the TensorProto element type of a NumPy dtype: the inverse of `dtype_of`."""
    return _row_of(dtype).number


def type_name(dtype: DType) -> str:
    """Return the ONNX name of the type of a tensor of `dtype`.

    >>> type_name(np.dtype(np.float32)), type_name(np.dtype("U5"))
    ('tensor(float)', 'tensor(string)')
    """
    # All but other byte orders and lengths of strings; every value that is traced asks for it.
    return _NAMES.get(dtype) or f"tensor({_row_of(dtype).name})"


def short_name(dtype: DType) -> str:
    """Return the name of `dtype` for messages: NumPy's name, or "string".

    >>> short_name(np.dtype(np.float32)), short_name(np.dtype(object))
    ('float32', 'string')
    """
    return "string" if is_string(dtype) else dtype.name


def is_string(dtype: DType) -> bool:
    """Whether a tensor of `dtype` holds strings: as objects, or in one of NumPy's own types."""
    return dtype.kind in "OUST"


def _row_of(dtype: DType) -> ElementType:
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
