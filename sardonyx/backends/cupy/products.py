"""Products of matrices by cuBLAS, so that graphs can hold them; by CuPy where cuBLAS refuses."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import cupy
import numpy as np

from sardonyx.backends.cupy.alignment import aligned
from sardonyx.backends.cupy.bit_functions import carrying, computed
from sardonyx.backends.cupy.cublas import CublasError, Unavailable
from sardonyx.backends.cupy.gemm import KINDS, Gemm
from sardonyx.backends.cupy.product_plans import Copied, Plan, Strides, TooLarge, planned
from sardonyx.backends.cupy.refusals import is_refused, note
from sardonyx.backends.numpy import NumpyLike
from sardonyx.backends.standard import Shape

# What a library may fail with, where another way is tried.
FAILURES = (CublasError, Unavailable, TooLarge, cupy.cuda.memory.OutOfMemoryError)
T = TypeVar("T")


def _with_numbers(function: Callable[..., Any], a: Any, b: Any, **options: Any) -> Any:
    """Multiply the numbers of `Bits`, which nothing writes into a passed array."""
    return computed("matmul")(function, a, b)


class MatrixProducts(NumpyLike):
    """Products into new arrays, or into one that is passed."""

    @carrying(_with_numbers)
    def matmul(self, a: Any, b: Any, *, out: Any = None) -> Any:
        """Multiply matrices, into a row-major array `out` if one is passed."""
        a, b = (x if isinstance(x, cupy.ndarray) else cupy.asarray(x) for x in (a, b))
        if a.dtype != b.dtype:
            dtype = np.promote_types(a.dtype, b.dtype)
            a, b = a.astype(dtype, copy=False), b.astype(dtype, copy=False)
        if a.dtype not in KINDS or not min(a.ndim, b.ndim):
            return into(out, by_cupy(a, b))
        return product(a, b, out, precision=self.precision)

    @carrying(computed("tensordot"))
    def tensordot(self, a: Any, b: Any, *, axes: Any = 2) -> Any:
        if isinstance(axes, int):
            axes = range(a.ndim - axes, a.ndim), range(axes)
        arrays = (a, b)
        summed = [[axis % x.ndim for axis in side] for x, side in zip(arrays, axes, strict=True)]
        kept = [
            [axis for axis in range(x.ndim) if axis not in side]
            for x, side in zip(arrays, summed, strict=True)
        ]
        inner = math.prod(a.shape[axis] for axis in summed[0])
        rows, columns = ([x.shape[i] for i in side] for x, side in zip(arrays, kept, strict=True))
        left = a.transpose(*kept[0], *summed[0]).reshape(math.prod(rows), inner)
        right = b.transpose(*summed[1], *kept[1]).reshape(inner, math.prod(columns))
        return self.matmul(left, right).reshape(*rows, *columns)


def product(a: Any, b: Any, out: Any = None, *, precision: str) -> Any:
    """Multiply arrays of one dtype of `KINDS`, of one or more axes each."""
    shape = result_shape(a.shape, b.shape)
    result = cupy.empty(shape, a.dtype) if out is None else target_of(out, shape, a, b)
    if not result.size:
        return result
    if not a.size:
        result.data.memset_async(0, result.nbytes)
    elif not _multiplied(a, b, result, precision):
        return into(out, by_cupy(a, b))
    return result if out is None or result is out else into(out, result)


def by_cupy(a: Any, b: Any) -> Any:
    """CuPy's own product, which a capture refuses."""
    return NumpyLike._in_float32(cupy.matmul, aligned(a), aligned(b))


@lru_cache(4096)
def result_shape(a: Shape, b: Shape) -> Shape:
    left, right = a if len(a) > 1 else (1, *a), b if len(b) > 1 else (*b, 1)
    if left[-1] != right[-2]:
        raise ValueError(f"the inner sizes of matrices of shapes {a} and {b} differ")
    batch = np.broadcast_shapes(left[:-2], right[:-2])
    return (*batch, *left[-2:-1][: len(a) - 1], *right[-1:][: len(b) - 1])


def _multiplied(a: Any, b: Any, result: Any, precision: str) -> bool:
    """Multiply into a row-major array, unless cuBLAS refuses."""
    if is_refused(a, b, precision):
        return False
    try:
        # A vector is a matrix of one row, or of one column.
        left, right = a[None] if a.ndim == 1 else a, b[:, None] if b.ndim == 1 else b
        left, right, gemm = laid_out(left, right, _gemm)
        gemm.run(left.data.ptr, right.data.ptr, result.data.ptr, precision)
    except FAILURES as error:
        note(error, a, b, precision)
        return False
    return True


Find = Callable[[np.dtype[Any], Shape, Strides, Shape, Strides], "T | Copied"]


def laid_out(a: Any, b: Any, find: Find[T]) -> tuple[Any, Any, T]:
    """Return matrices as `find` takes them, copied if they have to be, and its result for them."""
    a, b = aligned(a), aligned(b)
    found = find(a.dtype, a.shape, a.strides, b.shape, b.strides)
    # At most twice: to lie as cuBLAS reads it, and to be repeated for each matrix of the other.
    while isinstance(found, Copied):
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2]) if found.is_repeated else None
        a = _copied(a, batch) if found.a else a
        b = _copied(b, batch) if found.b else b
        found = find(a.dtype, a.shape, a.strides, b.shape, b.strides)
    return a, b, found


@lru_cache(4096)
def plan_of(
    dtype: np.dtype[Any], a: Shape, a_strides: Strides, b: Shape, b_strides: Strides
) -> Plan | Copied:
    """Plan a product of matrices whose strides are counted in bytes."""
    a_steps, b_steps = (
        tuple([step // dtype.itemsize for step in steps]) for steps in (a_strides, b_strides)
    )
    return planned((a, b), (a_steps, b_steps))


@lru_cache(4096)
def _gemm(
    dtype: np.dtype[Any], a: Shape, a_strides: Strides, b: Shape, b_strides: Strides
) -> Gemm | Copied:
    plan = plan_of(dtype, a, a_strides, b, b_strides)
    return plan if isinstance(plan, Copied) else Gemm(dtype, plan)


def _copied(x: Any, batch: Shape | None) -> Any:
    whole = x if batch is None else cupy.broadcast_to(x, (*batch, *x.shape[-2:]))
    return whole.copy(order="C")


def target_of(out: Any, shape: Shape, a: Any, b: Any) -> Any:
    """The array to write to: `out`, or another one if `out` overlaps an operand."""
    if out.shape != shape or out.dtype != a.dtype or not out.flags.c_contiguous:
        raise ValueError(
            f"the product is a row-major {a.dtype}{list(shape)}; `out` is {out.dtype}"
            f"{list(out.shape)} with strides {out.strides}"
        )
    overlaps = cupy.may_share_memory(out, a) or cupy.may_share_memory(out, b)
    return cupy.empty(shape, a.dtype) if overlaps else out


def into(out: Any, value: Any) -> Any:
    if out is None:
        return value
    out[...] = value
    return out
