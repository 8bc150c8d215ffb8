"""What undoes what was just done, or does nothing: transposes, reshapes, casts, and products by 1.

Exact: not a bit differs. XLA does most of this by itself; NumPy and CuPy save a pass over the data.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from sardonyx.backends.dtypes import kind_of
from sardonyx.graph.rewriting.rewriter import Passage, Replacement, calling, calls, given
from sardonyx.graph.tracing.op_call import HOLE
from sardonyx.graph.tracing.steps import Step
from sardonyx.ops.casting import Cast
from sardonyx.ops.definition import DType, Ints
from sardonyx.ops.elementwise import Add, Div, Mul, Neg, Not, Sub
from sardonyx.ops.layout import Flatten, Reshape, Squeeze, Transpose, Unsqueeze

RESHAPES = (Reshape, Flatten, Squeeze, Unsqueeze)


def merge_transposes(passage: Passage, step: Step) -> Replacement:
    """Two transposes are one, or none."""
    before = passage.maker(step.operands[0], Transpose)
    if before is None:
        return None
    first, second = order_of(before), order_of(step)
    order = tuple(first[axis] for axis in second)
    (source,) = before.operands
    if order == tuple(range(len(order))) and isinstance(source, int):
        return source
    return [calling(step, Transpose, (source,), Transpose.name, perm=order)]


def order_of(transpose: Step) -> Ints:
    """The axes of what is transposed, in the order of the result's."""
    (spec,) = transpose.specs
    order: Ints | None = given(transpose, Transpose)["perm"]
    return tuple(reversed(range(len(spec.shape)))) if order is None else order


def merge_reshapes(passage: Passage, step: Step) -> Replacement:
    """Of two reshapes only the last shape counts; if it is the first one's, none is needed."""
    before = passage.maker(step.operands[0], *RESHAPES)
    if before is None:
        return None
    source, (spec,) = before.operands[0], step.specs
    if passage.spec(source) == spec and isinstance(source, int):
        return source
    shape = (HOLE, spec.shape)
    return [calling(step, Reshape, (source,), Reshape.name, shape, allowzero=1)]


def merge_casts(passage: Passage, step: Step) -> Replacement:
    """A cast to a type that holds every value of the last one, and back or further on."""
    before = passage.maker(step.operands[0], Cast)
    spec = None if before is None else passage.spec(before.operands[0])
    if before is None or spec is None:
        return None
    source, (between,), (made,) = before.operands[0], before.specs, step.specs
    if not _holds_all(between.dtype, spec.dtype):
        return None
    if made.dtype == spec.dtype and isinstance(source, int):
        return source
    if not all(_is_plain_float(dtype) for dtype in (spec.dtype, between.dtype, made.dtype)):
        return None
    return [calling(step, Cast, (source,), Cast.name, to=made.dtype)]


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
    low, high = int(np.iinfo(narrow).min), int(np.iinfo(narrow).max)
    if wide.kind == "f":
        highest = 1 << (int(np.finfo(wide).nmant) + 1)
        lowest = -highest
    elif wide.kind in "iu":
        lowest, highest = int(np.iinfo(wide).min), int(np.iinfo(wide).max)
    else:
        return False
    return lowest <= low and high <= highest


def undo_twice(passage: Passage, step: Step) -> Replacement:
    """The negative of a negative, and what is not not so."""
    op = Neg if calls(step, Neg) else Not
    before = passage.maker(step.operands[0], op)
    source = None if before is None else before.operands[0]
    return source if isinstance(source, int) else None


def drop_neutral(passage: Passage, step: Step) -> Replacement:
    """A product by 1, a quotient by 1, a difference from 0; a sum with 0 where it keeps -0.0."""
    pairs = [step.operands]
    if calls(step, Mul, Add):
        pairs.append(step.operands[::-1])
    for operand, other in pairs:
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
