"""Checks whether formulas for what a trace computed from sizes hold for other sizes.

A number that is linear in the sizes at both ends of a bucket is linear between them, if it comes
from arithmetic: rounding, clipping and periods show at the ends. The result of a comparison holds
between the ends if it is the same there, and equality if the difference keeps its sign.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

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
ARITHMETIC = frozenset(
    (
        *("Abs", "Add", "And", "Cast", "CastLike", "Ceil", "Clip", "Concat", "ConstantOfShape"),
        *("Div", "Expand", "Floor", "Identity", "Max", "Mean", "Min", "Mod", "Mul", "Neg", "Not"),
        *("Or", "Pad", "Pow", "Range", "Reciprocal", "ReduceMax", "ReduceMin", "ReduceProd"),
        *("ReduceSum", "Reshape", "Round", "Shape", "Size", "Slice", "Split", "Sqrt", "Squeeze"),
        *("Sub", "Sum", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where", "Xor"),
    )
)


class Folded(NamedTuple):
    """A call that tracing ran on static values."""

    operator: str
    operands: tuple[Array, ...]
    is_boolean: bool


class NotingTracer(Tracer):
    """Notes every call that it folds."""

    def __init__(self, source: Source, tape: Tape, *, strict: bool, folded: list[Folded]) -> None:
        super().__init__(source, tape, strict=strict)
        self._folded = folded

    def emit(self, node: Node, call: OpCall, arrays: Sequence[Static | Device]) -> list[Value]:
        results = super().emit(node, call, arrays)
        values = tuple(array.value for array in arrays if isinstance(array, Static))
        if len(values) == len(arrays):
            computed = [result for result in results if isinstance(result, Static)]
            is_boolean = any(result.dtype == np.bool_ for result in computed)
            self._folded.append(Folded(node.operator, values, is_boolean))
        return results


def are_regular(traces: Sequence[Sequence[Folded]]) -> bool:
    """Whether formulas that hold for the sizes of these traces hold for all between them."""
    if len(set(map(len, traces))) != 1:
        return False
    return all(map(_is_regular, zip(*traces, strict=True)))


def _is_regular(calls: Sequence[Folded]) -> bool:
    operator = calls[0].operator
    if any(call.operator != operator for call in calls):
        return False
    columns = list(zip(*(call.operands for call in calls), strict=True))
    varying = [i for i, column in enumerate(columns) if not _are_equal(column)]
    if not varying:
        return True
    if operator in COMPARISONS:
        return _keeps(COMPARISONS[operator], *columns)
    if operator in ("Cast", "CastLike") and calls[0].is_boolean:
        zeros = [np.zeros_like(values) for values in columns[0]]
        return _keeps(COMPARISONS["Equal"], columns[0], zeros)
    if operator in CHOICES:
        return 1 not in varying
    return operator in ARITHMETIC


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
