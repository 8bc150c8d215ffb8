"""cuBLASLt: products of 8-bit types, and products with a bias and an activation in one kernel.

Each product of a layout is described once for each thread, and the library is asked once how to
compute it. A handle of cuBLAS serves cuBLASLt too.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import c_float, c_int, c_int8, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from cupy.cuda.runtime import getDevice

from sardonyx.backends.cupy.cublas import CublasError, Functions, functions_of, loaded
from sardonyx.backends.cupy.cublas_handles import handle, workspace_bytes
from sardonyx.backends.cupy.gemm import BFLOAT16, IN_FLOAT32, faster_type
from sardonyx.backends.cupy.product_plans import Matrix, Plan
from sardonyx.backends.fusion.library_products import E4M3, E5M2, FLOAT8_PAIRS

_CREATED = (c_void_p,)
_ATTRIBUTE = (c_void_p, c_int, c_void_p, c_size_t)
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cublasLtMatmulDescCreate": (c_void_p, c_int, c_int),
    "cublasLtMatmulDescDestroy": _CREATED,
    "cublasLtMatmulDescSetAttribute": _ATTRIBUTE,
    "cublasLtMatrixLayoutCreate": (c_void_p, c_int, c_uint64, c_uint64, c_int64),
    "cublasLtMatrixLayoutDestroy": _CREATED,
    "cublasLtMatrixLayoutSetAttribute": _ATTRIBUTE,
    "cublasLtMatmulPreferenceCreate": _CREATED,
    "cublasLtMatmulPreferenceDestroy": _CREATED,
    "cublasLtMatmulPreferenceSetAttribute": _ATTRIBUTE,
    # The handle, the description, the layouts of A, B, C and D, the preference, and the answers.
    "cublasLtMatmulAlgoGetHeuristic": (*(c_void_p,) * 7, c_int, c_void_p, c_void_p),
    # The handle and description; alpha, A and B with layouts; beta, C and D; the algorithm,
    # workspace and stream.
    "cublasLtMatmul": (*(c_void_p,) * 14, c_size_t, c_void_p),
}
# Attributes: of descriptions, of layouts, of preferences.
TRANSPOSE_A, TRANSPOSE_B, EPILOGUE, BIAS_POINTER = 3, 4, 7, 8
SCALE_POINTERS, FAST_SUMS = (17, 18), 25
STACK_LENGTH, STACK_STRIDE = 5, 6
WORKSPACE_BYTES, REDUCTION_SCHEMES, FIRST_ALIGNMENT = 1, 3, 5
# Parts of a sum are added in the type in which they were computed, not in that of the result.
IN_COMPUTE_TYPE = 2
# Epilogues, which are added up.
NO_EPILOGUE, RELU, BIAS, GELU = 1, 2, 4, 32
NOT_SUPPORTED = 15
# So many descriptions are in memory for each thread.
MOST_DESCRIBED = 1024


class Float8(NamedTuple):
    """The dtypes of a product of floats of 8 bits."""

    a: np.dtype[Any]
    b: np.dtype[Any]
    result: np.dtype[Any]


# The dtype of both operands, and of the result unless they are integers.
Kind: TypeAlias = np.dtype[Any] | Float8


class Types(NamedTuple):
    """The library's numbers for the types of operands and results, and for how it computes."""

    a: int
    b: int
    result: int
    compute: int
    scale: int
    one: Any
    zero: Any


_FLOATS = {np.dtype(np.float32): 0, np.dtype(np.float16): 2, BFLOAT16: 14}
_FLOATS8 = {E4M3: 28, E5M2: 29}
_IN_FLOAT32 = (IN_FLOAT32, 0, c_float(1), c_float(0))
FLOAT8_KINDS = tuple(Float8(a, b, to) for a, b in FLOAT8_PAIRS for to in _FLOATS)
TYPES: dict[Kind, Types] = {
    **{dtype: Types(number, number, number, *_IN_FLOAT32) for dtype, number in _FLOATS.items()},
    np.dtype(np.int8): Types(3, 3, 10, 72, 10, c_int32(1), c_int32(0)),
    **{
        kind: Types(_FLOATS8[kind.a], _FLOATS8[kind.b], _FLOATS[kind.result], *_IN_FLOAT32)
        for kind in FLOAT8_KINDS
    },
}


