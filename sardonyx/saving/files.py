"""Models in files: written under other names, and renamed into place when they are whole."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import EncodeError

from sardonyx.errors import InvalidInput, LimitExceeded
from sardonyx.graph.loading.inline_weights import SMALLEST
from sardonyx.saving.tensors import data_of, described, fill, refer

# External data begins at multiples of this, so that it can be mapped.
_ALIGNMENT = 4096
_LARGEST_MODEL = 2**31 - 1


def write_model(
    proto: onnx.ModelProto,
    weights: Mapping[str, np.ndarray[Any, Any]],
    path: Path,
    *,
    is_external: bool,
) -> None:
    """Write a model with these weights; external ones go to a second file."""
    tensors = _tensors(proto, weights)
    suffix = f".{token_hex(4)}.partial"
    data = path.with_name(f"{path.name}.data")
    partial, partial_data = path.with_name(path.name + suffix), data.with_name(data.name + suffix)
    outside = [n for n in tensors if is_external and _can_be_outside(weights[n])]
    try:
        for name in tensors.keys() - set(outside):
            fill(tensors[name], weights[name])
        if outside:
            _write_data(tensors, weights, outside, partial_data, data.name)
        _write(partial, _serialized(proto))
        if outside:
            os.replace(partial_data, data)
        os.replace(partial, path)
    except OSError as error:
        raise InvalidInput(
            f"The model cannot be written to '{path}': {error.strerror or error}."
        ) from error
    finally:
        for each in (partial, partial_data):
            with suppress(OSError):
                each.unlink()


def _tensors(
    proto: onnx.ModelProto, weights: Mapping[str, np.ndarray[Any, Any]]
) -> dict[str, onnx.TensorProto]:
    """Return the tensors of the initializers by name; sparse ones become dense."""
    graph = proto.graph
    for sparse in graph.sparse_initializer:
        name = sparse.values.name
        graph.initializer.append(described(name, weights[name]))
    del graph.sparse_initializer[:]
    return {tensor.name: tensor for tensor in graph.initializer}


def _can_be_outside(array: np.ndarray[Any, Any]) -> bool:
    """Whether a weight goes to the second file: small ones may decide shapes, and stay."""
    return array.dtype != object and array.nbytes >= SMALLEST


def _write_data(
    tensors: Mapping[str, onnx.TensorProto],
    weights: Mapping[str, np.ndarray[Any, Any]],
    names: list[str],
    path: Path,
    location: str,
) -> None:
    with open(path, "xb") as file:
        for name in names:
            offset = -(-file.tell() // _ALIGNMENT) * _ALIGNMENT
            file.write(bytes(offset - file.tell()))
            length = file.write(data_of(weights[name]))
            refer(tensors[name], location, offset, length)
        file.flush()
        os.fsync(file.fileno())


def _serialized(proto: onnx.ModelProto) -> bytes:
    try:
        content = proto.SerializeToString()
    except (EncodeError, ValueError) as error:
        raise LimitExceeded(
            f"The model is too large for one file ({error}): pass external=True."
        ) from None
    if len(content) > _LARGEST_MODEL:
        raise LimitExceeded("The model needs more than 2 GiB in one file: pass external=True.")
    return bytes(content)


def _write(path: Path, content: bytes) -> None:
    with open(path, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
