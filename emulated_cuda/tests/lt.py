"""cuBLASLt by its own functions, as a program in C would call them."""

from __future__ import annotations

import ctypes
from ctypes import c_int32, c_int64, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass, field
from typing import Any

import cupy
import numpy as np

LIBRARY = ctypes.CDLL("libcublasLt.so.13")
F32, F64, F16, I8, I32, BF16, E4M3, E5M2 = 0, 1, 2, 3, 10, 14, 28, 29
IN_F32, IN_F64, IN_I32 = 68, 70, 72
NONE, RELU, BIAS, GELU = 1, 2, 4, 32
SUCCESS, INVALID_VALUE, NOT_SUPPORTED = 0, 7, 15


class Choice(ctypes.Structure):
    _fields_ = (("algorithm", c_uint64 * 8), ("others", c_uint64 * 4))


def created(kind: str, *arguments: Any) -> c_void_p:
    pointer = c_void_p()
    assert getattr(LIBRARY, f"cublasLt{kind}Create")(ctypes.byref(pointer), *arguments) == SUCCESS
    return pointer


def put(kind: str, pointer: c_void_p, attribute: int, value: Any) -> int:
    function = getattr(LIBRARY, f"cublasLt{kind}SetAttribute")
    status: int = function(
        pointer, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value))
    )
    return status


@dataclass
class Product:
    """D = op(A) op(B), by columns: m rows, n columns, k terms in each sum."""

    m: int
    n: int
    k: int
    type_in: int = F32
    type_out: int = F32
    compute: int = IN_F32
    scale: int = F32
    transpose: tuple[int, int] = (0, 0)
    epilogue: int = NONE
    count: int = 1
    alignment: int = 4
    # The type of B, if it is another one than that of A.
    type_b: int | None = None
    handle: c_void_p = field(default_factory=lambda: created(""))

    def __post_init__(self) -> None:
        self.how = created("MatmulDesc", self.compute, self.scale)
        for attribute, value in ((3, self.transpose[0]), (4, self.transpose[1])):
            assert put("MatmulDesc", self.how, attribute, c_int32(value)) == SUCCESS
        assert put("MatmulDesc", self.how, 7, c_uint32(self.epilogue)) == SUCCESS
        type_b = self.type_in if self.type_b is None else self.type_b
        self.layouts = [
            self.layout(self.type_in, self.m, self.k, self.transpose[0]),
            self.layout(type_b, self.k, self.n, self.transpose[1]),
            self.layout(self.type_out, self.m, self.n, 0),
        ]

    def layout(self, type_number: int, rows: int, columns: int, transposed: int) -> c_void_p:
        rows, columns = (columns, rows) if transposed else (rows, columns)
        sizes = c_uint64(rows), c_uint64(columns), c_int64(rows)
        layout = created("MatrixLayout", type_number, *sizes)
        if self.count > 1:
            assert put("MatrixLayout", layout, 5, c_int32(self.count)) == SUCCESS
            assert put("MatrixLayout", layout, 6, c_int64(rows * columns)) == SUCCESS
        return layout

    def choose(self) -> tuple[int, Choice]:
        preference = created("MatmulPreference")
        for attribute in (5, 6, 7, 8):
            put("MatmulPreference", preference, attribute, c_uint32(self.alignment))
        choice, count = Choice(), ctypes.c_int()
        a, b, c = self.layouts
        status: int = LIBRARY.cublasLtMatmulAlgoGetHeuristic(
            *(self.handle, self.how, a, b, c, c, preference, 1),
            *(ctypes.byref(choice), ctypes.byref(count)),
        )
        assert count.value == (status == SUCCESS)
        return status, choice

    def run(self, a: Any, b: Any, c: Any, *, bias: Any = None, stream: int = 0) -> int:
        if bias is not None:
            put("MatmulDesc", self.how, 8, c_void_p(bias.data.ptr))
        status, choice = self.choose()
        if status:
            return status
        scalar = {F32: np.float32, F64: np.float64, I32: np.int32}[self.scale]
        one, zero = (np.array(value, scalar) for value in (1, 0))
        of_a, of_b, of_c = self.layouts
        status = LIBRARY.cublasLtMatmul(
            *(self.handle, self.how, c_void_p(one.ctypes.data)),
            *(c_void_p(a.data.ptr), of_a, c_void_p(b.data.ptr), of_b, c_void_p(zero.ctypes.data)),
            *(c_void_p(c.data.ptr), of_c, c_void_p(c.data.ptr), of_c),
            *(ctypes.byref(choice), None, ctypes.c_size_t(0), c_void_p(stream)),
        )
        # Nothing of the call may be read later.
        one[...] = zero[...] = 99
        return status


def columns(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Any:
    """An array of stacks of matrices by columns, and the same as NumPy has it."""
    draw = np.random.default_rng(seed)
    x = draw.integers(-100, 100, shape) if dtype == np.int8 else draw.normal(size=shape)
    by_rows = x.astype(dtype)
    return cupy.asarray(np.swapaxes(by_rows, -1, -2).copy()), by_rows
