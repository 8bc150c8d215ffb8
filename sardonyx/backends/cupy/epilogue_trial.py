"""Which epilogues cuBLASLt computes as the graph does: tried out once on each device.

NVIDIA documents neither what its ReLU does with NaN, nor how exact its GELU is.
"""

from __future__ import annotations

import math
from functools import cache, partial
from typing import Any

import cupy
import ml_dtypes
import numpy as np

from sardonyx.backends.cupy import cublaslt
from sardonyx.backends.cupy.product_plans import Call, Matrix, Plan
from sardonyx.backends.cupy.refusals import LOG

SIZE = 32
# How far a GELU may be off: in units of the last place, and below 1 in those of 1.
UNITS = 2
CODES = {"none": 0, "relu": cublaslt.RELU, "gelu_tanh": cublaslt.GELU}


@cache
def epilogues_of(dtype: np.dtype[Any], device: int) -> frozenset[str]:
    """The activations, "none" included, that follow a product and bias of this dtype exactly."""
    found = set()
    with cupy.cuda.Device(device):
        for activation in CODES:
            try:
                if _is_right(dtype, activation):
                    found.add(activation)
                else:
                    LOG.info("cuBLASLt's %s of %s differs from the graph's", activation, str(dtype))
            except Exception as error:
                # Whatever the reason is, CuPy's own kernels compute the epilogue.
                words = activation, str(dtype), partial(str, error)
                LOG.info("cuBLASLt computes no %s of %s: %s", *words)
    return frozenset(found)


def _is_right(dtype: np.dtype[Any], activation: str) -> bool:
    """Multiply the unit matrix by numbers that are exact in each dtype, and add a bias."""
    x = (np.arange(SIZE * SIZE).reshape(SIZE, SIZE) % 61 / 8 - 4).astype(dtype)
    bias = (np.arange(SIZE) / 4 - 4).astype(dtype)
    bias[:3] = [np.nan, np.inf, -np.inf]
    unit = cupy.asarray(np.eye(SIZE, dtype=np.float32)).astype(dtype)
    operands = [cupy.asarray(array) for array in (x, bias)]
    result = cupy.empty((SIZE, SIZE), dtype)
    matrix, call = Matrix(False, SIZE), Call((0, 0, 0), (0, 0, 0), 1)
    plan = Plan(SIZE, SIZE, SIZE, matrix, matrix, matrix, (call,))
    addresses = (unit.data.ptr, operands[0].data.ptr, result.data.ptr)
    code = CODES[activation] | cublaslt.BIAS
    cublaslt.multiply(dtype, plan, addresses, code, operands[1].data.ptr)
    expected = _activated(x.astype(np.float64) + bias.astype(np.float64), activation)
    found = cupy.asnumpy(result).astype(np.float64)
    tolerance = UNITS * float(ml_dtypes.finfo(dtype).eps) if activation == "gelu_tanh" else 0
    rounded = expected.astype(dtype).astype(np.float64)
    return np.allclose(found, rounded, rtol=tolerance, atol=tolerance, equal_nan=True)


def _activated(x: Any, activation: str) -> Any:
    if activation == "relu":
        return np.maximum(x, 0)
    if activation == "none":
        return x
    with np.errstate(invalid="ignore"):
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        return 0.5 * x * (1 + np.tanh(inner))
