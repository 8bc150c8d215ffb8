"""Reading of a model from a path, bytes, a file object or a ModelProto."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias

import onnx
from google.protobuf.message import DecodeError

from sardonyx.errors import (
    InvalidInput,
    InvalidModel,
    LimitExceeded,
    MissingFile,
    UnsupportedModel,
)
from sardonyx.graph.loading.inline_weights import (
    NOTHING_INLINE,
    Content,
    InlineWeights,
    cut_out,
)
from sardonyx.graph.loading.stream import read_to_end, refuse_large
from sardonyx.graph.loading.wire import check_parsed, check_wire
from sardonyx.graph.values.mmap import CAN_READ_AT, ModelFile

# Bytes 4 to 8 of a file in onnxruntime's own format.
ORT_FORMAT = b"ORTM"

# Minimum bytes of a file whose weights are read when programs need them. Smaller files are read
# whole, so that they can be overwritten while their model is in use.
SMALLEST_MAP = 2**26

Readable: TypeAlias = "str | os.PathLike[str] | bytes | IO[bytes] | onnx.ModelProto"


class ReadModel(NamedTuple):
    """A model, without the large weights that lie in its bytes.

    External weights are searched in the folder of `file`, which is None without a path. `written`
    is the model as it was written, without the data of its large weights.
    """

    proto: onnx.ModelProto
    file: Path | None = None
    inline: InlineWeights = NOTHING_INLINE
    written: bytes = b""


def read_model(source: Readable) -> ReadModel:
    """Return the model in a path, bytes, a file object or a ModelProto."""
    if isinstance(source, ReadModel):
        return source
    if isinstance(source, onnx.ModelProto):
        check_wire(source)
        proto = _with_graph(source, "the ModelProto")
        return ReadModel(proto, written=without_weights(proto))
    if isinstance(source, (str, os.PathLike)):
        path = Path(os.fsdecode(source))
        return _parsed(_file_content(path), f"'{path}'", path.absolute())
    if isinstance(source, (bytes, bytearray, memoryview)):
        size = memoryview(source).nbytes
        origin = f"the {size} bytes passed"
        refuse_large(size, origin)
        # A copy, unless it is bytes: the caller can change all others.
        return _parsed(bytes(source), origin)
    if hasattr(source, "read"):
        return _read_file_object(source)
    raise InvalidInput(
        f"A model cannot be loaded from a {type(source).__name__}: "
        "pass a path, bytes, a file opened in binary mode, or an onnx.ModelProto."
    )


def _read_file_object(file: Any) -> ReadModel:
    path = _path_of(file)
    origin = "the file object" if path is None else f"'{path}'"
    if path is not None:
        refuse_large(os.fstat(file.fileno()).st_size, origin)
    return _parsed(read_to_end(file, origin), origin, path)


def _path_of(file: Any) -> Path | None:
    """Return the path of an open file, if its name refers to that very file.

    The name of a file object is not trusted, since the sender of an upload chooses it, and external
    data is searched in the folder of this path.
    """
    name = getattr(file, "name", None)
    if not isinstance(name, (str, bytes)):
        return None  # Such as a spooled file, which a call of fileno() would write to the disk.
    try:
        opened, named = os.fstat(file.fileno()), os.stat(name)
    except (AttributeError, OSError, OverflowError, TypeError, ValueError):
        return None
    is_there = stat.S_ISREG(opened.st_mode) and os.path.samestat(opened, named)
    return Path(os.fsdecode(name)).absolute() if is_there else None


def _file_content(path: Path) -> Content:
    try:
        # Non-blocking, so that a FIFO without a writer is refused at once.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise MissingFile(f"There is no file '{path}': check the path.") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidModel(f"The model '{path}' cannot be opened: {reason}.") from None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise InvalidModel(f"'{path}' is not a regular file: pass the path of a model file.")
        refuse_large(status.st_size, f"'{path}'")
        if status.st_size >= SMALLEST_MAP and CAN_READ_AT:
            # Some file systems, and processes with little address space, have no maps.
            with suppress(OSError):
                return ModelFile(handle, path)
        with open(handle, "rb", buffering=0, closefd=False) as file:
            return read_to_end(file, f"'{path}'")
    finally:
        os.close(handle)


def _parsed(content: Content, origin: str, file: Path | None = None) -> ReadModel:
    if not len(content):
        raise InvalidModel(
            f"There is no model in {origin}: it is empty, or was already read to its end."
        )
    if bytes(content[4:8]) == ORT_FORMAT:
        raise UnsupportedModel(
            f"The model in {origin} is in onnxruntime's own format (.ort), which only onnxruntime "
            "reads: load the ONNX file that it was converted from."
        )
    model = onnx.ModelProto()
    rest, inline = cut_out(content)
    try:
        model.ParseFromString(rest)
    except (DecodeError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        if "MaxDepth" in reason:
            raise LimitExceeded(
                f"The model in {origin} nests subgraphs deeper than protobuf can read ({reason}): "
                "flatten them."
            ) from None
        raise InvalidModel(
            f"There is no ONNX model in {origin}: it cannot be parsed ({reason}). "
            "It may be truncated, or in another format."
        ) from None
    written = bytes(rest)
    check_parsed(model, written)
    return ReadModel(_with_graph(model, origin), file, inline, written)


def without_weights(model: onnx.ModelProto) -> bytes:
    """Return a model as bytes without the data of its initializers, which the caller can change."""
    bare, graph = onnx.ModelProto(), onnx.GraphProto()
    for field, value in model.ListFields():
        if field.name != "graph":
            _copy(bare, field, value)
    for field, value in model.graph.ListFields():
        if field.name not in ("initializer", "sparse_initializer"):
            _copy(graph, field, value)
    for tensor in model.graph.initializer:
        _describe(tensor, graph.initializer.add())
    for sparse in model.graph.sparse_initializer:
        new = graph.sparse_initializer.add(dims=sparse.dims)
        _describe(sparse.values, new.values)
    bare.graph.CopyFrom(graph)
    return bytes(bare.SerializeToString())


def _describe(tensor: onnx.TensorProto, new: onnx.TensorProto) -> None:
    """Copy a tensor without its data."""
    for field, value in tensor.ListFields():
        if field.name in _OF_A_TENSOR:
            _copy(new, field, value)


_OF_A_TENSOR = ("name", "dims", "data_type", "doc_string", "metadata_props")


def _copy(message: Any, field: Any, value: Any) -> None:
    """Copy one field, whose value may be a list or a message, into a message."""
    present = getattr(message, field.name)
    if hasattr(present, "MergeFrom"):
        present.MergeFrom(value)
    else:
        setattr(message, field.name, value)


def _with_graph(model: onnx.ModelProto, origin: str) -> onnx.ModelProto:
    if not model.HasField("graph"):
        raise InvalidModel(
            f"There is no ONNX model in {origin}: it has no graph. It may be in another format."
        )
    return model
