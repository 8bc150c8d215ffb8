"""How exactly onnxruntime multiplies bytes on this processor."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnxruntime
from onnx import TensorProto

from tests.support.onnx_builders import model, node, value


@cache
def are_exact() -> bool:
    """Whether products of uint8 and int8 are added up in 32 bits.

    A processor without instructions for such sums lets onnxruntime add each two products in 16
    bits, which saturates.
    """
    product = model(
        [node("MatMulInteger", ["a", "b"], ["y"])],
        [value("a", [1, 64], TensorProto.UINT8), value("b", [64, 1], TensorProto.INT8)],
        [value("y", [1, 1], TensorProto.INT32)],
    )
    session = onnxruntime.InferenceSession(
        product.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    a, b = np.full((1, 64), 255, np.uint8), np.full((64, 1), 127, np.int8)
    (sums,) = session.run(None, {"a": a, "b": b})
    return int(sums[0, 0]) == 64 * 255 * 127


def byte_factors(drawn: np.ndarray) -> np.ndarray:
    """Return the bytes, or as many of 7 bits where onnxruntime would saturate their products."""
    if drawn.dtype != np.int8 or are_exact():
        return drawn
    return drawn // np.int8(2)
