"""Decoding of a model's tensors to NumPy arrays: read-only, and without a copy where possible.

The sizes that a file declares are checked before anything is allocated for them.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx

from sardonyx.errors import InvalidModel, LimitExceeded
from sardonyx.graph.loading.external import Bytes, map_external
from sardonyx.graph.loading.inline_weights import NOTHING_INLINE, SMALLEST, InlineWeights
from sardonyx.graph.loading.refusals import refuse, title
from sardonyx.graph.standard.types import ELEMENT_TYPES, ElementType, element_type
from sardonyx.graph.values.mmap import content

Array: TypeAlias = np.ndarray[Any, Any]

MOST_DIMENSIONS = 64  # NumPy's limit
LARGEST_DENSE = 2**31  # Maximum bytes of a sparse tensor after its conversion to a dense one.
_TYPED_FIELDS = tuple(dict.fromkeys(kind.field for kind in ELEMENT_TYPES.values()))


class TensorReader:
    """Decodes the tensors of one file, whose external data may lie beside it."""

    def __init__(self, file: Path | None, inline: InlineWeights = NOTHING_INLINE) -> None:
        self._file = file
        self._folder = file and file.parent
        self._inline = inline

    def dense(self, tensor: onnx.TensorProto) -> Array:
        """Decode a dense tensor."""
        own_name = self._file and self._file.name
        for entry in tensor.external_data:
            if entry.key == "location" and os.path.normpath(entry.value) == own_name:
                refuse(
                    tensor,
                    f"its data is in '{entry.value}', which is the model file itself",
                    "save external data in a separate file",
                )
        return decode(tensor, self._folder, self._inline)

    def sparse(self, tensor: onnx.SparseTensorProto) -> Array:
        """Decode a sparse tensor as a dense array."""
        return decode_sparse(tensor, self._folder)


def decode(
    tensor: onnx.TensorProto, folder: Path | None, inline: InlineWeights = NOTHING_INLINE
) -> Array:
    """Return `tensor` as an array. Data outside the model file is mapped from `folder`.

    A large array can be unaligned where it is: `content` returns its data.
    """
    kind = _element_type(tensor)
    shape = _shape(tensor, tensor.dims, kind)
    if tensor.HasField("segment"):
        refuse(
            tensor,
            "it is one segment of a tensor, and ONNX does not define how segments are joined",
            "export the model with whole tensors",
        )
    return _read_only(_data(tensor, kind, math.prod(shape), folder, inline).reshape(shape))


def decode_sparse(sparse: onnx.SparseTensorProto, folder: Path | None) -> Array:
    """Return `sparse` as a dense array, with zeros (or empty strings) where it has no value."""
    values, indices = sparse.values, sparse.indices
    kind = _element_type(values)
    shape = _shape(values, sparse.dims, kind)
    size = math.prod(shape)
    if size * kind.dtype.itemsize > LARGEST_DENSE:
        raise LimitExceeded(
            f"{title(values)}: it is sparse, and as a dense array of shape {shape} it would need "
            f"{size * kind.dtype.itemsize:,} bytes, more than the limit of {LARGEST_DENSE:,}: "
            "export it as a dense initializer."
        )
    stored = decode(values, folder)
    if stored.ndim != 1:
        refuse(values, f"its sparse values must have one axis, not {stored.ndim}")
    if stored.size == 0 and not indices.data_type:
        positions = np.empty(0, np.int64)
    else:
        positions = _positions(values, decode(indices, folder), stored.size, shape)
    dense = np.full(size, "", object) if kind.name == "string" else np.zeros(size, kind.dtype)
    dense[positions] = stored
    return _read_only(dense.reshape(shape))


def _read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array


def _positions(
    values: onnx.TensorProto, indices: Array, count: int, shape: tuple[int, ...]
) -> Array:
    """Return the positions of the values in the flattened tensor; a file may hold coordinates."""
    layouts = [(count,), (count, len(shape))]
    if indices.dtype != np.int64 or indices.shape not in layouts:
        refuse(
            values,
            f"its {count} sparse values need int64 indices of shape {layouts[0]} or {layouts[1]}, "
            f"not {indices.dtype} of shape {indices.shape}",
        )
    bounds = np.asarray(shape if indices.ndim == 2 else math.prod(shape), np.int64)
    if np.any((indices < 0) | (indices >= bounds)):
        refuse(values, f"a sparse index is outside its shape {shape}")
    if indices.ndim == 2:
        strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        indices = indices @ np.asarray(strides, np.int64)
    if np.any(indices[1:] <= indices[:-1]):
        refuse(values, "its sparse indices must ascend without duplicates")
    return indices


def _element_type(tensor: onnx.TensorProto) -> ElementType:
    if tensor.data_type == onnx.TensorProto.UNDEFINED:
        refuse(tensor, "its element type is missing (UNDEFINED)")
    try:
        return element_type(tensor.data_type)
    except InvalidModel as error:
        raise InvalidModel(f"{title(tensor)}: {error}") from None


def _shape(tensor: onnx.TensorProto, dims: Sequence[int], kind: ElementType) -> tuple[int, ...]:
    if len(dims) > MOST_DIMENSIONS:
        refuse(
            tensor,
            f"it has {len(dims):,} dimensions, but NumPy's limit is {MOST_DIMENSIONS}",
            "reshape it to fewer before the export",
        )
    shape = tuple(dims)
    if any(size < 0 for size in shape):
        refuse(tensor, f"a dimension of its shape {shape} is negative")
    # NumPy ignores dimensions of 0 when it checks whether an array is addressable.
    if math.prod(size for size in shape if size) * kind.dtype.itemsize >= 2**63:
        refuse(tensor, f"its shape {shape} has too many elements to address")
    return shape


def _data(
    tensor: onnx.TensorProto,
    kind: ElementType,
    count: int,
    folder: Path | None,
    inline: InlineWeights,
) -> Array:
    """Return the `count` elements, flat, from the external file, `raw_data` or the typed field."""
    typed = [field for field in _TYPED_FIELDS if len(getattr(tensor, field))]
    raw = tensor.raw_data  # Every access copies it.
    cut = inline.data(raw)
    size = len(raw) if cut is None else cut.size
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        if raw or typed:
            refuse(tensor, "it has data both inside and outside the model file")
        if kind.name == "string":
            refuse(tensor, "strings cannot be external data", "save them inside the model file")
        outside = map_external(tensor, folder, _packed_size(kind, count))
        return (_in_place if outside.size >= SMALLEST else _from_bytes)(outside, kind, count)
    if raw and typed:
        refuse(tensor, f"it has data both in raw_data and in {typed[0]}")
    if typed and typed != [kind.field]:
        refuse(
            tensor, f"its data is in {' and '.join(typed)}, but {kind.name} belongs in {kind.field}"
        )
    if typed or kind.name == "string":
        if raw:
            refuse(tensor, "strings belong in string_data, not in raw_data")
        return _from_field(tensor, kind, count)
    if size != _packed_size(kind, count):
        _refuse_count(tensor, "raw_data", f"{size:,} bytes", f"{_packed_size(kind, count):,}")
    if cut is not None:
        return _in_place(cut, kind, count)
    return _from_bytes(np.frombuffer(raw, np.uint8), kind, count)


def _refuse_count(tensor: onnx.TensorProto, field: str, actual: str, required: str) -> None:
    name = ELEMENT_TYPES[tensor.data_type].name
    refuse(
        tensor, f"{field} holds {actual}, but {name} of shape {tuple(tensor.dims)} needs {required}"
    )


def _packed_size(kind: ElementType, count: int) -> int:
    return -(-count * kind.bits // 8)


def _from_bytes(data: Bytes, kind: ElementType, count: int) -> Array:
    if kind.bits < 8:
        return _unpacked(data, kind, count)
    if kind.name == "bool":
        # NumPy assumes that a bool is 0 or 1, and computes wrong results from other bytes.
        return data.view(np.bool_) if not np.any(data > 1) else data != 0
    array = data.view(kind.dtype)
    if sys.byteorder == "big":
        array = array.byteswap()
    return array if array.flags.aligned else array.copy()


def _in_place(data: Bytes, kind: ElementType, count: int) -> Array:
    """Return the elements as a view of the data, which may be unaligned, if they need no work."""
    if kind.bits < 8 or kind.name == "bool" or sys.byteorder == "big":
        return _from_bytes(content(data), kind, count)
    return data.view(kind.dtype)


def _unpacked(data: Bytes, kind: ElementType, count: int) -> Array:
    """Unpack elements that share a byte (or four of six bits, three bytes), lowest bits first."""
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
    """Convert elements whose bits are the low bits of one byte each."""
    if kind.name.startswith("int"):
        unused = 8 - kind.bits
        fields = ((fields << unused).view(np.int8) >> unused).view(np.uint8)
    return fields.view(kind.dtype)


def _from_field(tensor: onnx.TensorProto, kind: ElementType, count: int) -> Array:
    field = getattr(tensor, kind.field)
    required = count * 2 if kind.dtype.kind == "c" else count
    if kind.bits in (2, 4):
        required = _packed_size(kind, count)
    if len(field) != required:
        _refuse_count(tensor, kind.field, f"{len(field):,} values", f"{required:,}")
    if kind.name == "string":
        return _strings(tensor)
    stored = np.fromiter(field, _STORED[kind.field], required)
    if kind.name == "bool":
        return stored.astype(np.bool_)
    if kind.field in ("int32_data", "uint64_data"):
        stored = _narrowed(tensor, stored, kind)
    return _unpacked(stored, kind, count) if kind.bits in (2, 4) else stored.view(kind.dtype)


_STORED: Mapping[str, type[np.generic]] = {
    "int32_data": np.int32,
    "int64_data": np.int64,
    "uint64_data": np.uint64,
    "float_data": np.float32,
    "double_data": np.float64,
}


def _narrowed(tensor: onnx.TensorProto, stored: Array, kind: ElementType) -> Array:
    """Narrow stored values, or the stored bits of values, to unsigned integers of their own width.

    Some writers sign-extend the bits and others do not; both are accepted.
    """
    bits = 8 if kind.bits in (2, 4) else kind.bits
    invalid = stored >= 1 << bits if bits < stored.itemsize * 8 else np.zeros(0, np.bool_)
    if stored.dtype.kind == "i" and bits < 32:
        invalid |= stored < -(1 << bits - 1)
    if np.any(invalid):
        value = stored[np.argmax(invalid)]
        refuse(tensor, f"{kind.field} holds {value}, which does not fit {kind.name}")
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
                f"its string {index} is not valid UTF-8 ({error.reason} at byte {error.start})",
                "encode it before the export",
            )
    return array
