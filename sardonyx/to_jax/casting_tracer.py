"""A tracer that writes steps in another float type than the model's own.

What is known while tracing stays as exact as the model says; it is rounded where it meets an array
of the device. So no two float types meet in a step, and none is promoted back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.errors import SardonyxError
from sardonyx.exporting.tracing import ShapeTracer
from sardonyx.graph.ir import Graph, Node, Source, names_read
from sardonyx.graph.standard.operators import Signature, newest_version
from sardonyx.graph.standard.schema import bind_types
from sardonyx.graph.standard.signatures import signature_of
from sardonyx.graph.standard.types import dtype_of_type, type_name
from sardonyx.graph.tracing.binding import Argument, Bound
from sardonyx.graph.tracing.known_calls import DTypes
from sardonyx.graph.tracing.op_call import HOLE, Drawing, OpCall
from sardonyx.graph.tracing.scope import Scope
from sardonyx.graph.tracing.tape import Tape
from sardonyx.graph.tracing.tracer import Tracer
from sardonyx.graph.values.kinds import Device, Static, Value, static
from sardonyx.ops.casting import BitCast
from sardonyx.ops.definition import Definition
from sardonyx.to_jax.casting import Casting, DType, is_quantization_scale, narrowed


class CastingTracer(Tracer):
    """Traces a graph in the types of a casting."""

    shares_calls = False

    def __init__(
        self, source: Source, tape: Tape, *, strict: bool, casting: Casting, **others: Any
    ) -> None:
        # Older operators lack the new type, so nothing is checked; loading has checked the model.
        super().__init__(source, tape, strict=False, **others)
        self._casting = casting
        self._cast: dict[int, tuple[Static, Static]] = {}
        # Whether the walk is in subgraphs that keep their types.
        self._as_written = False

    def _dtypes_of(
        self, node: Node, schema: Signature | None, opset: int, inputs: Sequence[Value]
    ) -> DTypes:
        """Return the dtypes of the results as the model has them, where the standard says."""
        written = signature_of(node.op_type, node.domain, opset)
        if written is not None:
            with suppress(SardonyxError):
                types = self._written_types(inputs)
                return tuple(map(dtype_of_type, bind_types(node, written, types, opset)))
        return (None,) * len(node.outputs)

    def _written_types(self, values: Sequence[Value]) -> list[str | None]:
        dtypes = [v.dtype if isinstance(v, (Static, Device)) else None for v in values]
        if any(isinstance(value, Device) for value in values) or self._casting.dtype in dtypes:
            dtypes = [None if each is None else self._casting.written(each) for each in dtypes]
        return [None if each is None else type_name(each) for each in dtypes]

    # -- one op -----------------------------------------------------------------------------------

    def _apply(
        self, node: Node, definition: Definition, bound: Bound, dtypes: DTypes, scope: Scope
    ) -> Sequence[Value]:
        if not node.subgraphs:
            return super()._apply(node, definition, bound, dtypes, scope)
        if not any(isinstance(scope.bound(name), Device) for name in names_read(node)):
            # A loop that counts, of constants alone, is as exact as the model.
            outer, self._as_written = self._as_written, True
            try:
                return super()._apply(node, definition, bound, dtypes, scope)
            finally:
                self._as_written = outer
        # The states of a loop have one type, from before the first iteration on.
        arguments = tuple(
            Argument(a.parameter, self._narrow(node, a.value)) for a in bound.arguments
        )
        return super()._apply(node, definition, Bound(arguments, bound.attributes), dtypes, scope)

    def emit(self, node: Node, call: OpCall, arrays: Sequence[Static | Device]) -> list[Value]:
        if not any(isinstance(array, Device) for array in arrays):
            results = super().emit(node, call, arrays)
            return results if self._as_written else self._narrow_arrays(node, results)
        if self._as_written or node in self._casting.exact:
            return self._emit_as_written(node, call, arrays)
        # A BitCast reads the bits of its operand, which no other type has.
        reads_bits = self.source.op_of(node) is BitCast
        if isinstance(call.function, Drawing) or reads_bits or self._lacks_type(node):
            return self._narrow_results(node, self._emit_as_written(node, call, arrays))
        if _has_scales(self.source, node):
            call = replace(call, function=_InItsTypes(call.function))
        else:
            arrays = [self._narrow(node, array) for array in arrays]
        return self._narrow_results(node, self.tape.emit(node, self._narrow_call(call), arrays))

    def _emit_as_written(
        self, node: Node, call: OpCall, arrays: Sequence[Static | Device]
    ) -> list[Value]:
        """Emit a call in the types of the model, which its operands get again."""
        wide = self._casting.own
        operands = [
            self._astype(node, array, wide) if array.dtype == self._casting.dtype else array
            for array in arrays
        ]
        return self.tape.emit(node, replace(call, function=_InItsTypes(call.function)), operands)

    def _narrow_call(self, call: OpCall) -> OpCall:
        new = self._casting.new
        attributes = {
            name: new(value) if isinstance(value, np.dtype) else value
            for name, value in call.attributes.items()
        }
        return replace(call, attributes=attributes, dtypes=tuple(map(new, call.dtypes)))

    def _narrow_results(self, node: Node, results: Sequence[Value]) -> list[Value]:
        names = _result_names(node)
        return [
            value if i < len(names) and names[i].endswith("_scale") else self._narrow(node, value)
            for i, value in enumerate(results)
        ]

    def _narrow_arrays(self, node: Node, values: Sequence[Value]) -> list[Value]:
        """Return arrays of the device in the new type; folded values stay exact."""
        return [self._narrow(node, v) if isinstance(v, Device) else v for v in values]

    def _lacks_type(self, node: Node) -> bool:
        if (node.domain, node.op_type) in self.source.custom:
            return False
        types = type_name(self._casting.own), type_name(self._casting.dtype)
        return _lacks_type(node.op_type, node.domain, *types)

    # -- values -----------------------------------------------------------------------------------

    def _narrow(self, node: Node, value: Any) -> Any:
        """Return a value of a replaced type in the new one, and others as they are."""
        casting = self._casting
        if not isinstance(value, (Static, Device)) or value.dtype not in casting.replaced:
            return value
        if isinstance(value, Device):
            return self._astype(node, value, casting.dtype)
        # The value is kept too: its number could be that of another one later.
        found = self._cast.get(id(value))
        if found is None:
            found = self._cast[id(value)] = value, static(casting.cast(value.value))
        return found[1]

    def _astype(self, node: Node, value: Static | Device, dtype: DType) -> Any:
        if isinstance(value, Static):
            return static(narrowed(value.value, dtype))
        call = OpCall(_cast, (HOLE,), {"dtype": dtype}, (dtype,), outputs=1)
        return self.tape.emit(node, call, [value])[0]

    def _inlined(
        self, graph: Graph, inner: Scope, arguments: Sequence[Value], iteration: Value
    ) -> tuple[Value, ...]:
        results = super()._inlined(graph, inner, arguments, iteration)
        if self._as_written or not self.tape.is_in_block or not graph.nodes:
            return results
        # Both branches of an If, and all iterations of a loop, have results of one type: that of
        # the arguments, where an op computes in a wider one.
        casting = self._casting
        given = [a.dtype for a in arguments if isinstance(a, Device)]
        wide = next((dtype for dtype in given if dtype in casting.replaced), casting.dtype)
        floats = {*casting.replaced, casting.dtype}
        return tuple(
            self._astype(graph.nodes[-1], value, wide)
            if isinstance(value, (Static, Device)) and value.dtype in floats - {wide}
            else value
            for value in results
        )


class SymbolicCastingTracer(CastingTracer, ShapeTracer):
    """The same for one of the numbers that stand for a symbolic size."""


@dataclass(frozen=True, slots=True)
class _InItsTypes:
    """An op whose products are those of its operands' types."""

    function: Callable[..., Any]

    def __call__(self, xp: Backend, *arguments: Any, **attributes: Any) -> Any:
        return self.function(xp.with_products_of_operands(), *arguments, **attributes)


def _cast(xp: Backend, x: Any, *, dtype: DType) -> Any:
    return xp.astype(x, xp.dtype(dtype))


def _has_scales(source: Source, node: Node) -> bool:
    """Whether the node multiplies by scales of a quantization, which stay exact."""
    op = source.op_of(node)
    if op is None:
        return False
    version = newest_version(node.domain) or 1
    return any(map(is_quantization_scale, op.at(version).inputs))


@cache
def _lacks_type(op_type: str, domain: str, own: str, new: str) -> bool:
    """Whether an operator, at its newest version, has the model's type but not the new one."""
    signature = signature_of(op_type, domain, newest_version(domain) or 1)
    slots = () if signature is None else (*signature.inputs, *signature.outputs)
    known = [slot.allowed for slot in slots if slot.allowed is not None]
    return any(own in types for types in known) and not any(new in types for types in known)


def _result_names(node: Node) -> Sequence[str]:
    signature = signature_of(node.op_type, node.domain, newest_version(node.domain) or 1)
    return () if signature is None else [slot.name for slot in signature.outputs]
