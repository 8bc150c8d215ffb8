"""The tensors of a model file as NumPy arrays: read-only, and without a copy where there is a way.

What a file says of itself is checked before anything is allocated on its word.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx

from sardonyx.errors import LimitExceeded
from sardonyx.graph.loading.external import Bytes, map_external, refuse, title
from sardonyx.graph.standard.types import ELEMENT_TYPES, ElementType

Array: TypeAlias = np.ndarray[Any, Any]

MOST_DIMENSIONS = 64  # NumPy's limit
LARGEST_DENSE = 2**31  # bytes that a sparse tensor may take once it is dense
_TYPED = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")
_AGAIN = "the file is damaged or was written wrongly; export the model again"


def decode(tensor: onnx.TensorProto, folder: Path | None) -> Array:
    """`tensor` as an array. Data outside of the model file is mapped from `folder`."""
    kind = _element_type(tensor)
    shape = _shape(tensor, tensor.dims, kind)
    if tensor.HasField("segment"):
        refuse(
            tensor,
            "it is one segment of a tensor, which no version of ONNX says how to put together: "
            "export the model with whole tensors",
        )
    array = _data(tensor, kind, math.prod(shape), folder).reshape(shape)
    array.flags.writeable = False
    return array


def decode_sparse(sparse: onnx.SparseTensorProto, folder: Path | None) -> Array:
    """`sparse` as a dense array, with zeros (or empty strings) where it says nothing."""
    values, indices = sparse.values, sparse.indices
    kind = _element_type(values)
    shape = _shape(values, sparse.dims, kind)
    size = math.prod(shape)
    if size * kind.dtype.itemsize > LARGEST_DENSE:
        raise LimitExceeded(
            f"{title(values)}: sparse, of shape {shape}, it would take "
            f"{size * kind.dtype.itemsize:,} bytes as a dense array, more than the "
            f"{LARGEST_DENSE:,} that are allowed: export it as a dense initializer."
        )
    stored = decode(values, folder)
    if stored.ndim != 1:
        refuse(values, f"the values of a sparse tensor have one axis, not {stored.ndim}: {_AGAIN}")
    if stored.size == 0 and not indices.data_type:
        places = np.empty(0, np.int64)
    else:
        places = _places(values, decode(indices, folder), stored.size, shape)
    dense = np.full(size, "", object) if kind.name == "string" else np.zeros(size, kind.dtype)
    dense[places] = stored
    dense = dense.reshape(shape)
    dense.flags.writeable = False
    return dense


def _places(values: onnx.TensorProto, indices: Array, count: int, shape: tuple[int, ...]) -> Array:
    """Where the values go in the flattened tensor; the file says that, or gives coordinates."""
    layouts = [(count,), (count, len(shape))]
    if indices.dtype != np.int64 or indices.shape not in layouts:
        refuse(
            values,
            f"its {count} sparse values need int64 indices of shape {layouts[0]} or {layouts[1]}, "
            f"not {indices.dtype} of shape {indices.shape}: {_AGAIN}",
        )
    bounds = np.asarray(shape if indices.ndim == 2 else math.prod(shape), np.int64)
    if np.any((indices < 0) | (indices >= bounds)):
        refuse(values, f"a sparse index is outside of its shape {shape}: {_AGAIN}")
    if indices.ndim == 2:
        strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        indices = indices @ np.asarray(strides, np.int64)
    if np.any(indices[1:] <= indices[:-1]):
        refuse(values, f"its sparse indices must ascend, none of them twice: {_AGAIN}")
    return indices


def _element_type(tensor: onnx.TensorProto) -> ElementType:
    if tensor.data_type == onnx.TensorProto.UNDEFINED:
        refuse(tensor, f"its element type is missing (UNDEFINED): {_AGAIN}")
    if tensor.data_type not in ELEMENT_TYPES:
        refuse(
            tensor,
            f"its element type {tensor.data_type} is none of ONNX's ({min(ELEMENT_TYPES)} to "
            f"{max(ELEMENT_TYPES)}): the file is damaged, or newer than this sardonyx",
        )
    return ELEMENT_TYPES[tensor.data_type]


def _shape(tensor: onnx.TensorProto, dims: Sequence[int], kind: ElementType) -> tuple[int, ...]:
    if len(dims) > MOST_DIMENSIONS:
        refuse(
            tensor,
            f"it has {len(dims):,} dimensions, and NumPy's limit is {MOST_DIMENSIONS}: reshape it "
            "to fewer before the export",
        )
    shape = tuple(dims)
    if any(size < 0 for size in shape):
        refuse(tensor, f"a dimension of its shape {shape} is negative: {_AGAIN}")
    # NumPy leaves zeros out when it looks whether an array could be addressed.
    if math.prod(size for size in shape if size) * kind.dtype.itemsize >= 2**63:
        refuse(tensor, f"its shape {shape} has more elements than could be addressed: {_AGAIN}")
    return shape


def _data(tensor: onnx.TensorProto, kind: ElementType, count: int, folder: Path | None) -> Array:
    """The `count` elements, flat, from whichever of the three places they are in."""
    typed = [field for field in _TYPED if len(getattr(tensor, field))]
    raw = tensor.raw_data  # every access copies it
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        if raw or typed:
            refuse(tensor, f"it has data both inside and outside of the model file: {_AGAIN}")
        if kind.name == "string":
            refuse(tensor, "strings cannot be external data: export them inside the model")
        return _from_bytes(map_external(tensor, folder, _packed_size(kind, count)), kind, count)
    if raw and typed:
        refuse(tensor, f"it has data both in raw_data and in {typed[0]}: {_AGAIN}")
    if typed and typed != [kind.field]:
        refuse(
            tensor,
            f"its data is in {' and '.join(typed)}, but {kind.name} belongs in {kind.field}: "
            f"{_AGAIN}",
        )
    if typed or kind.name == "string":
        if raw:
            refuse(tensor, f"strings cannot be in raw_data, they belong in string_data: {_AGAIN}")
        return _from_field(tensor, kind, count)
    if len(raw) != _packed_size(kind, count):
        _refuse_count(tensor, "raw_data", f"{len(raw):,} bytes", f"{_packed_size(kind, count):,}")
    return _from_bytes(np.frombuffer(raw, np.uint8), kind, count)


def _refuse_count(tensor: onnx.TensorProto, field: str, found: str, needed: str) -> None:
    name = ELEMENT_TYPES[tensor.data_type].name
    refuse(
        tensor,
        f"{field} holds {found}, but {name} of shape {tuple(tensor.dims)} needs {needed}: {_AGAIN}",
    )


def _packed_size(kind: ElementType, count: int) -> int:
    return -(-count * kind.bits // 8)


def _from_bytes(data: Bytes, kind: ElementType, count: int) -> Array:
    if kind.bits < 8:
        return _unpacked(data, kind, count)
    if kind.name == "bool":
        # NumPy takes for granted that a bool is 0 or 1, and computes nonsense from other bytes.
        return data.view(np.bool_) if not np.any(data > 1) else data != 0
    array = data.view(kind.dtype)
    if sys.byteorder == "big":
        array = array.byteswap()
    return array if array.flags.aligned else array.copy()


def _unpacked(data: Bytes, kind: ElementType, count: int) -> Array:
    """Several elements share a byte (or four of six bits three bytes), the lowest bits first."""
    words: Array = data
    if kind.bits == 6:
        padded = np.concatenate([data, np.zeros(-data.size % 3, np.uint8)])
        low, middle, high = padded.reshape(-1, 3).astype(np.uint32).T
        words = low | middle << 8 | high << 16
    per_word = {6: 4}.get(kind.bits, 8 // kind.bits)
    fields = np.empty((words.size, per_word), np.uint8)
    for place in range(per_word):
        fields[:, place] = words >> place * kind.bits & (1 << kind.bits) - 1
    return _from_bits(fields.reshape(-1)[:count], kind)


def _from_bits(fields: Bytes, kind: ElementType) -> Array:
    """Elements from their low bits, each in a byte of its own."""
    if kind.name.startswith("int"):
        unused = 8 - kind.bits
        fields = ((fields << unused).view(np.int8) >> unused).view(np.uint8)
    return fields.view(kind.dtype)


def _from_field(tensor: onnx.TensorProto, kind: ElementType, count: int) -> Array:
    field = getattr(tensor, kind.field)
    needed = count * 2 if kind.dtype.kind == "c" else count
    if kind.bits in (2, 4):
        needed = _packed_size(kind, count)
    if len(field) != needed:
        _refuse_count(tensor, kind.field, f"{len(field):,} values", f"{needed:,}")
    match kind.field:
        case "string_data":
            return _strings(tensor)
        case "float_data" | "double_data":
            stored = np.float32 if kind.field == "float_data" else np.float64
            return np.fromiter(field, stored, needed).view(kind.dtype)
        case "int64_data":
            return np.fromiter(field, np.int64, needed)
        case "uint64_data":
            return _narrowed(tensor, np.fromiter(field, np.uint64, needed), kind)
    return _from_int32(tensor, np.fromiter(field, np.int32, needed), kind, count)


def _from_int32(tensor: onnx.TensorProto, stored: Array, kind: ElementType, count: int) -> Array:
    if kind.name == "bool":
        return stored.astype(np.bool_)
    narrow = _narrowed(tensor, stored, kind)
    if kind.bits in (2, 4):
        return _unpacked(narrow, kind, count)
    return narrow.view(kind.dtype)


def _narrowed(tensor: onnx.TensorProto, stored: Array, kind: ElementType) -> Array:
    """Values, or the bits of values, as unsigned integers of their own width.

    Some writers sign-extend the bits and others do not; what fits neither way is a mistake.
    """
    bits = 8 if kind.bits in (2, 4) else kind.bits
    wrong = stored >= 1 << bits if bits < stored.itemsize * 8 else np.zeros(0, np.bool_)
    if stored.dtype.kind == "i" and bits < 32:
        wrong |= stored < -(1 << bits - 1)
    if np.any(wrong):
        value = stored[np.argmax(wrong)]
        refuse(tensor, f"{kind.field} holds {value}, which is no {kind.name}: {_AGAIN}")
    if bits == 6:
        stored = stored & 0x3F
    return stored.astype(f"u{max(bits, 8) // 8}")


def _strings(tensor: onnx.TensorProto) -> Array:
    array = np.empty(len(tensor.string_data), object)
    for index, text in enumerate(tensor.string_data):
        try:
            array[index] = text.decode()
        except UnicodeDecodeError as error:
            refuse(
                tensor,
                f"its string {index} is no valid UTF-8 ({error.reason} at byte {error.start}), as "
                "ONNX wants strings to be: encode it before the export",
            )
    return array
