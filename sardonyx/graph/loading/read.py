"""From what a user has, a path, bytes, a file or a proto, to a ModelProto."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import IO, Any, TypeAlias

import onnx
from google.protobuf.message import DecodeError

from sardonyx.errors import InvalidInput, InvalidModel, LimitExceeded
from sardonyx.graph.loading.wire import check_wire

Readable: TypeAlias = "str | os.PathLike[str] | bytes | IO[bytes] | onnx.ModelProto"

# Protocol buffers cannot hold more in one message; larger models keep their weights beside it.
LARGEST_MESSAGE = 2**31 - 1


def read_model(source: Readable) -> tuple[onnx.ModelProto, Path | None]:
    """The model, and its file, beside which its external weights lie (None where there is none)."""
    if isinstance(source, onnx.ModelProto):
        return _checked(source, "the ModelProto given"), None
    if isinstance(source, (str, os.PathLike)):
        path = Path(os.fsdecode(source))
        return _parsed(_file_content(path), f"'{path}'"), path.absolute()
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _parsed(bytes(source), f"the {len(source)} bytes given"), None
    if hasattr(source, "read"):
        return _read_file_object(source)
    raise InvalidInput(
        f"A model cannot be loaded from a {type(source).__name__}: "
        "pass a path, bytes, a file opened in binary mode, or an onnx.ModelProto."
    )


def _read_file_object(file: Any) -> tuple[onnx.ModelProto, Path | None]:
    name = getattr(file, "name", None)
    path = Path(name) if isinstance(name, str) else None
    origin = "the file given" if path is None else f"'{path}'"
    try:
        _refuse_large(_rest_of(file), origin)
        content = file.read()
    except (OSError, ValueError) as error:
        raise InvalidModel(f"The model in {origin} cannot be read: {error}.") from None
    if not isinstance(content, bytes):
        raise InvalidInput("A model's file must be opened in binary mode: open(path, 'rb').")
    return _parsed(content, origin), path and path.absolute()


def _rest_of(file: Any) -> int:
    """How many bytes are still to be read, where the file can tell."""
    if not (hasattr(file, "seekable") and file.seekable()):
        return 0
    here: int = file.tell()
    file.seek(0, os.SEEK_END)
    end: int = file.tell()
    file.seek(here)
    return end - here


def _file_content(path: Path) -> bytes:
    try:
        # Not blocking, so that a FIFO without a writer is refused instead of waited for.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidModel(f"The model '{path}' cannot be opened: {reason}.") from None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise InvalidModel(f"'{path}' is no regular file, so it cannot hold a model.")
        _refuse_large(status.st_size, f"'{path}'")
        with open(handle, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(handle)


def _refuse_large(size: int, origin: str) -> None:
    if size > LARGEST_MESSAGE:
        raise LimitExceeded(
            f"There are {size:,} bytes in {origin}, and one protobuf message holds at most "
            f"{LARGEST_MESSAGE:,}: save the model with its weights as external data."
        )


def _parsed(content: bytes, origin: str) -> onnx.ModelProto:
    _refuse_large(len(content), origin)
    if not content:
        raise InvalidModel(f"No model is in {origin}: it is empty, or was read to its end before.")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except (DecodeError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        if "MaxDepth" in reason:
            raise LimitExceeded(
                f"The model in {origin} nests subgraphs deeper than protobuf reads ({reason}): "
                "flatten them."
            ) from None
        raise InvalidModel(
            f"No ONNX model is in {origin}: it cannot be parsed ({reason}). "
            "It may be truncated, or of another format."
        ) from None
    return _checked(model, origin)


def _checked(model: onnx.ModelProto, origin: str) -> onnx.ModelProto:
    check_wire(model)
    if not model.HasField("graph"):
        raise InvalidModel(
            f"No ONNX model is in {origin}: it holds no graph. It may be another kind of message."
        )
    return model
