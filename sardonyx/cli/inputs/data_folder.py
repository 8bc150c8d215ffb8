"""ONNX's own form of test data: a folder of `input_0.pb`, `output_0.pb` and so on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError

from sardonyx.errors import InvalidInput
from sardonyx.graph.calls.array_interop import element_of
from sardonyx.graph.ir import ValueInfo
from sardonyx.graph.loading.tensors import decode
from sardonyx.printable import first_line


def inputs_of_folder(folder: Path, infos: Sequence[ValueInfo]) -> dict[str, Any]:
    """Return the inputs in a folder by name; the files are numbered as the model's inputs are."""
    values = _values(folder, "input", infos)
    if not values and infos:
        raise InvalidInput(
            f"The folder '{folder}' has no input_0.pb: pass a folder of ONNX test data, such as "
            "test_data_set_0."
        )
    return values


def expected_outputs(folder: Path, infos: Sequence[ValueInfo]) -> dict[str, Any]:
    """Return the outputs in a folder by name, if it has some."""
    return _values(folder, "output", infos)


def _values(folder: Path, kind: str, infos: Sequence[ValueInfo]) -> dict[str, Any]:
    files = ((info, folder / f"{kind}_{i}.pb") for i, info in enumerate(infos))
    return {info.name: value_of_file(path, info) for info, path in files if path.exists()}


def value_of_file(path: Path, info: ValueInfo) -> Any:
    """Return the tensor, sequence or optional in a file, as the declaration of a value says."""
    kinds = {"": onnx.TensorProto, "seq": onnx.SequenceProto, "optional": onnx.OptionalProto}
    if info.container not in kinds:
        raise InvalidInput(f"The input {info} cannot be read from a file such as '{path}'.")
    proto = kinds[info.container]()
    try:
        proto.ParseFromString(path.read_bytes())
        return _value(proto, info)
    except (OSError, DecodeError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else first_line(error)
        raise InvalidInput(
            f"No value for {info} can be read from '{path}': {reason}. Pass a serialized tensor."
        ) from None


def _value(proto: Any, info: ValueInfo) -> Any:
    if isinstance(proto, onnx.TensorProto):
        return decode(proto, None)
    inner = element_of(info)
    if isinstance(proto, onnx.SequenceProto):
        return [_value(each, inner) for each in (*proto.tensor_values, *proto.sequence_values)]
    field = {"": "tensor_value", "seq": "sequence_value", "optional": "optional_value"}
    name = field.get(inner.container, "tensor_value")
    return _value(getattr(proto, name), inner) if proto.HasField(name) else None
