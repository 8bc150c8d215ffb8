"""From a file or bytes to a model: with sizes of free dimensions and other initializers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import numpy_helper

from sardonyx.api import load
from sardonyx.backends import processors
from sardonyx.backends.base import Backend
from sardonyx.compat.exceptions import (
    EPFail,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    NoSuchFile,
    OrtError,
    RuntimeException,
    WrongType,
    refused,
    unsupported,
)
from sardonyx.compat.memory import row_of_dtype
from sardonyx.compat.options import SessionOptions
from sardonyx.errors import (
    InvalidInput,
    InvalidModel,
    LimitExceeded,
    MissingFile,
    SardonyxError,
    UnsupportedModel,
)
from sardonyx.graph.checking.audit import audit
from sardonyx.graph.loading.load import load_source
from sardonyx.graph.loading.read import ReadModel, read_model
from sardonyx.graph.model.model import Model
from sardonyx.graph.standard.operators import newest_version

# An entry of the options: the folder with the external data of a model that is passed as bytes.
FOLDER_ENTRY = "session.model_external_initializers_file_folder_path"
_FORMAT_ENTRY = "session.load_model_format"
# Entries that ask for a file or a result which sardonyx does not have.
_REFUSED_ENTRIES = {
    "ep.context_enable": "load the ONNX model, with cache= to keep compiled programs",
}


def read(source: Any, options: SessionOptions) -> ReadModel:
    """Return the model in a path, bytes or a ModelProto, changed as the options say."""
    if not isinstance(source, (str, os.PathLike, bytes, onnx.ModelProto)):
        raise WrongType(
            f"A session cannot be created from a {type(source).__name__}: pass the path of a "
            "model, or its bytes."
        )
    _refuse_options(options)
    found = _read(source)
    if isinstance(source, onnx.ModelProto):
        copied = onnx.ModelProto()
        copied.CopyFrom(found.proto)
        found = found._replace(proto=copied)
    folder = options._entries.get(FOLDER_ENTRY)
    if found.file is None and folder:
        found = found._replace(file=Path(folder).absolute() / "model.onnx")
    graph = found.proto.graph
    _set_dimensions(graph, *options._dimensions)
    _replace_external(graph, options)
    return found


def load_model(
    found: ReadModel, backend: Backend, options: SessionOptions, extra: Mapping[str, Any]
) -> Model:
    """Return the loaded model; faults raise the errors that onnxruntime raises."""
    _forget_repeated_names(found.proto.graph, keeps="buckets" in extra)
    chosen = options.load_options() | dict(extra)
    if options.intra_op_num_threads > 0 and "threads" not in extra:
        backend = _limited(backend, options.intra_op_num_threads)
    try:
        model: Model = load(cast("Any", found), backend=backend, **chosen)
    except (OrtError, InvalidInput):
        raise
    except SardonyxError as error:
        raise _of_a_load(error, found) from error
    for name, value in options._initializers.items():
        if name in model.params:
            new = value._on_host()
            _check_alike(name, model.params[name], new)
            model.params[name] = new.copy()
    return model


def _limited(backend: Backend, threads: int) -> Backend:
    """Return the backend with so many threads; the same if that is no limit."""
    if threads < processors.available():
        # Calls on GPUs and TPUs have no threads of a CPU.
        with suppress(InvalidInput):
            return backend.with_threads(threads)
    return backend


# -- reading --------------------------------------------------------------------------------------


def _refuse_options(options: SessionOptions) -> None:
    if options.optimized_model_filepath:
        raise refused(
            "Writing an optimized model ('optimized_model_filepath') is",
            "leave it empty, and write the model itself with sardonyx.save",
        )
    if options._entries.get(_FORMAT_ENTRY, "ONNX").upper() != "ONNX":
        raise refused("Onnxruntime's own format is", "load the ONNX file")
    for entry, instead in _REFUSED_ENTRIES.items():
        if options._entries.get(entry, "0") != "0":
            raise refused(f"The entry '{entry}' is", instead)


def _read(source: Any) -> ReadModel:
    try:
        return read_model(source)
    except MissingFile as error:
        raise NoSuchFile(str(error)) from error
    except UnsupportedModel as error:
        raise unsupported(error) from error
    except LimitExceeded as error:
        raise RuntimeException(str(error)) from error
    except (InvalidModel, InvalidInput) as error:
        kind = InvalidArgument if _is_protobuf(source) else InvalidProtobuf
        raise kind(str(error)) from error


def _is_protobuf(source: Any) -> bool:
    """Whether a model that cannot be read is one all the same, but without a graph."""
    if isinstance(source, onnx.ModelProto):
        return True
    try:
        content = source if isinstance(source, bytes) else Path(source).read_bytes()
        onnx.ModelProto().ParseFromString(content)
    except (DecodeError, OSError, ValueError):
        return False
    return True


def _of_a_load(error: SardonyxError, found: ReadModel) -> OrtError:
    """Return the error with onnxruntime's name for an error of `sardonyx.load`."""
    message = str(error)
    if isinstance(error, MissingFile):
        return Fail(message)
    if isinstance(error, LimitExceeded):
        return RuntimeException(message)
    if isinstance(error, UnsupportedModel):
        return InvalidGraph(message) if _is_of_onnx(found) else Fail(message)
    if isinstance(error, InvalidModel):
        return InvalidGraph(message) if _is_fault_of_a_node(found) else Fail(message)
    return EPFail(message)


