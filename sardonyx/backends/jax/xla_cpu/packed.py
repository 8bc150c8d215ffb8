"""Weights in the order in which XLA's kernels for CPUs read them, rearranged ahead of all calls."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sardonyx.backends.executable import Spec
from sardonyx.backends.few_rows import MOST_OF_PART, are_few, by_columns, can_be_few
from sardonyx.backends.fused_epilogue import NOTHING, Epilogue
from sardonyx.backends.host_memory import aligned_copy, zero_bytes
from sardonyx.backends.jax.arrays import is_array
from sardonyx.backends.jax.convolution_layout import ConvolutionLayout
from sardonyx.backends.jax.xla_cpu.convolution_forms import turns_weights
from sardonyx.backends.numpy import HOST
from sardonyx.backends.written_out.noted_array import NotedArray, noted_product

# Up to so many rows are multiplied by blocks of columns.
MOST_ROWS_BY_BLOCKS = 4
COLUMNS_OF_BLOCK = 64
# So many rows of a matrix stay in the processor's cache while they are transposed.
ROWS_AT_ONCE = 32


@dataclass(frozen=True)
class TurnedConvolution:
    """A convolution by filters whose channels come last."""

    weight: Spec
    layout: ConvolutionLayout

    is_same_in_programs: ClassVar[bool] = False

    @property
    def form(self) -> TurnedConvolution:
        """The form of the weight, which says nothing about the other array."""
        return self

    @property
    def packed(self) -> Spec:
        """The filters: (*kernel, C / groups, M)."""
        count, channels, *kernel = self.weight.shape
        return Spec((*kernel, channels, count), self.weight.dtype)

    def pack(self, weight: Any) -> Any:
        """The filters in that order, in the weight's own library."""
        count, *sides = weight.shape
        last = transposed(weight.reshape(count, math.prod(sides))).reshape(*sides, count)
        axes = range(last.ndim)
        return _copied(last.transpose(*axes[1:-1], 0, axes[-1]))

    def run(self, x: Any, packed: Any) -> Any:
        """The convolution."""
        if is_array(x):
            return _in_programs().convolution(x, packed, self.layout)
        weight = np.moveaxis(packed, (-2, -1), (1, 0))
        return HOST.convolution(x, weight, **self.layout._asdict())


def convolution(
    x: Spec, weight: Spec, layout: ConvolutionLayout, *, epilogue: Epilogue
) -> TurnedConvolution | None:
    """A convolution that would rearrange its filters at each call; None for all others."""
    batch, channels, *spatial = x.shape
    if epilogue != NOTHING or not math.prod(weight.shape):
        return None
    is_turned = turns_weights((batch, *spatial, channels), weight.shape, layout)
    return TurnedConvolution(weight, layout) if is_turned else None


@dataclass(frozen=True)
class TurnedMatrix:
    """Rows times a matrix whose columns are contiguous or, for a few rows, in blocks of 64."""

    weight: Spec
    is_transposed: bool
    is_blocked: bool

    is_same_in_programs: ClassVar[bool] = False

    @property
    def form(self) -> TurnedMatrix:
        """The form of the weight, which says nothing about the other array."""
        return self

    @property
    def packed(self) -> Spec:
        """(N, K), or (N / 64, K, 64)."""
        inner, columns = self.weight.shape[::-1] if self.is_transposed else self.weight.shape
        if not self.is_blocked:
            return Spec((columns, inner), self.weight.dtype)
        blocks = columns // COLUMNS_OF_BLOCK
        return Spec((blocks, inner, COLUMNS_OF_BLOCK), self.weight.dtype)

    def pack(self, weight: Any) -> Any:
        """The matrix in that order, in the weight's own library."""
        if not self.is_blocked:
            return transposed(weight)
        matrix = transposed(weight) if self.is_transposed else weight
        blocks = matrix.reshape(len(matrix), -1, COLUMNS_OF_BLOCK)
        return _copied(blocks.transpose(1, 0, 2))

    def run(self, x: Any, packed: Any) -> Any:
        """The product with the last axis of `x`."""
        *sizes, inner = x.shape
        rows = x.reshape(math.prod(sizes), inner)
        if is_array(x):
            y = _in_programs().product(rows, packed, is_blocked=self.is_blocked)
        elif self.is_blocked:
            y = _row_by_row(rows, packed)
        elif isinstance(x, NotedArray) and len(rows) > 1 and can_be_few(rows, packed):
            # One call for any number of rows, so that functions of sizes are alike.
            y = noted_product(multiplied, rows, packed, (len(rows), len(packed)))
        else:
            y = multiplied(rows, packed)
        return y.reshape(*sizes, y.shape[-1])


