"""Python numbers and lists as arrays of the dtype that an operator's schema asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx.errors import InvalidInput
from sardonyx.graph.calls.array_interop import normalised
from sardonyx.graph.ir import ValueInfo
from sardonyx.graph.standard.operators import Signature, Slot
from sardonyx.graph.standard.types import DType, dtype_of_type

# The dtypes of a literal by its kind, the natural ones first.
_FLOATS = ("float32", "float64", "float16", "bfloat16")
_INTEGERS = ("int64", "int32", "uint8", "int8", "int16", "uint16", "uint32", "uint64")
_NATURAL = {
    "b": ("bool", *_INTEGERS, *_FLOATS),
    "i": (*_INTEGERS, *_FLOATS),
    "u": (*_INTEGERS, *_FLOATS),
    "f": _FLOATS,
    "c": ("complex64", "complex128"),
    "U": ("object",),
}


def is_array(value: Any) -> bool:
    """Whether it is an array of some library, or a symbolic one."""
    # A symbolic array records what computes its shape, so it is not asked.
    return hasattr(type(value), "record_op") or (
        hasattr(value, "dtype") and hasattr(value, "shape")
    )


def slot_at(schema: Signature, index: int) -> Slot:
    """Return the slot of an input; all inputs of a variadic one share it."""
    return schema.inputs[min(index, len(schema.inputs) - 1)]


def with_arrays(schema: Signature, inputs: Sequence[Any]) -> list[Any]:
    """Return the inputs of a call with arrays in place of Python numbers, strings and lists."""
    if all(value is None or is_array(value) for value in inputs):
        return [np.asarray(v) if isinstance(v, np.generic) else v for v in inputs]
    peers = _dtypes_by_variable(schema, inputs)
    return [_array_for(slot_at(schema, i), value, peers) for i, value in enumerate(inputs)]


def numpy_dtype(value: Any) -> DType | None:
    """Return the dtype of an array of any library as NumPy's; None if NumPy has none."""
    dtype = value.dtype
    if dtype is None or isinstance(dtype, np.dtype):
        return dtype
    try:
        return np.dtype(str(dtype).rpartition(".")[2])  # As torch writes its own.
    except TypeError:
        return None


def host_copy(value: Any) -> np.ndarray[Any, Any]:
    """Return a copy of an array of any library, which may be on a device, as NumPy's."""
    for fetch in ("get", "cpu"):  # Of CuPy and of torch, which NumPy does not fetch by itself.
        if hasattr(value, fetch):
            return np.array(getattr(value, fetch)())
    return np.array(value)


def _dtypes_by_variable(schema: Signature, inputs: Sequence[Any]) -> dict[str, DType]:
    """Return the dtypes of the type variables that the arrays among the inputs bind."""
    bound: dict[str, DType] = {}
    for i, value in enumerate(inputs):
        slot = slot_at(schema, i)
        if is_array(value) and (not slot.variadic or slot.homogeneous):
            dtype = numpy_dtype(value)
            if dtype is not None:
                bound.setdefault(slot.type, dtype)
    return bound


def _array_for(slot: Slot, value: Any, peers: Mapping[str, DType]) -> Any:
    if value is None or is_array(value):
        return np.asarray(value) if isinstance(value, np.generic) else value
    if isinstance(value, dict) or is_sequence(slot, value):
        return value
    info = ValueInfo(slot.name, None, _dtype_for(slot, value, peers), None)
    return normalised(value, info)


def is_sequence(slot: Slot, value: Any) -> bool:
    """Whether a list is a sequence of arrays, not an array."""
    if not isinstance(value, (list, tuple)):
        return False
    if slot.allowed and all(kind.startswith(("seq", "optional(seq")) for kind in slot.allowed):
        return True
    return bool(value) and all(map(is_array, value)) and not isinstance(value[0], np.generic)


def _dtype_for(slot: Slot, value: Any, peers: Mapping[str, DType]) -> DType:
    if slot.type in peers:
        return peers[slot.type]
    try:
        kind = np.asarray(value).dtype.kind
    except ValueError as error:
        raise InvalidInput(f"The input '{slot.name}' is not an array: {error}.") from None
    kind = "U" if kind in "OS" else kind
    allowed = None if slot.allowed is None else {dtype_of_type(each) for each in slot.allowed}
    for name in _NATURAL.get(kind, ()):
        dtype = np.dtype(name)
        if allowed is None or dtype in allowed:
            return dtype
    raise InvalidInput(
        f"The input '{slot.name}' is {value!r:.100}, but takes "
        f"{', '.join(sorted(slot.allowed or ()))}: pass an array of one of these."
    )