class Choice(ctypes.Structure):
    """The answer of the heuristic."""

    _fields_ = (
        ("algorithm", c_uint64 * 8),
        ("workspace", c_size_t),
        ("status", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


@cache
def functions() -> Functions:
    """The functions of cuBLASLt, to which cuBLAS is linked; raises `Unavailable` without them."""
    return functions_of(loaded(), SIGNATURES)


class Layout(NamedTuple):
    """What a product is described by; equal ones share a description."""

    kind: Kind
    plan: Plan
    epilogue: int
    # Whether there are scales of both operands.
    scaled: tuple[bool, bool]
    # To which the addresses of both operands, of the result and of the bias are aligned.
    alignments: tuple[int, int, int, int]
    # To which type factors of float32 may be rounded, by its number.
    faster: int | None


class LtProduct:
    """A product that has been described; it belongs to the handle of one thread."""

    def __init__(self, layout: Layout) -> None:
        # What exists already is destroyed also if the rest cannot be described.
        self._created: list[tuple[Callable[..., int], int]] = []
        self._memory = workspace_bytes(getDevice())
        self._types = TYPES[layout.kind]
        self._has_bias = bool(layout.epilogue & BIAS)
        plan = layout.plan
        compute = layout.faster or self._types.compute
        self._how = self._create("MatmulDesc", compute, self._types.scale)
        # cuBLASLt has columns where we have rows, so the operands change sides.
        self._set("MatmulDesc", self._how, TRANSPOSE_A, c_int32(plan.b.is_transposed))
        self._set("MatmulDesc", self._how, TRANSPOSE_B, c_int32(plan.a.is_transposed))
        self._set("MatmulDesc", self._how, EPILOGUE, c_uint32(layout.epilogue))
        if self._has_bias:
            # The heuristic looks for kernels that read a bias.
            self._set("MatmulDesc", self._how, BIAS_POINTER, c_void_p(256))
        if isinstance(layout.kind, Float8):
            # Parts of sums are added up in float32 now and then.
            self._set("MatmulDesc", self._how, FAST_SUMS, c_int8(0))
        self._scale_pointers = [
            pointer
            for pointer, is_scaled in zip(SCALE_POINTERS[::-1], layout.scaled, strict=True)
            if is_scaled
        ]
        self._set_scales([256] * len(self._scale_pointers))
        [call] = plan.calls
        self._layouts = [
            self._matrix(number, rows, columns, matrix, call.matrices, step)
            for number, rows, columns, matrix, step in (
                (self._types.b, plan.k, plan.n, plan.b, call.strides[1]),
                (self._types.a, plan.m, plan.k, plan.a, call.strides[0]),
            )
        ]
        step = call.strides[2]
        result = self._matrix(self._types.result, plan.m, plan.n, plan.c, call.matrices, step)
        self._layouts += [result, result]
        self._choice = self._chosen(layout.alignments)

    def run(self, a: int, b: int, c: int, bias: int | None, scales: Sequence[int]) -> None:
        """Multiply on the current stream; the arguments are addresses."""
        of_thread = handle()
        pointer, memory = of_thread.ready(), of_thread.workspace
        if self._has_bias:
            self._set("MatmulDesc", self._how, BIAS_POINTER, c_void_p(bias))
        self._set_scales(scales)
        left, right, into, _ = self._layouts
        one, zero = ctypes.byref(self._types.one), ctypes.byref(self._types.zero)
        functions().call(
            "cublasLtMatmul",
            *(pointer, self._how, one, b, left, a, right, zero, c, into, c, into),
            *(ctypes.byref(self._choice.algorithm), memory.ptr, self._memory, of_thread.stream),
        )

    def _set_scales(self, scales: Sequence[int]) -> None:
        for pointer, scale in zip(self._scale_pointers, scales, strict=True):
            self._set("MatmulDesc", self._how, pointer, c_void_p(scale))

    def _create(self, kind: str, *arguments: Any) -> int:
        pointer = c_void_p()
        functions().call(f"cublasLt{kind}Create", ctypes.byref(pointer), *arguments)
        assert pointer.value is not None
        destroy = functions().by_name[f"cublasLt{kind}Destroy"]
        self._created.append((destroy, pointer.value))
        return pointer.value

    def _set(self, kind: str, pointer: int, attribute: int, value: Any) -> None:
        size = ctypes.sizeof(value)
        name = f"cublasLt{kind}SetAttribute"
        functions().call(name, pointer, attribute, ctypes.byref(value), size)

    def _matrix(
        self, dtype: int, rows: int, columns: int, matrix: Matrix, length: int, stride: int
    ) -> int:
        """Describe a stack of matrices, by rows as the library's columns."""
        sizes = (rows, columns) if matrix.is_transposed else (columns, rows)
        layout = self._create("MatrixLayout", dtype, *sizes, matrix.leading)
        if length > 1:
            self._set("MatrixLayout", layout, STACK_LENGTH, c_int32(length))
            self._set("MatrixLayout", layout, STACK_STRIDE, c_int64(stride))
        return layout

    def _chosen(self, alignments: tuple[int, int, int, int]) -> Choice:
        preference = self._create("MatmulPreference")
        self._set("MatmulPreference", preference, WORKSPACE_BYTES, c_uint64(self._memory))
        self._set("MatmulPreference", preference, REDUCTION_SCHEMES, c_uint32(IN_COMPUTE_TYPE))
        of_a, of_b, of_c, of_bias = alignments
        # There is no setting for the bias, which kernels read as they write the result.
        for i, alignment in enumerate((of_b, of_a, of_c, min(of_c, of_bias))):
            self._set("MatmulPreference", preference, FIRST_ALIGNMENT + i, c_uint32(alignment))
        choice, count = Choice(), c_int()
        name = "cublasLtMatmulAlgoGetHeuristic"
        pointers = (handle().ready(), self._how, *self._layouts, preference)
        functions().call(name, *pointers, 1, ctypes.byref(choice), ctypes.byref(count))
        if not count.value:
            raise CublasError(name, NOT_SUPPORTED)
        if choice.status:
            raise CublasError(name, choice.status)
        return choice

    def __del__(self) -> None:
        for destroy, pointer in self._created:
            destroy(pointer)


def multiply(
    kind: Kind,
    plan: Plan,
    addresses: tuple[int, int, int],
    epilogue: int = NO_EPILOGUE,
    bias: int | None = None,
    scales: tuple[int | None, int | None] = (None, None),
    *,
    precision: str = "highest",
) -> None:
    """Multiply by a plan of one call, and apply the epilogue.

    `bias` is an address, and so are the `scales` of both operands.
    """
    alignments = _alignments(*addresses, bias or 0)
    scaled = (scales[0] is not None, scales[1] is not None)
    faster = None if isinstance(kind, Float8) else faster_type(kind, precision)
    layout = Layout(kind, plan, epilogue, scaled, alignments, faster)
    products = handle().described
    product = products.get(layout)
    if product is None:
        if len(products) >= MOST_DESCRIBED:
            products.clear()
        product = products[layout] = LtProduct(layout)
    product.run(*addresses, bias, [scale for scale in scales if scale is not None])


def _alignments(*addresses: int) -> tuple[int, int, int, int]:
    a, b, c, bias = (next(size for size in (256, 16, 4, 2, 1) if not at % size) for at in addresses)
    return a, b, c, bias
