"""Operators that change nothing: casts that a later cast undoes, products by 1, sums with 0.

Exact: not a bit differs. XLA removes them by itself; NumPy and CuPy save a pass over the data.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from sardonyx.backends.dtypes import kind_of
from sardonyx.graph.rewriting.rewriter import Passage, Replacement, calls, instead_of, orders
from sardonyx.graph.tracing.steps import Step
from sardonyx.ops.casting import Cast
from sardonyx.ops.definition import DType
from sardonyx.ops.elementwise import Div, Mul, Sub


def merge_casts(passage: Passage, step: Step) -> Replacement:
    """Leave out a cast to a type that holds every value, if another cast follows it."""
    widened = passage.producer(step.operands[0], Cast)
    if widened is None:
        return None
    source, target = widened.operands[0], step.specs[0].dtype
    wide, narrow = widened.specs[0].dtype, passage.spec(source).dtype
    if not _holds_all(wide, narrow):
        return None
    if target == narrow and isinstance(source, int):
        return source
    if not all(map(_is_plain_float, (narrow, wide, target))):
        return None
    return [instead_of(step, Cast, (source,), to=target)]


def _holds_all(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is one of `wide`."""
    if _is_plain_float(narrow):
        return _is_plain_float(wide) and _holds_floats(wide, narrow)
    if narrow.kind == "b":
        return wide.kind in "iuf" and wide.isbuiltin == 1
    both_plain = narrow.isbuiltin == wide.isbuiltin == 1
    return both_plain and narrow.kind in "iu" and _holds_integers(wide, narrow)


def _is_plain_float(dtype: DType) -> bool:
    return (dtype.kind == "f" and dtype.isbuiltin == 1) or dtype.name == "bfloat16"


def _holds_floats(wide: DType, narrow: DType) -> bool:
    large, small = ml_dtypes.finfo(wide), ml_dtypes.finfo(narrow)
    reaches = large.maxexp >= small.maxexp and large.minexp <= small.minexp
    return bool(large.nmant >= small.nmant and reaches)


def _holds_integers(wide: DType, narrow: DType) -> bool:
    if wide.kind in "iu":
        return np.can_cast(narrow, wide)
    return wide.kind == "f" and int(np.iinfo(narrow).max) <= 2 ** (np.finfo(wide).nmant + 1)


def drop_neutral(passage: Passage, step: Step) -> Replacement:
    """Leave out a product or quotient by 1, a difference from 0, and a sum with 0.

    The sum with 0.0 stays, because it turns -0.0 into 0.0.
    """
    for operand, other in orders(step):
        value = passage.scalar(other)
        if value is None or not isinstance(operand, int) or passage.spec(operand) != step.specs[0]:
            continue
        if _is_neutral(step, value):
            return operand
    return None


def _is_neutral(step: Step, value: float) -> bool:
    if calls(step, Mul, Div):
        return value == 1
    if calls(step, Sub):
        return value == 0 and not np.signbit(value)
    is_float = kind_of(step.specs[0].dtype) == "real floating"
    return value == 0 and (bool(np.signbit(value)) or not is_float)
