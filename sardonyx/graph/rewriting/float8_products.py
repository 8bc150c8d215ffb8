"""Products of floats of 8 bits by the backend's kernel, whose sums may be less exact than float32.

`GemmFloat8` asks for such a kernel. Products of dequantized factors use one only if the backend's
`multiplies_dequantized_float8` says so. A right side that is fixed is transposed ahead of calls.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sardonyx.backends.executable import Spec
from sardonyx.graph.rewriting.rewriter import (
    Passage,
    Replacement,
    attributes_of,
    call_of,
    calls,
    instead_of,
    parameters_of,
)
from sardonyx.graph.tracing.steps import Operand, Step
from sardonyx.ops.elementwise import Add
from sardonyx.ops.linalg import Gemm, MatMul
from sardonyx.ops.microsoft.matmul_float8 import (
    HALVES,
    GemmFloat8,
    columns_of_float8,
    gemm_of_float8,
    product_of_float8,
)
from sardonyx.ops.quantization import DequantizeLinear

RESULTS = ("float32", *(dtype.name for dtype in HALVES))


def multiply_float8(passage: Passage, step: Step) -> Replacement:
    """Divide the product: its right side as the kernel reads it, and the rest."""
    values = parameters_of(step, GemmFloat8)
    a, b = _as_multiplied(passage, values)
    if not _are_matrices(a, b) or not passage.backend.multiplies_float8(a, b):
        return None
    columns = _columns(passage, step, values["B"], bool(values["transB"]))
    attributes = attributes_of(step) | {"size": b.shape[1]}
    attributes.pop("transB", None)
    operands = (values["A"], *columns.results, *step.operands[2:])
    arguments, title = call_of(step).arguments, step.title
    product = instead_of(step, gemm_of_float8, operands, arguments, title=title, **attributes)
    return [columns, product]


def multiply_dequantized_float8(passage: Passage, step: Step) -> Replacement:
    """Multiply the codes of two factors, and then by both scales."""
    if not passage.backend.multiplies_dequantized_float8 or step.specs[0].dtype.name not in RESULTS:
        return None
    values = parameters_of(step, Gemm if calls(step, Gemm) else MatMul)
    bias = values.get("C")
    has_factor = values.get("alpha", 1) != 1 or (bias is not None and values["beta"] != 1)
    if has_factor or values.get("transA"):
        return None
    left, right = (_Dequantized.of(passage, values[name]) for name in "AB")
    if left is None or right is None:
        return None
    a, b = passage.spec(left.codes), passage.spec(right.codes)
    is_transposed = bool(values.get("transB"))
    b = _transposed(b) if is_transposed else b
    if not passage.backend.multiplies_float8(a, b):
        return None
    columns = _columns(passage, step, right.codes, is_transposed)
    operands = (left.codes, *columns.results, left.scale, right.scale)
    options: dict[str, Any] = {"size": b.shape[-1], "dtype": step.specs[0].dtype}
    if bias is None:
        product = instead_of(step, product_of_float8, operands, title=step.title, **options)
        return [columns, product]
    product = passage.ahead_of(step, step.specs[0], product_of_float8, operands, **options)
    return [columns, product, instead_of(step, Add, (*product.results, bias))]


class _Dequantized(NamedTuple):
    """Floats of 8 bits with one scale, and no zero point other than 0."""

    codes: Operand
    scale: Operand

    @classmethod
    def of(cls, passage: Passage, factor: Operand) -> _Dequantized | None:
        step = passage.producer(factor, DequantizeLinear)
        if step is None:
            return None
        values = parameters_of(step, DequantizeLinear)
        scale, zero = values["x_scale"], values["x_zero_point"]
        if passage.spec(scale).shape not in ((), (1,)):
            return None
        known = None if zero is None else passage.constant(zero)
        if zero is not None and (known is None or known.astype("float32").any()):
            return None
        return cls(values["x"], scale)


def _as_multiplied(passage: Passage, values: Any) -> tuple[Spec, Spec]:
    a, b = (passage.spec(values[name]) for name in "AB")
    return _transposed(a) if values["transA"] else a, _transposed(b) if values["transB"] else b


def _are_matrices(a: Spec, b: Spec) -> bool:
    return len(a.shape) == len(b.shape) == 2 and a.shape[1] == b.shape[0]


def _transposed(spec: Spec) -> Spec:
    return Spec((*spec.shape[:-2], *spec.shape[:-3:-1]), spec.dtype)


def _columns(passage: Passage, step: Step, factor: Operand, is_transposed: bool) -> Step:
    spec = passage.spec(factor)
    result = passage.backend.columns_spec(_transposed(spec) if is_transposed else spec)
    return passage.ahead_of(
        step, result, columns_of_float8, (factor,), title="Columns", is_transposed=is_transposed
    )


PRODUCTS_OF_DEQUANTIZED = (MatMul, Gemm)
