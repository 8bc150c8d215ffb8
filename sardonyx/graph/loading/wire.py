"""What protobuf lets pass and ONNX does not: strings that are no text, fields nobody knows."""

from __future__ import annotations

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from sardonyx.errors import InvalidModel, LimitExceeded

# Protobuf parses no message that is nested deeper; one that was built in memory may be.
DEEPEST_MESSAGE = 100


# To list all fields of a tensor would copy its data.
_NOT_DATA = [
    field
    for field in onnx.TensorProto.DESCRIPTOR.fields
    if field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_MESSAGE)
]


def check_wire(model: onnx.ModelProto) -> None:
    """Look at every message of `model` but the tensors' data, without recursion of our own."""
    stack: list[tuple[Message, int]] = [(model, 1)]
    while stack:
        message, depth = stack.pop()
        if depth > DEEPEST_MESSAGE:
            raise LimitExceeded(
                f"The model's messages are nested more than {DEEPEST_MESSAGE} deep, which protobuf "
                "itself could not read from a file: flatten its subgraphs."
            )
        _refuse_unknown_fields(message)
        if isinstance(message, onnx.TensorProto):
            fields = [(field, getattr(message, field.name)) for field in _NOT_DATA]
        else:
            fields = message.ListFields()
        for field, value in fields:
            values = value if field.is_repeated else (value,)
            if field.type == FieldDescriptor.TYPE_STRING:
                for text in values:
                    _refuse_bytes(message, field.name, text)
            elif field.type == FieldDescriptor.TYPE_MESSAGE:
                stack.extend((inner, depth + 1) for inner in values)


def _refuse_unknown_fields(message: Message) -> None:
    unknown = UnknownFieldSet(message)
    if len(unknown):
        raise InvalidModel(
            f"{_title(message)} has a field {unknown[0].field_number} that ONNX {onnx.__version__} "
            "does not know: it is damaged, another kind of message, or newer than the installed "
            "onnx. Upgrade onnx, or export the model again."
        )


def _refuse_bytes(message: Message, field: str, text: object) -> None:
    # Protobuf hands out bytes where a string of the file is not valid UTF-8.
    if not isinstance(text, str):
        raise InvalidModel(
            f"{_title(message)} holds {text!r:.100} as its {field}, which is no valid UTF-8: the "
            "file is damaged, or was written wrongly. Export the model again."
        )


def _title(message: Message) -> str:
    kind = message.DESCRIPTOR.name.removesuffix("Proto")
    name = getattr(message, "name", "")
    return f"The message {kind} '{name:.100}'" if name and type(name) is str else f"The {kind}"
