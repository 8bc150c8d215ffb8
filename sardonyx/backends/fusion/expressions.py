"""Functions of elements as C expressions, with NumPy's results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx.backends.fusion.c_types import converted, register_type, rounded, wrapping_type
from sardonyx.backends.fusion.nodes import DTYPES, Constant, Elementwise, Node

BOOL = np.dtype(np.bool_)

# CUDA's functions of floats, by the standard's names.
_FLOAT_CALLS: Mapping[str, str] = {
    "abs": "fabs",
    "round": "rint",
    **{
        name: name
        for name in (
            "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "copysign", "cos",
            "cosh", "erf", "exp", "expm1", "floor", "fmod", "log", "log1p", "log2", "nextafter",
            "pow", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
        )
    },
}  # fmt: skip
_FLOATS: Mapping[str, str] = {
    "add": "{0} + {1}",
    "bitcast": "{0}",
    "conj": "{0}",
    "divide": "{0} / {1}",
    "floor_divide": "floor_quotient({0}, {1})",
    "logaddexp": "log_of_sum({0}, {1})",
    "maximum": "{0} != {0} || {0} > {1} ? {0} : {1}",
    "minimum": "{0} != {0} || {0} < {1} ? {0} : {1}",
    "multiply": "{0} * {1}",
    "negative": "-{0}",
    "real": "{0}",
    "reciprocal": "1 / {0}",
    "remainder": "floored_remainder({0}, {1})",
    "sign": "{0} != {0} ? {0} : (T)(({0} > 0) - ({0} < 0))",
    "square": "{0} * {0}",
    "subtract": "{0} - {1}",
    **{name: f"{call}({{0}})" for name, call in _FLOAT_CALLS.items()},
    **{name: f"{name}({{0}}, {{1}})" for name in ("atan2", "copysign", "fmod", "nextafter", "pow")},
}
# U is the type whose arithmetic wraps, and T the element's own.
_INTEGERS: Mapping[str, str] = {
    "abs": "(T)({0} < 0 ? (U)0 - (U){0} : (U){0})",
    "add": "(T)((U){0} + (U){1})",
    "bitcast": "{0}",
    "bitwise_and": "(T)({0} & {1})",
    "bitwise_invert": "(T)~{0}",
    "bitwise_left_shift": "shifted_left<T>({0}, {1})",
    "bitwise_or": "(T)({0} | {1})",
    "bitwise_right_shift": "shifted_right<T>({0}, {1})",
    "bitwise_xor": "(T)({0} ^ {1})",
    "conj": "{0}",
    "floor_divide": "floor_quotient_of_integers<T>({0}, {1})",
    "fmod": "remainder_of_integers<T>({0}, {1})",
    "maximum": "{0} > {1} ? {0} : {1}",
    "minimum": "{0} < {1} ? {0} : {1}",
    "multiply": "(T)((U){0} * (U){1})",
    "negative": "(T)((U)0 - (U){0})",
    "real": "{0}",
    "remainder": "floored_remainder_of_integers<T>({0}, {1})",
    "sign": "(T)(({0} > 0) - ({0} < 0))",
    "square": "(T)((U){0} * (U){0})",
    "subtract": "(T)((U){0} - (U){1})",
}
_BOOLEANS: Mapping[str, str] = {
    "add": "{0} || {1}",
    "bitwise_and": "{0} && {1}",
    "bitwise_invert": "!{0}",
    "bitwise_or": "{0} || {1}",
    "bitwise_xor": "{0} != {1}",
    "maximum": "{0} || {1}",
    "minimum": "{0} && {1}",
    "multiply": "{0} && {1}",
}
# What compares elements of any type.
_TESTS: Mapping[str, str] = {
    "equal": "{0} == {1}",
    "greater": "{0} > {1}",
    "greater_equal": "{0} >= {1}",
    "less": "{0} < {1}",
    "less_equal": "{0} <= {1}",
    "not_equal": "{0} != {1}",
}
# Comparisons of unsigned integers with zero, of which compilers warn.
_OF_UNSIGNED: Mapping[str, str] = {"greater_equal": "true", "less": "false"}
_LOGIC: Mapping[str, str] = {
    "logical_and": "{0} && {1}",
    "logical_not": "!{0}",
    "logical_or": "{0} || {1}",
    "logical_xor": "{0} != {1}",
}
_FLOAT_TESTS: Mapping[str, str] = {
    "isfinite": "isfinite({0})",
    "isinf": "isinf({0})",
    "isnan": "{0} != {0}",
    "signbit": "signbit({0})",
}
_ALL_TESTS: Mapping[str, str] = {**_TESTS, **_LOGIC, **_FLOAT_TESTS}
FUNCTIONS = frozenset({*_FLOATS, *_INTEGERS, *_BOOLEANS, *_ALL_TESTS})
FUNCTIONS -= {"bitcast", "astype", "where"}
# What takes as long as many additions.
SLOW = frozenset(_FLOAT_CALLS) - {"abs", "ceil", "copysign", "floor", "round", "trunc"}
# Kernels have these for float32 and float64 alone: the neighbours of narrow floats are others.
_WIDE_ONLY = frozenset({"nextafter"})


def computed_dtype(
    name: str, result: np.dtype[Any], operands: Sequence[Any]
) -> np.dtype[Any] | None:
    """Return the dtype in which kernels compute a function, or None if they lack it."""
    dtypes = [o.dtype for o in operands if isinstance(o, (np.ndarray, np.generic))]
    if not {result, *dtypes} <= DTYPES:
        return None
    if name in _LOGIC:
        return BOOL
    if name in _TESTS or name in _FLOAT_TESTS:
        dtype = _common(operands)
        if dtype is None or (name in _FLOAT_TESTS and dtype.kind in "biu"):
            return None
        return dtype if dtype in DTYPES else None
    if name in _WIDE_ONLY and result.itemsize < 4:
        return None
    return result if name in _table(result) else None


def _common(operands: Sequence[Any]) -> np.dtype[Any] | None:
    """Return the dtype to which comparisons convert, or None if it changes integers."""
    kinds = [o.dtype if isinstance(o, (np.ndarray, np.generic)) else o for o in operands]
    try:
        common = np.result_type(*kinds)
    except OverflowError:
        return None
    integers = all(np.result_type(kind).kind in "biu" for kind in kinds)
    return None if integers and common.kind not in "biu" else common


def _table(dtype: np.dtype[Any]) -> Mapping[str, str]:
    return {"b": _BOOLEANS, "i": _INTEGERS, "u": _INTEGERS}.get(dtype.kind, _FLOATS)


def expression(node: Elementwise, operands: Sequence[str]) -> str:
    """Return the node's C expression of variables of its operands' register types."""
    name, dtype = node.function, node.computed_in
    sources = [operand.dtype for operand in node.operands]
    if name == "astype":
        return converted(operands[0], sources[0], node.dtype)
    if name == "bitcast":
        return _same_bits(operands[0], sources[0], node.dtype)
    if name == "where":
        chosen = [converted(o, s, dtype) for o, s in zip(operands[1:], sources[1:], strict=True)]
        return f"{operands[0]} ? {_atom(chosen[0])} : {_atom(chosen[1])}"
    if name == "pow" and (power := _square_of(node)) is not None:
        return rounded(power.format(operands[0]), dtype)
    same = [_atom(converted(o, s, dtype)) for o, s in zip(operands, sources, strict=True)]
    if name in _ALL_TESTS:
        is_known = dtype.kind == "u" and name in _OF_UNSIGNED and _is_literal(node.operands[1], 0)
        return _OF_UNSIGNED[name] if is_known else _ALL_TESTS[name].format(*same)
    text = _table(dtype)[name].format(*same)
    if dtype.kind in "iu":
        text = text.replace("(U)", f"({wrapping_type(dtype)})")
    text = text.replace("(T)", f"({register_type(dtype)})").replace(
        "<T>", f"<{register_type(dtype)}>"
    )
    return rounded(text, dtype)


def _square_of(node: Elementwise) -> str | None:
    """Return the form of a power of 2, which NumPy multiplies."""
    is_square = _is_literal(node.operands[1], 2) and node.operands[0].dtype == node.dtype
    return "{0} * {0}" if is_square else None


def _is_literal(node: Node, number: int) -> bool:
    return isinstance(node, Constant) and node.value.size == 1 and node.value.item() == number


def _same_bits(text: str, source: np.dtype[Any], dtype: np.dtype[Any]) -> str:
    bits = {"float16": "__half_as_ushort(__float2half_rn({0}))", "bfloat16": "to_bfloat16({0})"}
    text = bits.get(source.name, "{0}").format(text)
    if dtype.name == "float16":
        return f"__half2float(__ushort_as_half((unsigned short)({text})))"
    if dtype.name == "bfloat16":
        return f"from_bfloat16((unsigned short)({text}))"
    return f"same_bits<{register_type(dtype)}>({text})"


def _atom(text: str) -> str:
    return text if text.isidentifier() else f"({text})"
