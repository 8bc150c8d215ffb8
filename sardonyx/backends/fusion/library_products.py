"""Which products CUDA's libraries compute in one kernel: CuPy and the tracing backend agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Spec
from sardonyx.backends.fused_epilogue import Epilogue
from sardonyx.backends.operations.products import LONGEST_SUM

NARROW = frozenset({np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)})
FLOATS = NARROW | {np.dtype(np.float32)}
BYTES = frozenset({np.dtype(np.int8), np.dtype(np.uint8)})
INT8, INT16, INT32 = (np.dtype(f"int{bits}") for bits in (8, 16, 32))
E4M3, E5M2 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)
# The types of the left and the right side that tensor cores multiply.
FLOAT8_PAIRS = ((E4M3, E4M3), (E4M3, E5M2), (E5M2, E4M3))
# Rows and columns of 8-bit integers have lengths of which this is a factor.
UNIT = 16


def takes_epilogue(a: Any, b: Any, others: Sequence[Any], epilogue: Epilogue) -> bool:
    """Whether one kernel computes the product and this epilogue.

    The library's GELU is the approximation by tanh, perhaps not to the last digits of float32.
    """
    activations = ("relu", "gelu_tanh") if a.dtype in NARROW else ("relu",)
    activation = None if epilogue.activation is None else epilogue.activation.function
    is_known = activation in activations or (activation is None and epilogue.has_bias)
    if not is_known or epilogue.addend is not None or a.ndim < 2 or b.ndim != 2:
        return False
    if a.dtype not in FLOATS or {b.dtype, *(x.dtype for x in others)} != {a.dtype}:
        return False
    return bool(a.size and b.size) and all(x.shape == b.shape[1:] for x in others)


def takes_integers(a: Any, b: Any) -> bool:
    return (
        {a.dtype, b.dtype} <= BYTES
        and min(a.ndim, b.ndim) >= 2
        and bool(a.size and b.size)
        and a.shape[-1] <= LONGEST_SUM
    )


def takes_float8(a: Spec, b: Spec) -> bool:
    """Whether the library may have a kernel for the product of these matrices."""
    sizes = math.prod(a.shape) * math.prod(b.shape)
    return (a.dtype, b.dtype) in FLOAT8_PAIRS and min(len(a.shape), len(b.shape)) > 1 and sizes > 0


class IntegerProducts(Backend):
    """Products of 8-bit integers as one of signed integers, whose sizes are padded with zeros."""

    prepares_columns = True

    def integer_matmul(self, a: Any, b: Any) -> Any:
        if not takes_integers(a, b):
            return super().integer_matmul(a, b)
        product = self.product_with_columns(self.signed_bytes(a), self.columns_of_bytes(b))
        product = product[..., : b.shape[-1]]
        if b.dtype != INT8:
            product = product + 128 * self._sums(a, axis=-1)
        if a.dtype != INT8:
            product = product + 128 * self._sums(self.signed_bytes(b), axis=-2)
        return product

    def product_with_columns(self, a: Any, columns: Any) -> Any:
        return self.int8_product(self._in_units(a, axis=-1), columns)

    def columns_of_bytes(self, b: Any) -> Any:
        return self._columns(self.signed_bytes(b))

    def _columns(self, b: Any) -> Any:
        """Return the columns of a matrix as rows, whose length and number are units."""
        columns = self._in_units(self.matrix_transpose(b), axis=-1)
        return self._in_units(columns, axis=-2)

    def columns_spec(self, b: Spec) -> Spec:
        rows, columns = (-(-size // UNIT) * UNIT for size in b.shape[-2:])
        return Spec((*b.shape[:-2], columns, rows), INT8 if b.dtype in BYTES else b.dtype)

    def int8_product(self, a: Any, b: Any) -> Any:
        """Multiply int8 (..., m, k) by the transpose of (..., n, k); k and n are units."""
        raise NotImplementedError

    def signed_bytes(self, x: Any) -> Any:
        if x.dtype == INT8:
            return x
        return self.astype(self.astype(x, self.dtype(INT16)) - 128, self.dtype(INT8))

    def _in_units(self, x: Any, *, axis: int) -> Any:
        missing = -x.shape[axis] % UNIT
        if not missing:
            return x
        widths = [(0, missing if i == axis % x.ndim else 0) for i in range(x.ndim)]
        return self.pad(x, widths, 0)

    def _sums(self, x: Any, *, axis: int) -> Any:
        int32 = self.dtype(INT32)
        return self.sum(self.astype(x, int32), axis=axis, keepdims=True, dtype=int32)


class Float8Products(IntegerProducts):
    """Products of floats of 8 bits, whose sizes are padded with zeros as those of integers are."""

    def columns_of_float8(self, b: Any) -> Any:
        return self._columns(b)

    def float8_matmul(
        self, a: Any, columns: Any, a_scale: Any, b_scale: Any, *, dtype: np.dtype[Any]
    ) -> Any:
        scales = [None if x is None else self._number(x) for x in (a_scale, b_scale)]
        return self.float8_product(self._in_units(a, axis=-1), columns, *scales, dtype=dtype)

    def float8_product(
        self, a: Any, columns: Any, a_scale: Any, b_scale: Any, *, dtype: np.dtype[Any]
    ) -> Any:
        """Multiply (..., m, k) by the transpose of (..., n, k); k and n are units."""
        raise NotImplementedError

    def _number(self, scale: Any) -> Any:
        float32 = self.dtype(np.dtype(np.float32))
        return self.reshape(self.astype(self.asarray(scale), float32), ())
