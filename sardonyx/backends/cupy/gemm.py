"""Calls of cuBLAS that follow a plan."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from cupy._core import get_compute_type

from sardonyx.backends.cupy.cublas import functions
from sardonyx.backends.cupy.cublas_handles import handle
from sardonyx.backends.cupy.product_plans import Plan

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


class Kind(NamedTuple):
    """How cuBLAS multiplies matrices of a dtype: its numbers for types, and 1 and 0."""

    data: int
    compute: int
    one: Any
    zero: Any


def _kind(data: int, compute: int, scalars: str) -> Kind:
    one, zero = (
        ctypes.create_string_buffer(np.array(value, scalars).tobytes()) for value in (1, 0)
    )
    return Kind(data, compute, one, zero)


IN_FLOAT32, IN_FLOAT64, IN_BFLOAT16, IN_TF32 = 68, 70, 75, 77
KINDS = {
    np.dtype(np.float16): _kind(2, IN_FLOAT32, "f"),
    BFLOAT16: _kind(14, IN_FLOAT32, "f"),
    np.dtype(np.float32): _kind(0, IN_FLOAT32, "f"),
    np.dtype(np.float64): _kind(1, IN_FLOAT64, "d"),
    np.dtype(np.complex64): _kind(4, IN_FLOAT32, "F"),
    np.dtype(np.complex128): _kind(5, IN_FLOAT64, "D"),
}
# cuBLAS chooses the kernel, and CuPy's number for TF32.
DEFAULT_ALGORITHM, CUPYS_TF32 = -1, 7


def faster_type(dtype: np.dtype[Any], precision: str) -> int | None:
    """The type to which cuBLAS may round factors of float32, by its number; None is float32.

    CUPY_TF32, or CuPy's own setting in the process, allows TF32 at each precision.
    """
    if dtype.char not in "fF":
        return None
    if precision == "bfloat16":
        return IN_BFLOAT16
    allows_tf32 = precision in ("high", "tensorfloat32")
    return IN_TF32 if allows_tf32 or get_compute_type(dtype) == CUPYS_TF32 else None


class Gemm:
    """A plan for one dtype. cuBLAS has columns where we have rows, so the operands change sides."""

    def __init__(self, dtype: np.dtype[Any], plan: Plan) -> None:
        self.kind = KINDS[dtype]
        self.dtype = dtype
        self._sizes = (int(plan.b.is_transposed), int(plan.a.is_transposed), plan.n, plan.m, plan.k)
        self._leading = (plan.a.leading, plan.b.leading, plan.c.leading)
        size = dtype.itemsize
        # Of each call: where it begins in bytes, the strides of its stacks, and their length.
        self._calls = [
            (tuple([start * size for start in call.starts]), call.strides, call.matrices)
            for call in plan.calls
        ]

    def run(self, a: int, b: int, c: int, precision: str) -> None:
        """Multiply on the current stream; the arguments are addresses."""
        pointer = handle().ready()
        call = functions().call
        data, _, one, zero = self.kind
        to_a, to_b, to_c = self._leading
        compute = faster_type(self.dtype, precision) or self.kind.compute
        for (at_a, at_b, at_c), (step_a, step_b, step_c), count in self._calls:
            if count == 1:
                left, right, into = (a + at_a, data, to_a), (b + at_b, data, to_b), (c + at_c, data)
                head = (pointer, *self._sizes, one, *right, *left, zero)
                call("cublasGemmEx", *head, *into, to_c, compute, DEFAULT_ALGORITHM)
            else:
                call(
                    "cublasGemmStridedBatchedEx",
                    *(pointer, *self._sizes, one),
                    *(b + at_b, data, to_b, step_b, a + at_a, data, to_a, step_a),
                    *(zero, c + at_c, data, to_c, step_c),
                    *(count, compute, DEFAULT_ALGORITHM),
                )