def _is_of_onnx(found: ReadModel) -> bool:
    """Whether an unknown operator is one of a domain and opset that the standard has."""
    versions = {each.domain: each.version for each in found.proto.opset_import}
    newest = {domain: newest_version(domain) for domain in versions}
    are_known = all(version <= (newest[domain] or version) for domain, version in versions.items())
    used = {node.domain for node in found.proto.graph.node}
    is_recent = found.proto.ir_version <= onnx.IR_VERSION
    return is_recent and are_known and all(newest.get(domain) for domain in used)


def _is_fault_of_a_node(found: ReadModel) -> bool:
    """Whether only the audit of nodes finds a fault, and the graph as such is sound."""
    try:
        source = load_source(*found)
    except SardonyxError:
        return False
    try:
        audit(source, strict=False)
    except SardonyxError:
        return True
    return False  # Types that do not fit are a fault of the whole graph to onnxruntime.


# -- dimensions -----------------------------------------------------------------------------------


def _set_dimensions(
    graph: onnx.GraphProto, by_name: Mapping[str, int], by_denotation: Mapping[str, int]
) -> None:
    """Replace free dimensions by the sizes of the options."""
    if not by_name and not by_denotation:
        return
    for info in (*graph.input, *graph.output, *graph.value_info):
        for dimension in _dimensions(info.type):
            size = by_name.get(dimension.dim_param) if dimension.dim_param else None
            if size is None and not dimension.HasField("dim_value"):
                size = by_denotation.get(dimension.denotation) if dimension.denotation else None
            if size is not None:
                dimension.dim_value = size


def _forget_repeated_names(graph: onnx.GraphProto, *, keeps: bool) -> None:
    """Drop the names of free dimensions of inputs that an earlier dimension has too.

    To sardonyx equal names are equal sizes, and calls that differ are refused. To onnxruntime they
    are labels, which many exporters write without looking at the sizes.
    """
    seen: set[str] = set()
    for info in () if keeps else graph.input:
        for dimension in _dimensions(info.type):
            if dimension.dim_param in seen:
                dimension.ClearField("dim_param")
            elif dimension.dim_param:
                seen.add(dimension.dim_param)


def _dimensions(kind: onnx.TypeProto) -> Iterator[Any]:
    if kind.HasField("optional_type"):
        yield from _dimensions(kind.optional_type.elem_type)
    elif kind.HasField("sequence_type"):
        yield from _dimensions(kind.sequence_type.elem_type)
    elif kind.HasField("tensor_type"):
        yield from kind.tensor_type.shape.dim


# -- initializers ---------------------------------------------------------------------------------


def _replace_external(graph: onnx.GraphProto, options: SessionOptions) -> None:
    """Put the external data that the options have into the model."""
    arrays = {name: value._on_host() for name, value in options._external.items()}
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    for name, array in arrays.items():
        tensor = tensors.get(name)
        if tensor is None or tensor.data_location != onnx.TensorProto.EXTERNAL:
            raise Fail(
                f"The model has no initializer '{name}' with external data: name one that has, or "
                "replace others with add_initializer."
            )
        shape, kind = tuple(tensor.dims), tensor.data_type
        if shape != array.shape or kind != row_of_dtype(array.dtype).number:
            raise Fail(
                f"The external initializer '{name}' has shape {list(shape)} and element type "
                f"{onnx.TensorProto.DataType.Name(kind)}, but the value for it is {array.dtype}"
                f"{list(array.shape)}: pass one that is alike."
            )
        tensor.CopyFrom(numpy_helper.from_array(array, name))
    if options._files:
        for tensor in tensors.values():
            _read_from_memory(tensor, options._files)


def _read_from_memory(tensor: onnx.TensorProto, files: Mapping[str, bytes]) -> None:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    content = files.get(entries.get("location", ""))
    if tensor.data_location != onnx.TensorProto.EXTERNAL or content is None:
        return
    start = int(entries.get("offset", 0))
    stop = start + int(entries["length"]) if "length" in entries else None
    tensor.raw_data = content[start:stop]
    del tensor.external_data[:]
    tensor.data_location = onnx.TensorProto.DEFAULT


def _check_alike(name: str, old: Any, new: np.ndarray[Any, Any]) -> None:
    if tuple(old.shape) != new.shape or np.dtype(old.dtype) != new.dtype:
        raise Fail(
            f"The initializer '{name}' is {old.dtype}{list(old.shape)}, but the value for it is "
            f"{new.dtype}{list(new.shape)}: pass one that is alike."
        )
