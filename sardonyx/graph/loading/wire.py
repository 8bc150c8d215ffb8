"""Checks of what protobuf accepts but ONNX does not: invalid UTF-8, unknown fields.

A walk over all messages finds them, and says where they are. Whether there are any in a file is
asked of protobuf first, which answers some twenty times faster.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NoReturn

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from sardonyx.errors import InvalidModel, LimitExceeded

# Protobuf's limit for parsing; a message that was built in memory can be nested deeper.
DEEPEST_MESSAGE = 100


# Maximum bytes of a file that protobuf checks, since it copies them.
_LARGEST_COPIED = 2**26

# The fields of a tensor to check: listing all of them would copy its data.
_TENSOR_FIELDS = [
    field
    for field in onnx.TensorProto.DESCRIPTOR.fields
    if field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_MESSAGE)
]


def check_parsed(model: onnx.ModelProto, content: bytes) -> None:
    """Check every message of `model`, which was parsed from `content`, except the tensors' data."""
    if len(content) > _LARGEST_COPIED or not _is_sound(model, content):
        check_wire(model)


def _is_sound(model: onnx.ModelProto, content: bytes) -> bool:
    """Whether protobuf finds all texts valid, and nothing to remove as unknown."""
    try:
        _strict_model()().ParseFromString(content)
    except (DecodeError, RecursionError):
        return False
    known = onnx.ModelProto()
    known.CopyFrom(model)
    known.DiscardUnknownFields()
    # Models with NaN are not equal either, and are left to the walk.
    return bool(known == model)


@cache
def _strict_model() -> Any:
    """Return a class like ModelProto, in the newer syntax that refuses strings of invalid UTF-8."""
    file = FileDescriptorProto()
    onnx.ModelProto.DESCRIPTOR.file.CopyToProto(file)
    file.syntax = "proto3"
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(onnx.ModelProto.DESCRIPTOR.full_name))


def check_wire(model: onnx.ModelProto) -> None:
    """Check every message of `model` except the tensors' data. The walk is not recursive."""
    stack: list[tuple[Message, int]] = [(model, 1)]
    while stack:
        message, depth = stack.pop()
        if depth > DEEPEST_MESSAGE:
            raise LimitExceeded(
                f"The model's messages are nested more than {DEEPEST_MESSAGE} deep, deeper than "
                "protobuf can read from a file: flatten its subgraphs."
            )
        if len(UnknownFieldSet(message)):
            _refuse_unknown_fields(message)
        stack += [(inner, depth + 1) for inner in _checked_messages(message)]


def _checked_messages(message: Message) -> list[Message]:
    """Check the texts of a message, and return the messages in its fields."""
    if isinstance(message, onnx.TensorProto):
        fields = [(field, getattr(message, field.name)) for field in _TENSOR_FIELDS]
    else:
        fields = message.ListFields()
    messages: list[Message] = []
    for field, value in fields:
        kind = field.type
        if kind == FieldDescriptor.TYPE_MESSAGE:
            messages += value if field.is_repeated else (value,)
        elif kind == FieldDescriptor.TYPE_STRING:
            for text in value if field.is_repeated else (value,):
                if type(text) is not str:
                    _refuse_text(message, field.name, text)
    return messages


def _refuse_unknown_fields(message: Message) -> NoReturn:
    unknown = UnknownFieldSet(message)
    raise InvalidModel(
        f"{_title(message)} has the field {unknown[0].field_number}, which is unknown to onnx "
        f"{onnx.__version__}: it is damaged, in another format, or newer than the installed "
        "onnx. Upgrade onnx, or export the model again."
    )


def _refuse_text(message: Message, field: str, text: object) -> NoReturn:
    # Protobuf returns bytes for a string that is not valid UTF-8.
    raise InvalidModel(
        f"{_title(message)} has {text!r:.100} as its {field}, which is not valid UTF-8: the "
        "file is damaged or was written incorrectly. Export the model again."
    )


def _title(message: Message) -> str:
    kind = message.DESCRIPTOR.name.removesuffix("Proto")
    name = getattr(message, "name", "")
    return f"The message {kind} '{name:.100}'" if name and type(name) is str else f"The {kind}"
