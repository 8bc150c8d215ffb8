"""cuBLAS, called directly: CuPy refuses its own calls while a stream is captured.

CuPy has loaded the library that it was built for, wherever that lies; its functions are looked up
among those that CuPy's own module is linked to.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_int, c_int64, c_size_t, c_void_p
from functools import cache
from typing import Any, NamedTuple

import cupy
from cupy.cuda import cublas as cupys_cublas

POINTER, SIZE, COUNT, STRIDE = c_void_p, c_size_t, c_int, c_int64
_MATRIX = (POINTER, c_int, COUNT)
_STACK = (*_MATRIX, STRIDE)

# The types of the arguments; each function returns a status.
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cublasCreate_v2": (POINTER,),
    "cublasDestroy_v2": (POINTER,),
    "cublasSetStream_v2": (POINTER, POINTER),
    "cublasSetWorkspace_v2": (POINTER, POINTER, SIZE),
    "cublasSetMathMode": (POINTER, c_int),
    # Both operations, m, n and k; alpha, A and B, beta, C; how it computes, and the algorithm.
    "cublasGemmEx": (
        *(POINTER, c_int, c_int, COUNT, COUNT, COUNT),
        *(POINTER, *_MATRIX, *_MATRIX, POINTER, *_MATRIX, c_int, c_int),
    ),
    "cublasGemmStridedBatchedEx": (
        *(POINTER, c_int, c_int, COUNT, COUNT, COUNT),
        *(POINTER, *_STACK, *_STACK, POINTER, *_STACK, COUNT, c_int, c_int),
    ),
}
STATUSES = {
    1: "NOT_INITIALIZED",
    3: "ALLOC_FAILED",
    7: "INVALID_VALUE",
    8: "ARCH_MISMATCH",
    11: "MAPPING_ERROR",
    13: "EXECUTION_FAILED",
    14: "INTERNAL_ERROR",
    15: "NOT_SUPPORTED",
}
# Statuses that the same arguments have again; others may have passed by the next call.
REFUSALS = (7, 8, 15)
# Sums of 16-bit floats are in float32 to their end, also where several blocks add parts of one.
NO_REDUCED_PRECISION = 16


class CublasError(Exception):
    """A function of cuBLAS or cuBLASLt has failed."""

    def __init__(self, function: str, status: int) -> None:
        super().__init__(f"{function} returned {STATUSES.get(status, status)}")
        self.status = status


class Unavailable(Exception):  # noqa: N818  (a signal, not an error)
    """A library cannot be called directly; the text is the reason."""


class Functions(NamedTuple):
    """Functions of a library, which raise unless they succeed."""

    by_name: dict[str, Callable[..., int]]

    def call(self, name: str, *arguments: Any) -> None:
        status = self.by_name[name](*arguments)
        if status:
            raise CublasError(name, status)


def functions_of(library: ctypes.CDLL, signatures: dict[str, tuple[Any, ...]]) -> Functions:
    """Look up functions, and declare the types of their arguments."""
    found = {}
    for name, types in signatures.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise Unavailable(f"there is no function {name} in CuPy's CUDA libraries") from None
        function.argtypes, function.restype = types, c_int
        found[name] = function
    return Functions(found)


@cache
def loaded() -> ctypes.CDLL:
    """The library that CuPy's own module is linked to; raises `Unavailable` if there is none."""
    if cupy.cuda.runtime.is_hip:
        raise Unavailable("CuPy runs on AMD's ROCm, which has no cuBLAS")
    try:
        return ctypes.CDLL(cupys_cublas.__file__)
    except OSError as error:
        raise Unavailable(f"cuBLAS cannot be loaded: {error}") from None


@cache
def functions() -> Functions:
    """The functions of cuBLAS; raises `Unavailable` if one is missing."""
    return functions_of(loaded(), SIGNATURES)
