"""How reductions combine elements, in C."""

from __future__ import annotations

import numpy as np

from sardonyx.backends.fusion.c_types import literal, register_type, rounded, wrapping_type
from sardonyx.backends.fusion.nodes import Reduction


def first_value(node: Reduction) -> str:
    """Return the value that changes no other one."""
    dtype = node.computed_in
    if node.function in ("sum", "mean", "any"):
        return literal(0, dtype)
    if node.function in ("prod", "all"):
        return literal(1, dtype)
    is_max = node.function == "max"
    if dtype.kind == "b":
        return literal(not is_max, dtype)
    if dtype.kind in "fV":
        return literal(-np.inf if is_max else np.inf, dtype)
    limits = np.iinfo(dtype)
    return literal(limits.min if is_max else limits.max, dtype)


def combined(node: Reduction, a: str, b: str) -> str:
    dtype = node.computed_in
    if node.function in ("sum", "mean", "prod"):
        sign = "*" if node.function == "prod" else "+"
        if dtype.kind not in "iu":
            return f"{a} {sign} {b}"
        wide = wrapping_type(dtype)
        return f"({register_type(dtype)})(({wide}){a} {sign} ({wide}){b})"
    if node.function in ("any", "all"):
        return f"{a} {'||' if node.function == 'any' else '&&'} {b}"
    is_more = f"{a} {'>' if node.function == 'max' else '<'} {b}"
    test = is_more if dtype.kind in "biu" else f"{a} != {a} || {is_more}"
    return f"{test} ? {a} : {b}"


def finished(node: Reduction, total: str) -> str:
    """Return the result, rounded once."""
    if node.function == "mean":
        total = f"{total} / ({register_type(node.computed_in)}){node.length}"
    return rounded(total, node.dtype)