def matrix_product(
    x: Spec, weight: Spec, *, is_transposed: bool, epilogue: Epilogue
) -> TurnedMatrix | None:
    """A product with rows like these; None for an epilogue, or if the columns are contiguous."""
    columns = weight.shape[0 if is_transposed else 1]
    rows = math.prod(x.shape[:-1])
    if epilogue != NOTHING or not rows * math.prod(weight.shape):
        return None
    is_blocked = 1 < rows <= MOST_ROWS_BY_BLOCKS and not columns % COLUMNS_OF_BLOCK
    if is_transposed and not is_blocked:
        return None
    return TurnedMatrix(weight, is_transposed, is_blocked)


def multiplied(rows: Any, columns: Any) -> Any:
    """Rows times a matrix whose columns are contiguous, for arrays of the host."""
    if are_few(rows, columns.T):
        # Notes of a matrix do not say that its columns are contiguous.
        return by_columns(rows, columns)
    return HOST.matmul(rows, columns.T)


def _row_by_row(rows: Any, blocks: Any) -> Any:
    """A few rows times a matrix in blocks, for arrays of the host.

    For a product of several rows OpenBLAS copies the matrix, which takes longer than to multiply
    each row by itself, if a part of the matrix is in the processor's caches for all of them.
    """
    if isinstance(blocks, np.ndarray):
        y = HOST.matmul(rows[None, :, None, :], blocks[:, None])[:, :, 0]
    else:
        # A function that is written out makes these parts once for all calls, and they are larger.
        count, inner = _count_parts(blocks), blocks.shape[1]
        parts = blocks.transpose(0, 2, 1).reshape(count, 1, -1, inner)
        y = HOST.matmul(parts, rows[None, :, :, None])[..., 0]
    return y.transpose(1, 0, 2).reshape(len(rows), -1)


def _count_parts(blocks: Any) -> int:
    """The least number of equal parts of a matrix, each of whole blocks, that are small enough."""
    numbers = [n for n in range(1, len(blocks) + 1) if not len(blocks) % n]
    return next((n for n in numbers if blocks.nbytes <= n * MOST_OF_PART), len(blocks))


def transposed(matrix: Any) -> Any:
    """The matrix with its axes swapped and contiguous rows.

    It is copied in strips, because NumPy is slow at it if rows are long.
    """
    if not isinstance(matrix, np.ndarray) or matrix.T.flags.c_contiguous:
        return matrix.T
    result = zero_bytes(matrix.nbytes).view(matrix.dtype).reshape(matrix.shape[::-1])
    for start in range(0, len(matrix), ROWS_AT_ONCE):
        strip = slice(start, start + ROWS_AT_ONCE)
        result[:, strip] = matrix[strip].T
    return result


def _copied(array: Any) -> Any:
    """A copy with contiguous rows; in NumPy one that XLA need not copy again."""
    return aligned_copy(array) if isinstance(array, np.ndarray) else array.copy()


def _in_programs() -> Any:
    """What computes the same in programs; it imports JAX, whose arrays somebody has by then."""
    from sardonyx.backends.jax.xla_cpu import packed_in_programs  # noqa: PLC0415

    return packed_in_programs
