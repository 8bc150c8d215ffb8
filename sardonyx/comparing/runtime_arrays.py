"""Arrays of onnxruntime whose dtypes its conversions to NumPy lack: bfloat16, float8, int4."""

from __future__ import annotations

import ctypes
import re
from typing import Any

import numpy as np
import onnx

from sardonyx.graph.loading.tensors import decode
from sardonyx.graph.standard.types import ELEMENT_TYPES

# The numbers of these types by onnxruntime's names, such as "tensor(bfloat16)".
_NUMBERS = {
    f"tensor({row.name})": row.number for row in ELEMENT_TYPES.values() if row.dtype.isbuiltin != 1
}


def is_foreign_type(name: str) -> bool:
    """Whether onnxruntime's name of a type is that of a tensor that NumPy itself has no dtype for.

    >>> is_foreign_type("tensor(bfloat16)"), is_foreign_type("tensor(float)")
    (True, False)
    """
    return name in _NUMBERS


def is_foreign(value: Any) -> bool:
    """Whether an array has a dtype of ml_dtypes."""
    return isinstance(value, np.ndarray) and value.dtype.isbuiltin == 2


def to_ort_value(array: np.ndarray[Any, Any], runtime: Any) -> Any:
    """Return an array as a value of onnxruntime, with the bytes as ONNX packs them."""
    if not is_foreign(array):
        return runtime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))
    tensor = onnx.numpy_helper.from_array(np.ascontiguousarray(array))
    carrier = np.zeros(array.shape, f"u{array.dtype.itemsize}")
    packed = np.frombuffer(tensor.raw_data, np.uint8)
    carrier.reshape(-1).view(np.uint8)[: packed.size] = packed
    return runtime.OrtValue.ortvalue_from_numpy_with_onnx_type(carrier, tensor.data_type)


def from_ort_value(value: Any) -> np.ndarray[Any, Any]:
    """Return a tensor of onnxruntime as an array."""
    number = _NUMBERS.get(value.data_type())
    if number is None:
        return np.asarray(value.numpy())
    size = value.tensor_size_in_bytes()
    data = ctypes.string_at(value.data_ptr(), size) if size else b""
    return np.array(
        decode(onnx.TensorProto(dims=value.shape(), data_type=number, raw_data=data), None)
    )


def reason_of(error: Exception) -> str:
    """Return what an error of onnxruntime says, without its code.

    >>> reason_of(RuntimeError("[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : No kernel."))
    'No kernel'
    """
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", str(error).strip())
    return text.splitlines()[0].rstrip(".") if text else type(error).__name__
