"""Large weights inside a model file: left where they are, not copied by protobuf.

Protobuf copies all data that it parses, and again when it is asked for it. So the large tensors are
cut out of the file's bytes before protobuf parses them, each with a short mark in its place, and
read where they are. Whatever looks unusual is left to protobuf, which has the last word on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from secrets import token_bytes
from typing import NamedTuple, TypeAlias

import numpy as np
import onnx

from sardonyx.graph.loading.external import Bytes
from sardonyx.graph.loading.stream import DELIMITED, LONGEST_HEADER, VARINT, varint
from sardonyx.graph.values.mmap import ModelFile

Content: TypeAlias = bytes | bytearray | ModelFile

# Minimum bytes of a tensor that is cut out.
SMALLEST = 2**16
# Bytes that are read of a file at a time.
_WINDOW = 2**14
_MARK_BYTES = 16
_NUMBER_BYTES = 8

# Protobuf refuses lengths that are stored in more bytes.
_LONGEST_LENGTH = 5
_FIXED = {1: 8, 5: 4}
_GRAPH = onnx.ModelProto.DESCRIPTOR.fields_by_name["graph"].number << 3 | DELIMITED
_INITIALIZER = onnx.GraphProto.DESCRIPTOR.fields_by_name["initializer"].number << 3 | DELIMITED
_DATA = onnx.TensorProto.DESCRIPTOR.fields_by_name["raw_data"].number << 3 | DELIMITED


class InlineWeights:
    """The data that was cut out of a model, by the marks in its place."""

    def __init__(self, content: Content = b"") -> None:
        self._all: Bytes = np.frombuffer(content, np.uint8)
        # No file can hold a mark, because it is drawn when the file is loaded.
        self._mark = token_bytes(_MARK_BYTES)
        self._places: list[slice] = []

    def mark(self, start: int, stop: int) -> bytes:
        """Return the mark that takes the place of these bytes."""
        self._places.append(slice(start, stop))
        return self._mark + (len(self._places) - 1).to_bytes(_NUMBER_BYTES, "little")

    def data(self, raw: bytes) -> Bytes | None:
        """Return the bytes whose mark `raw` is, without a copy; None if it is none."""
        place = self.place_of(raw)
        return None if place is None else self._all[place]

    def place_of(self, raw: bytes) -> slice | None:
        """Return the place whose mark `raw` is; None if it is none."""
        if not raw.startswith(self._mark):
            return None
        return self._places[int.from_bytes(raw[_MARK_BYTES:], "little")]


NOTHING_INLINE = InlineWeights()


def cut_out(content: Content, smallest: int = SMALLEST) -> tuple[bytes | bytearray, InlineWeights]:
    """Return a model's bytes without initializers of `smallest` bytes or more, and their data."""
    if len(content) >= smallest:
        weights = InlineWeights(content)
        try:
            edits = list(_edits(content, weights, smallest))
        except (_UnusualError, IndexError):
            edits = []
        if edits:
            return _edited(content, edits), weights
    whole = _bytes_of(content, 0, len(content)) if isinstance(content, ModelFile) else content
    return whole, NOTHING_INLINE


class _UnusualError(Exception):
    """Bytes that are not stored as every writer of models stores them."""


class _Field(NamedTuple):
    """A field of a message: where its length, its value and the next field begin."""

    length: int
    value: int
    stop: int


class _Edit(NamedTuple):
    """Bytes to replace."""

    start: int
    stop: int
    new: bytes

    @property
    def growth(self) -> int:
        return len(self.new) - (self.stop - self.start)


def _edits(content: Content, weights: InlineWeights, smallest: int) -> Iterator[_Edit]:
    """Yield the edits that cut out large initializers, in the order of the file."""
    for graph in _fields(content, 0, len(content), _GRAPH, smallest):
        inner: list[_Edit] = []
        for tensor in _fields(content, graph.value, graph.stop, _INITIALIZER, smallest):
            data = [
                _Edit(data.length, data.stop, _sized(weights.mark(data.value, data.stop)))
                for data in _fields(content, tensor.value, tensor.stop, _DATA, smallest)
            ]
            inner += _with_length(tensor, data)
        yield from _with_length(graph, inner)


def _with_length(message: _Field, inner: list[_Edit]) -> list[_Edit]:
    """Return the edits inside a message, after that of its length."""
    if not inner:
        return []
    size = message.stop - message.value + sum(edit.growth for edit in inner)
    return [_Edit(message.length, message.value, _encoded(size)), *inner]


def _edited(content: Content, edits: list[_Edit]) -> bytes:
    pieces: list[bytes | bytearray] = []
    at = 0
    for edit in edits:
        pieces += _bytes_of(content, at, edit.start), edit.new
        at = edit.stop
    pieces.append(_bytes_of(content, at, len(content)))
    return b"".join(pieces)


def _fields(content: Content, at: int, end: int, wanted: int, smallest: int) -> Iterator[_Field]:
    """Yield the fields with this tag and size among those of the message in this range."""
    window, base = _window(content, at)
    while at < end:
        if not base <= at <= base + len(window) - LONGEST_HEADER:
            window, base = _window(content, at)
        tag, length = varint(window, at - base)
        if tag & 7 == DELIMITED:
            size, value = varint(window, length)
            at = base + value + size
            if value - length > _LONGEST_LENGTH:
                raise _UnusualError
            if tag == wanted and size >= smallest and at <= end:
                yield _Field(base + length, base + value, at)
        elif tag & 7 == VARINT:
            at = base + varint(window, length)[1]
        elif tag & 7 in _FIXED:
            at = base + length + _FIXED[tag & 7]
        else:
            raise _UnusualError
    if at > end:
        raise _UnusualError


def _window(content: Content, at: int) -> tuple[bytes | bytearray, int]:
    """Return bytes from `at` on, and the position of the first of them."""
    if isinstance(content, ModelFile):
        return _bytes_of(content, at, min(at + _WINDOW, len(content))), at
    return content, 0


def _bytes_of(content: Content, start: int, stop: int) -> bytes | bytearray:
    if isinstance(content, ModelFile):
        return content.read_at(start, stop - start).tobytes()
    return content[start:stop]


def _sized(value: bytes) -> bytes:
    return _encoded(len(value)) + value


def _encoded(number: int) -> bytes:
    """Return a number as protobuf stores it: seven bits per byte, the lowest first."""
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
