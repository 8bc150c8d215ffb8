"""Reading of streams that may never end: in pieces, up to the size limit of protobuf."""

from __future__ import annotations

from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor

from sardonyx.errors import InvalidInput, InvalidModel, LimitExceeded

# Protobuf's limit for one message; larger models keep their weights in separate files.
LARGEST_MESSAGE = 2**31 - 1
# A model has one field for the graph, and one for each function, opset and property.
MOST_FIELDS = 2**16

_SMALLEST_PIECE, _LARGEST_PIECE = 2**20, 2**24
# How fields are stored.
VARINT, DELIMITED = 0, 2
# A tag and a length take at most ten bytes each.
LONGEST_HEADER = 20


def refuse_large(size: int, origin: str) -> None:
    """Refuse more bytes than one protobuf message can hold."""
    if size > LARGEST_MESSAGE:
        raise LimitExceeded(
            f"There are {size:,} bytes in {origin}, but one protobuf message holds at most "
            f"{LARGEST_MESSAGE:,}: save the model with its weights as external data."
        )


def read_to_end(file: Any, origin: str) -> bytes | bytearray:
    """Return all bytes of `file`, read in pieces.

    After the first piece, the bytes are checked while they arrive: they must be fields of a model.
    So a stream that never ends is refused within its first megabytes.
    """
    content: bytes | bytearray = b""
    fields = _Fields(origin)
    size = _SMALLEST_PIECE
    while piece := _piece(file, size, origin):
        refuse_large(len(content) + len(piece), origin)
        if content:
            content = content if isinstance(content, bytearray) else bytearray(content)
            content += piece
            fields.follow(content)
        else:
            content = piece
        size = min(2 * size, _LARGEST_PIECE)
    return content


def _piece(file: Any, size: int, origin: str) -> bytes:
    try:
        piece = file.read(size)
    except Exception as error:
        # The file may be any object of the caller's, and its read() may raise anything.
        lines = str(error).splitlines() or [type(error).__name__]
        raise InvalidModel(f"The model in {origin} cannot be read: {lines[0]:.500}.") from error
    if piece is None:
        raise InvalidModel(
            f"The model in {origin} cannot be read: its read() returned None, because no data has "
            "arrived yet. Open it in blocking mode."
        )
    if isinstance(piece, (bytearray, memoryview)):
        refuse_large(memoryview(piece).nbytes, origin)
        return bytes(piece)
    if not isinstance(piece, bytes):
        raise InvalidInput(
            f"The model's file returned a {type(piece).__name__} from read(): open it in binary "
            "mode, with open(path, 'rb')."
        )
    return piece


class _Fields:
    """Checks the outermost fields of a model while its bytes arrive."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.count = 0
        # Where the next field begins.
        self.at = 0

    def follow(self, content: bytes | bytearray) -> None:
        """Skip the fields that have begun, and refuse bytes that cannot begin a field."""
        while self.at + LONGEST_HEADER <= len(content):
            tag, after = varint(content, self.at)
            if _WIRE_TYPES.get(tag >> 3) != tag & 7:
                raise InvalidModel(
                    f"There is no ONNX model in {self.origin}: at byte {self.at:,} no field of a "
                    "model begins. It may be damaged, or in another format."
                )
            number, after = varint(content, after)
            self.at = after + number if tag & 7 == DELIMITED else after
            refuse_large(self.at, self.origin)
            self.count += 1
            if self.count > MOST_FIELDS:
                raise LimitExceeded(
                    f"The model in {self.origin} has more than {MOST_FIELDS:,} functions and "
                    "properties. It may be damaged, or in another format."
                )


def varint(content: bytes | bytearray, at: int) -> tuple[int, int]:
    """Return a number that is stored with seven bits per byte, and the index after it."""
    first = content[at]
    if first < 0x80:
        return first, at + 1
    number = 0
    for place in range(10):
        byte = content[at + place]
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number, at + place + 1
    return number, at + 10


_WIRE_TYPES = {
    field.number: VARINT if field.type == FieldDescriptor.TYPE_INT64 else DELIMITED
    for field in onnx.ModelProto.DESCRIPTOR.fields
}
