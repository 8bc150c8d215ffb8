"""Types of recorded values, as ONNX writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TypeProto, helper

from sardonyx.errors import InvalidInput
from sardonyx.graph.ir import Dimension
from sardonyx.graph.standard.types import DType, dtype_of, dtype_of_type, number_of


def tensor_type(dtype: DType, shape: Sequence[Dimension] | None) -> TypeProto:
    """Return the type of a tensor; None for the shape, or for a size, is an unknown one."""
    return helper.make_tensor_type_proto(number_of(dtype), shape)


def dtype_in(kind: TypeProto) -> DType | None:
    """Return the dtype of a tensor; None if it is unknown, and for sequences and the like."""
    number = kind.tensor_type.elem_type if kind.HasField("tensor_type") else 0
    return dtype_of(number) if number else None


def dimensions_in(kind: TypeProto) -> tuple[Dimension, ...] | None:
    """Return the shape of a tensor: sizes, names of free sizes, None for each unknown one."""
    if not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
        return None
    return tuple(
        int(d.dim_value) if d.HasField("dim_value") else d.dim_param or None
        for d in kind.tensor_type.shape.dim
    )


def type_of_text(text: str) -> TypeProto:
    """Return the type that a text names, such as `seq(tensor(float))`."""
    kind, _, inner = text.partition("(")
    inner = inner.removesuffix(")")
    dtype = dtype_of_type(text)
    if dtype is not None:
        return tensor_type(dtype, None)
    if kind == "seq":
        return helper.make_sequence_type_proto(type_of_text(inner))
    if kind == "optional":
        return helper.make_optional_type_proto(type_of_text(inner))
    if kind == "map":
        key, _, value = inner.partition(",")
        found = dtype_of_type(f"tensor({key.strip()})")
        if found is not None:
            return helper.make_map_type_proto(number_of(found), type_of_text(value.strip()))
    raise InvalidInput(
        f"'{text}' is no type: pass one such as 'tensor(float)' or 'seq(tensor(int64))'."
    )


def type_of_array(array: np.ndarray[Any, Any]) -> TypeProto:
    """Return the type of an array of NumPy's."""
    return tensor_type(array.dtype, array.shape)


def merged(first: TypeProto, second: TypeProto) -> TypeProto:
    """Return the type that covers both: sizes that differ are unknown."""
    a, b = dimensions_in(first), dimensions_in(second)
    dtype = dtype_in(first)
    if first == second or dtype is None:
        return first
    if a is None or b is None or len(a) != len(b):
        return tensor_type(dtype, None)
    return tensor_type(dtype, [x if x == y else None for x, y in zip(a, b, strict=True)])


def has_shape(kind: TypeProto) -> bool:
    """Whether the type has all that it can say: the rank too, for a tensor."""
    return is_known(kind) and (
        not kind.HasField("tensor_type") or kind.tensor_type.HasField("shape")
    )


def is_known(kind: TypeProto) -> bool:
    """Whether the type says what the value is; shapes apart."""
    return onnx.TypeProto() != kind and (not kind.HasField("tensor_type") or bool(dtype_in(kind)))
