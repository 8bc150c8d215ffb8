"""Operator x version x type: every cell that a schema allows, and every cell that it does not.

Run it to see the counts: `python -m tests.support.type_matrix`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.errors import SardonyxError
from sardonyx.graph.standard.types import ELEMENT_TYPES, dtype_of_type, number_of

OPERATORS = ("Identity", "Shape", "Constant")


@dataclass(frozen=True)
class Cell:
    """One operator at one version, with one type, which it allows there or not."""

    operator: str
    version: int
    type: str
    allowed: bool

    def __str__(self) -> str:
        return f"{self.operator}-{self.version}-{self.type}"


@cache
def versions(operator: str) -> tuple[int, ...]:
    history = onnx.defs.get_all_schemas_with_history()
    return tuple(sorted(s.since_version for s in history if s.name == operator and not s.domain))


def cells() -> Iterator[Cell]:
    for operator in OPERATORS:
        for version in versions(operator):
            schema = onnx.defs.get_schema(operator, version, "")
            (slot,) = schema.inputs or schema.outputs
            for type_text in every_type(with_containers=operator == "Identity"):
                yield Cell(operator, version, type_text, type_text in slot.types)


def every_type(*, with_containers: bool) -> list[str]:
    tensors = [f"tensor({element.name})" for element in ELEMENT_TYPES.values()]
    if not with_containers:
        return tensors
    sequences = [f"seq({tensor})" for tensor in tensors]
    return [*tensors, *sequences, *(f"optional({inner})" for inner in (*tensors, *sequences))]


def type_proto(type_text: str) -> onnx.TypeProto:
    for prefix, make in (
        ("seq(", helper.make_sequence_type_proto),
        ("optional(", helper.make_optional_type_proto),
    ):
        if type_text.startswith(prefix):
            return make(type_proto(type_text[len(prefix) : -1]))
    dtype = dtype_of_type(type_text)
    assert dtype is not None
    return helper.make_tensor_type_proto(number_of(dtype), None)


def values(type_text: str) -> list[Any]:
    """Values of a type: all bit patterns that fit in a few elements, present and absent."""
    if type_text.startswith("seq("):
        inner = values(type_text[len("seq(") : -1])
        return [[*inner, *inner], []]
    if type_text.startswith("optional("):
        return [*values(type_text[len("optional(") : -1]), None]
    dtype = dtype_of_type(type_text)
    assert dtype is not None
    if dtype.kind == "O":
        return [np.array([["", "ä\0", "x" * 40]], dtype=object)]
    return [
        _bit_patterns(dtype),
        np.zeros((0, 2), dtype),
        _bit_patterns(dtype).ravel()[0:1].reshape(()),
    ]


def _bit_patterns(dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    if dtype.kind == "b":
        return np.array([[True, False]])
    if dtype.itemsize == 1:
        info = {"int4": 16, "uint4": 16, "float4_e2m1fn": 16, "int2": 4, "uint2": 4}
        bits = np.arange(
            info.get(dtype.name, 64 if "float6" in dtype.name else 256), dtype=np.uint8
        )
        if dtype.name in ("int4", "int2"):
            return bits.astype(np.int8).astype(dtype).reshape(2, -1)
        return bits.view(dtype).reshape(2, -1)
    rng = np.random.default_rng(0)
    return np.frombuffer(rng.bytes(24 * dtype.itemsize), dtype).reshape(2, 12)


def model_of(cell: Cell) -> onnx.ModelProto:
    inputs, attributes = [], {}
    output = helper.make_value_info("y", type_proto(cell.type))
    if cell.operator == "Constant":
        attributes["value"] = _tensor(values(cell.type)[0])
    else:
        inputs = [helper.make_value_info("x", type_proto(cell.type))]
    if cell.operator == "Shape":
        output = helper.make_tensor_value_info("y", onnx.TensorProto.INT64, [None])
    node = helper.make_node(cell.operator, [i.name for i in inputs], ["y"], "seed", **attributes)
    graph = helper.make_graph([node], "cell", inputs, [output])
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", cell.version)], ir_version=10
    )


def _tensor(array: np.ndarray[Any, Any]) -> onnx.TensorProto:
    if array.dtype == object:
        # onnx's own helper loses trailing NULs.
        tensor = onnx.TensorProto(data_type=onnx.TensorProto.STRING, dims=array.shape)
        tensor.string_data.extend(text.encode() for text in array.ravel())
        return tensor
    return onnx.numpy_helper.from_array(array)


def check_allowed(cell: Cell, backend: str | Backend) -> None:
    """Run the cell; what comes out must be what the operator says, to the bit."""
    model = sardonyx.load(model_of(cell), backend=backend)
    if cell.operator == "Constant":
        for _ in range(2):
            assert_identical(model(), values(cell.type)[0])
        return
    for value in values(cell.type):
        for _ in range(2):
            (found,) = model.run(None, {"x": value})
            expected = value if cell.operator == "Identity" else np.array(value.shape, np.int64)
            assert_identical(found, expected)


def assert_identical(found: Any, expected: Any) -> None:
    if expected is None or isinstance(expected, list):
        assert type(found) is type(expected)
        for one, other in zip(found or [], expected or [], strict=True):
            assert_identical(one, other)
        return
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if expected.dtype == object:
        assert found.tolist() == expected.tolist()
    elif expected.dtype.name in ("int4", "int2"):  # Their sign bits may fill the byte, or not.
        assert found.astype(np.int8).tolist() == expected.astype(np.int8).tolist()
    else:
        assert found.tobytes() == expected.tobytes()


def check_refused(cell: Cell, backend: str | Backend) -> None:
    """Loading or running the cell must fail, and say which operator and which type."""
    with pytest.raises(SardonyxError) as refusal:
        _load_and_run(cell, backend)
    assert cell.operator in str(refusal.value)
    assert cell.type in str(refusal.value)


def _load_and_run(cell: Cell, backend: str | Backend) -> None:
    model = sardonyx.load(model_of(cell), backend=backend)
    model.run(None, {} if cell.operator == "Constant" else {"x": values(cell.type)[0]})


def main() -> None:
    for backend in ("numpy", "jax"):
        counts = {True: [0, 0], False: [0, 0]}
        for cell in cells():
            counts[cell.allowed][1] += 1
            try:
                (check_allowed if cell.allowed else check_refused)(cell, backend)
            except (AssertionError, SardonyxError, pytest.fail.Exception) as error:
                print(f"{backend}: {cell}: {error}")
            else:
                counts[cell.allowed][0] += 1
        print(f"{backend}: allowed {counts[True]}, refused {counts[False]} (passed, of)")


if __name__ == "__main__":
    main()
