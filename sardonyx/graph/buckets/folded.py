"""Checks whether formulas for what a trace computed from sizes hold for other sizes.

A number that is linear in the sizes at both ends of a bucket, and at two neighbours, is linear
between them, if one operation of arithmetic computed it from numbers that are linear: rounding,
clipping and periods show there. So all numbers on the way must be linear, too: a square that is
divided and rounded can meet a line at three sizes, and leave it between them. The result of a
comparison holds between the ends if it is the same there, and equality if the difference keeps its
sign.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from sardonyx.graph.buckets.formulas import Formula, SizeVector
from sardonyx.graph.ir import Node, Source
from sardonyx.graph.tracing.op_call import OpCall
from sardonyx.graph.tracing.tape import Tape
from sardonyx.graph.tracing.tracer import Tracer
from sardonyx.graph.values.kinds import Device, Static, Value

Array: TypeAlias = np.ndarray[Any, Any]

# What must be the same at both ends, from the sign of a difference: of an equality the sign itself,
# because the difference passes through zero on its way from one sign to the other.
COMPARISONS: Mapping[str, Callable[[Array], Array]] = {
    "Equal": np.positive,
    "Greater": lambda signs: signs > 0,
    "GreaterOrEqual": lambda signs: signs >= 0,
    "Less": lambda signs: signs < 0,
    "LessOrEqual": lambda signs: signs <= 0,
}
# Their second operand chooses among elements of the first, which may be a table of anything.
CHOICES = frozenset(("Gather", "GatherElements", "GatherND"))
# What is linear in linear operands.
LINEAR = frozenset(
    (
        *("Add", "And", "Concat", "ConstantOfShape", "Expand", "Identity", "Mean", "Neg", "Not"),
        *("Or", "Pad", "Range", "ReduceSum", "Reshape", "Shape", "Size", "Slice", "Split"),
        *("Squeeze", "Sub", "Sum", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where", "Xor"),
    )
)
KEEPING_INVERSES = frozenset(("Cast", "CastLike", "Div", "Mul"))
SUMS = frozenset(("Add", "Mean", "ReduceSum", "Sub", "Sum"))
# What is monotonic, convex or concave in one linear operand, or periodic.
OTHERS = frozenset(
    (
        *("Abs", "Cast", "CastLike", "Ceil", "Clip", "Div", "Floor", "Max", "Min", "Mod", "Mul"),
        *("Reciprocal", "ReduceMax", "ReduceMin", "Round", "Sqrt"),
    )
)


class Folded(NamedTuple):
    """A call that tracing ran on static values."""

    operator: str
    operands: tuple[Array, ...]
    results: tuple[Array, ...]

    @property
    def is_boolean(self) -> bool:
        return any(result.dtype == np.bool_ for result in self.results)


class NotingTracer(Tracer):
    """Notes every call that it folds."""

    def __init__(self, source: Source, tape: Tape, *, strict: bool, folded: list[Folded]) -> None:
        super().__init__(source, tape, strict=strict)
        self._folded = folded

    def emit(self, node: Node, call: OpCall, arrays: Sequence[Static | Device]) -> list[Value]:
        results = super().emit(node, call, arrays)
        values = tuple(array.value for array in arrays if isinstance(array, Static))
        if len(values) == len(arrays):
            computed = tuple(result.value for result in results if isinstance(result, Static))
            self._folded.append(Folded(node.operator, values, computed))
        return results


def are_regular(sampled: Sequence[SizeVector], traces: Sequence[Sequence[Folded]]) -> bool:
    """Whether formulas that hold for the sizes of these traces hold for all between them."""
    if len(set(map(len, traces))) != 1:
        return False
    return all(_is_regular(sampled, calls) for calls in zip(*traces, strict=True))


def _is_regular(sampled: Sequence[SizeVector], calls: Sequence[Folded]) -> bool:
    operator, arity = calls[0].operator, len(calls[0].results)
    if any(call.operator != operator or len(call.results) != arity for call in calls):
        return False
    columns = list(zip(*(call.operands for call in calls), strict=True))
    varying = [i for i, column in enumerate(columns) if not _are_equal(column)]
    if not varying:
        return True
    operands = [_dependence(sampled, columns[i]) for i in varying]
    compared = _compared(operator, calls, columns)
    if compared is not None:
        return compared and all(map(_is_linear, operands))
    results = [_dependence(sampled, each) for each in zip(*(c.results for c in calls), strict=True)]
    if None in operands or None in results or (operator in CHOICES and 1 in varying):
        return False
    known = {i: each for i, each in zip(varying, operands, strict=True) if each and each.elements}
    is_constant = not any(result and result.elements for result in results)
    is_float = all(result.dtype.kind == "f" for result in calls[0].results)
    return operator in CHOICES or _is_plain(operator, known, is_constant, is_float)


def _compared(
    operator: str, calls: Sequence[Folded], columns: Sequence[Sequence[Array]]
) -> bool | None:
    """Whether a comparison has the same result for all sizes; None if this is none."""
    if operator in COMPARISONS:
        return _keeps(COMPARISONS[operator], *columns)
    if operator in ("Cast", "CastLike") and calls[0].is_boolean:
        zeros = [np.zeros_like(values) for values in columns[0]]
        return _keeps(COMPARISONS["Equal"], columns[0], zeros)
    return None


def _is_linear(operand: Dependence | None) -> bool:
    return operand is not None and not operand.is_inverse


def _is_plain(
    operator: str, operands: Mapping[int, Dependence], is_constant: bool, is_float: bool
) -> bool:
    """Whether a result that is linear at the ends, from such operands, is so between them."""
    inverses = [operand for operand in operands.values() if operand.is_inverse]
    sizes = [size for operand in operands.values() for size in operand.sizes]
    if operator in LINEAR:
        is_sum = operator in SUMS and (len(operands) > 1 or any(o.elements > 1 for o in inverses))
        return not (inverses and is_sum)
    if operator == "ReduceProd":
        # Each factor is another size, whose product is a term of formulas.
        return not inverses and all(o.elements <= len(o.sizes) for o in operands.values())
    if operator == "Mod" and 1 in operands:
        return False
    if operator == "Div" and 1 in operands:
        return is_constant or (is_float and len(operands) == 1)
    if inverses:
        return is_float and len(operands) == 1 and operator in KEEPING_INVERSES
    # A product of two sizes is a term of formulas, and one of a size with itself is not linear.
    is_product = operator == "Mul" and len(sizes) == len(set(sizes))
    return operator in OTHERS and (len(operands) <= 1 or is_constant or is_product)


class Dependence(NamedTuple):
    """How an array depends on sizes: on which of them, by inverses, and how many elements do."""

    sizes: frozenset[int]
    is_inverse: bool
    elements: int


def _dependence(sampled: Sequence[SizeVector], arrays: Sequence[Array]) -> Dependence | None:
    """Return how arrays depend on the sizes, as far as all reach; None if they are not linear."""
    if len({array.ndim for array in arrays}) != 1:
        return None
    common = tuple(slice(min(sizes)) for sizes in zip(*(a.shape for a in arrays), strict=True))
    formula = Formula.fitted(sampled, [np.ascontiguousarray(array[common]) for array in arrays])
    if formula is None:
        return None
    if formula.factors is None:
        return Dependence(frozenset(), False, 0)
    used = formula.factors != 0
    count = len(sampled[0])
    pairs = combinations(range(count), 2)
    names = [(), *((i,) for i in range(count)), *pairs]
    sizes = {i for name, row in zip(names, used.any(axis=1), strict=True) if row for i in name}
    return Dependence(frozenset(sizes), formula.is_inverse, int(used[1:].any(axis=0).sum()))


def _are_equal(arrays: Sequence[Array]) -> bool:
    return all(np.array_equal(arrays[0], array) for array in arrays[1:])


def _keeps(
    compared: Callable[[Array], Array], first: Sequence[Array], second: Sequence[Array]
) -> bool:
    """Whether a comparison has the same results for all sizes, as far as all arrays reach."""
    if any(array.dtype.kind not in "iufb" for array in (*first, *second)):
        return False
    pairs = zip(first, second, strict=True)
    signs = [np.sign(np.subtract(a, b, dtype=np.float64)) for a, b in pairs]
    if len({sign.ndim for sign in signs}) != 1:
        return False
    common = tuple(slice(min(sizes)) for sizes in zip(*(sign.shape for sign in signs), strict=True))
    return _are_equal([compared(sign[common]) for sign in signs])
