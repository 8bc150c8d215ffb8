"""Products by cuBLASLt: of 8-bit integers, and with a bias and an activation in one kernel."""

from __future__ import annotations

import math
from typing import Any

import cupy
import numpy as np

from sardonyx.backends.cupy import cublaslt
from sardonyx.backends.cupy.bits import Bits
from sardonyx.backends.cupy.epilogue_trial import CODES, epilogues_of
from sardonyx.backends.cupy.float8_products import Float8Products
from sardonyx.backends.cupy.lt_calls import multiply_by_parts, row_major
from sardonyx.backends.cupy.products import (
    FAILURES,
    MatrixProducts,
    into,
    product,
    result_shape,
    target_of,
)
from sardonyx.backends.cupy.refusals import is_refused, note
from sardonyx.backends.fused_epilogue import Epilogue
from sardonyx.backends.fusion.library_products import FLOATS, IntegerProducts, takes_epilogue

FLOAT32 = np.dtype(np.float32)


class LibraryProducts(Float8Products, MatrixProducts):
    """Whatever cuBLASLt refuses is computed by cuBLAS and by CuPy's own kernels."""

    device: int

    @property
    def fuses(self) -> bool:  # type: ignore[override]  # an attribute of the base
        """Whether cuBLASLt computes the epilogues of float32 exactly here."""
        # All are tried out now, since there may be no trial during a capture.
        exact = {dtype: epilogues_of(dtype, self.device) for dtype in FLOATS}
        return exact[FLOAT32] >= {"none", "relu"}

    def multiplies_with(self, a: Any, b: Any, others: Any, epilogue: Epilogue) -> bool:
        return takes_epilogue(a, b, others, epilogue)

    def matmul_and_more(
        self, a: Any, b: Any, *others: Any, epilogue: Epilogue, out: Any = None
    ) -> Any:
        """The product and its epilogue, in a row-major array `out` if one is passed."""
        activation = "none" if epilogue.activation is None else epilogue.activation.function
        bias = others[0] if others else None
        options = (activation, bias is not None, self.precision)
        if activation in epilogues_of(a.dtype, self.device) and not is_refused(a, b, *options):
            try:
                return _with_epilogue(a, b, bias, activation, out, self.precision)
            except FAILURES as error:
                instead = "cuBLAS and CuPy's kernels"
                note(error, a, b, *options, work="A product with an epilogue", instead=instead)
        return into(out, _step_by_step(a, b, bias, activation, self.precision))

    def _columns(self, b: Any) -> Any:
        columns = super()._columns(b)
        if isinstance(columns, Bits):
            return Bits(cupy.ascontiguousarray(columns.bits), columns.dtype)
        return cupy.ascontiguousarray(columns)

    def int8_product(self, a: Any, b: Any) -> Any:
        a, columns = row_major(a), row_major(b)
        b = columns.swapaxes(-1, -2)
        if not is_refused(a, b):
            result = cupy.empty(result_shape(a.shape, b.shape), np.int32)
            try:
                multiply_by_parts(a.dtype, a, b, result)
            except FAILURES as error:
                note(error, a, b, instead="products of floats")
            else:
                return result
        return super(IntegerProducts, self).integer_matmul(a, b)


def _with_epilogue(a: Any, b: Any, bias: Any, activation: str, out: Any, precision: str) -> Any:
    shape = result_shape(a.shape, b.shape)
    result = cupy.empty(shape, a.dtype) if out is None else target_of(out, shape, a, b)
    code = CODES[activation] | (0 if bias is None else cublaslt.BIAS)
    bias = None if bias is None else cupy.ascontiguousarray(bias)
    multiply_by_parts(a.dtype, a, b, result, epilogue=code, bias=bias, precision=precision)
    return result if out is None or result is out else into(out, result)


def _step_by_step(a: Any, b: Any, bias: Any, activation: str, precision: str) -> Any:
    y = product(a, b, precision=precision)
    if bias is not None:
        y += bias
    if activation == "relu":
        return cupy.maximum(y, 0, out=y)
    return gelu_by_tanh(y) if activation == "gelu_tanh" else y


def gelu_by_tanh(x: Any) -> Any:
    wide = x.astype(np.float32)
    inner = math.sqrt(2 / math.pi) * (wide + np.float32(0.044715) * wide * wide * wide)
    return (np.float32(0.5) * wide * (1 + cupy.tanh(inner))).astype(x.dtype)
