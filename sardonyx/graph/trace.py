"""Tracing: one walk over the graph tells static, device, alias and host values apart.

What only depends on constants and shapes is computed here and now, on NumPy; the rest goes on the
tape as steps. Where an op must know a value that the device has yet to compute, the tape is cut:
the segment so far runs, the value is read, and the walk goes on knowing it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from sardonyx.backends.base import Spec
from sardonyx.backends.numpy import FoldingBackend, TooLarge
from sardonyx.errors import LimitExceeded, SardonyxError
from sardonyx.graph import faults
from sardonyx.graph.binding import Argument, Bound, bind
from sardonyx.graph.calls import ControlCall, OpCall
from sardonyx.graph.expand import standard_function
from sardonyx.graph.params import is_static
from sardonyx.graph.program import Named, Program
from sardonyx.graph.scope import Scope
from sardonyx.graph.standard.schema import bind_types, check_result, signature
from sardonyx.graph.standard.types import dtype_of, dtype_of_type, type_name
from sardonyx.graph.structure import Function, Graph, Node, Source
from sardonyx.graph.tape import NeedsHost, Tape
from sardonyx.graph.values import Device, Hosted, Static, Value, static
from sardonyx.ops import OPS
from sardonyx.ops.definition import Definition, Need

DTypes = tuple[np.dtype[Any] | None, ...]


class Tracer:
    """Walks one model's graph for one call, and leaves a program on the tape."""

    def __init__(self, source: Source, tape: Tape, *, strict: bool) -> None:
        self.source = source
        self.tape = tape
        self.strict = strict
        self._folding = FoldingBackend()
        self._names: dict[str, Named] = {}
        self._first_names: dict[int, tuple[str, int]] = {}
        self._views: dict[int, str] = {}

    def trace(self, given: Sequence[Any], title: str) -> Program:
        """Trace the graph for inputs like these: arrays, lists of arrays, or None."""
        graph = self.source.graph
        scope = Scope(self.source.opsets, missing=self._initializer)
        for info, value in zip(graph.required_inputs, given, strict=True):
            slot = self._input(value)
            scope.bind(info.name, slot)
            self._note(info.name, slot)
        outputs = self._walk(graph, scope)
        self.tape.finish(outputs)
        return Program(
            title, self.tape.backend, self.tape.path, self._final_names(), self._constants()
        )

    def _input(self, value: Any) -> Value:
        if value is None:
            return None
        if isinstance(value, list):
            return [self._input(one) for one in value]
        return self.tape.input(value)

    def _initializer(self, name: str) -> Value:
        host = self.tape.params.host(name)
        slot = static(host) if is_static(host) else self.tape.weight(name)
        self._note(name, slot)
        return slot

    # -- graphs and nodes -------------------------------------------------------------------------

    def _walk(self, graph: Graph | Function, scope: Scope) -> list[Value]:
        for node, releases in zip(graph.nodes, graph.last_reads, strict=True):
            for name, value in zip(node.outputs, self._node(node, scope), strict=False):
                if name:
                    scope.bind(name, value)
                    self._note(scope.path + name, value, scope)
            value = None  # Nothing here may keep alive what no node reads any more.
            scope.release(releases)
        names = graph.outputs if isinstance(graph, Function) else [o.name for o in graph.outputs]
        return [scope[name] if name else None for name in names]

    def _node(self, node: Node, scope: Scope) -> Sequence[Value]:
        inputs = [scope[name] if name else None for name in node.inputs]
        attributes = scope.resolve(node.attributes)
        called = self.source.functions.get((node.domain, node.op_type, node.overload))
        opset = scope.opsets.get(node.domain, 0)
        try:
            if called is not None:
                return self._call(called, node, inputs, attributes, scope)
            dtypes = self._types(node, opset, inputs)
            op = OPS.get((node.domain, node.op_type))
            if op is None:
                body = standard_function(node, scope.opsets, attributes, inputs)
                return self._call(body, node, inputs, attributes, scope)
            definition = op.at(opset)
            bound = bind(definition, inputs, attributes, len(node.outputs), dtype_of)
            results = self._apply(node, definition, bound, dtypes, scope)
            self._check_results(node, opset, results)
            return results
        except (NeedsHost, SardonyxError) as error:
            raise faults.placed(error, node, opset, inputs) from None
        except RecursionError:
            where = faults.where(node, opset, inputs)
            raise LimitExceeded(f"{where} is nested too deep.") from None
        except Exception as error:
            raise faults.explained(error, node, opset, inputs, self.tape.backend) from error

    def _call(
        self,
        function: Function,
        node: Node,
        inputs: Sequence[Value],
        attributes: Mapping[str, Any],
        scope: Scope,
    ) -> Sequence[Value]:
        """Inline a function: a scope of its own, in which its inputs have its own names."""
        path = f"{scope.path}{node.name or node.op_type}/"
        inner = Scope(
            function.opsets,
            path=path,
            attributes={**function.defaults, **attributes},
            depth=scope.depth + 1,
        )
        for i, name in enumerate(function.inputs):
            inner.bind(name, inputs[i] if i < len(inputs) else None)
        return self._walk(function, inner)

    def _types(self, node: Node, opset: int, inputs: Sequence[Value]) -> DTypes:
        """Check the inputs' types against the standard; the dtypes it says the results have."""
        known = signature(node.op_type, node.domain, opset)
        if known is None or not self.strict:
            return (None,) * len(node.outputs)
        types = [type_name(v.dtype) if isinstance(v, (Static, Device)) else None for v in inputs]
        return tuple(dtype_of_type(t) for t in bind_types(node, known, types, opset))

    def _check_results(self, node: Node, opset: int, results: Sequence[Value]) -> None:
        known = signature(node.op_type, node.domain, opset)
        if known is not None and self.strict:
            for result in results:
                if isinstance(result, Static):
                    check_result(node, known, type_name(result.dtype), opset)

    # -- one op -----------------------------------------------------------------------------------

    def _apply(
        self, node: Node, definition: Definition, bound: Bound, dtypes: DTypes, scope: Scope
    ) -> Sequence[Value]:
        arguments = self._fetched(bound.arguments, Need.STATIC)
        if definition.bodies:
            return self._control(node, definition, arguments, bound.attributes, dtypes, scope)
        arrays = _arrays(arguments)
        call = OpCall.of(definition.function, arguments, bound.attributes, dtypes)
        if not any(isinstance(array, Device) for array in arrays):
            try:
                return self._fold(call, arrays)
            except TooLarge:
                pass  # Too large to keep on the host: the device makes it at each call instead.
        slots = self.tape.emit(node, call, arrays)
        if definition.is_view and isinstance(arrays[0], Device):
            self._note_view(slots[0], arrays[0])
        return slots

    def _fold(self, call: OpCall, arrays: Sequence[Static | Device]) -> list[Value]:
        """All is known: the op runs now, on NumPy. What it hands through stays what it is."""
        xp = self._folding
        known = [array.value for array in arrays if isinstance(array, Static)]
        xp.allow_operands([value.shape for value in known])
        with np.errstate(all="ignore"):
            results = call.unrounded(xp, known)
        folded: list[Value] = []
        for i, result in enumerate(results):
            if isinstance(result, (Static, Device, list)) or result is None:
                folded.append(result)
                continue
            same = next((a for a in arrays if isinstance(a, Static) and a.value is result), None)
            if same is None:
                fresh = call.rounded(xp, i, np.asarray(result))
                xp.keep(fresh)
                same = static(fresh)
            folded.append(same)
        return folded

    def _fetched(self, arguments: Sequence[Argument], need: Need) -> list[Argument]:
        """The arguments, those of which `need` is said known."""
        chosen = [i for i, a in enumerate(arguments) if a.parameter.need is need]
        known = self.tape.fetch([arguments[i].value for i in chosen])
        fetched = list(arguments)
        for i, value in zip(chosen, known, strict=True):
            fetched[i] = Argument(arguments[i].parameter, value)
        return fetched

    def _control(
        self,
        node: Node,
        definition: Definition,
        arguments: Sequence[Argument],
        attributes: Mapping[str, Any],
        dtypes: DTypes,
        scope: Scope,
    ) -> Sequence[Value]:
        """An op with subgraphs: on the device where they allow it, else one path is traced."""
        graphs = {name: attributes[name] for name in definition.bodies}
        others = {name: value for name, value in attributes.items() if name not in graphs}
        arrays = _arrays(arguments)
        if self.tape.backend.compiled and any(isinstance(array, Device) for array in arrays):
            try:
                blocks = {name: self._block(node, g, scope, name) for name, g in graphs.items()}
                if len({block.specs for block in blocks.values()}) == 1:
                    own = OpCall.of(definition.function, arguments, others, dtypes)
                    captures = tuple(
                        dict.fromkeys(r for block in blocks.values() for r in block.captures)
                    )
                    call = ControlCall(own, blocks, captures)
                    held = tuple(blocks.values())
                    return self.tape.emit(node, call, arrays, captures=captures, blocks=held)
            except NeedsHost:
                pass  # A branch cannot run on the device, so the host chooses the branch.
        known = self._fetched(arguments, Need.ARRAY)
        bodies = {name: partial(self._inlined, node, g, scope, name) for name, g in graphs.items()}
        chosen = OpCall.of(definition.function, known, {**others, **bodies}, ())
        return self._fold(chosen, _arrays(known))

    def _block(self, node: Node, graph: Graph, scope: Scope, branch: str) -> Any:
        with self.tape.block() as as_block:
            return as_block(self._inlined(node, graph, scope, branch))

    def _inlined(self, node: Node, graph: Graph, scope: Scope, branch: str) -> tuple[Value, ...]:
        inner = scope.inner(f"{node.name or node.op_type}/{branch}")
        for name, array in graph.initializers.items():
            inner.bind(name, static(array))
        return tuple(self._walk(graph, inner))

    # -- what became of each name -----------------------------------------------------------------

    def _note(self, name: str, value: Value, scope: Scope | None = None) -> None:
        """Remember what a name is bound to. Of several names the outermost is the value's own."""
        depth = scope.depth if scope else 0
        if isinstance(value, Static):
            self._names[name] = Named("static", Spec(value.shape, value.dtype), static=value.value)
        elif not isinstance(value, Device):
            self._names[name] = Named("host", None)
        else:
            first, outermost = self._first_names.setdefault(value.register, (name, depth))
            own = self._own_kind(value)
            if depth < outermost:
                self._first_names[value.register] = name, depth
                self._names[first] = replace(own, kind="alias", source=name)
            same = first == name or depth < outermost
            self._names[name] = own if same else replace(own, kind="alias", source=first)

    def _own_kind(self, value: Device) -> Named:
        if value.register in self._views:
            return Named("alias", value.spec, value.register, source=self._views[value.register])
        kind = "host" if isinstance(value, Hosted) else "device"
        return Named(kind, value.spec, value.register)

    def _note_view(self, value: Value, source: Device) -> None:
        name, _ = self._first_names.get(source.register, ("", 0))
        if isinstance(value, Device) and value.register != source.register and name:
            self._views[value.register] = name

    def _final_names(self) -> dict[str, Named]:
        """The names, now that it is known what was read, and what leaves its segment."""
        return {name: self._final(named) for name, named in self._names.items()}

    def _final(self, named: Named) -> Named:
        register = named.register
        if register in self.tape.inputs_read:
            # The program holds for this value alone, so it is as good as a constant.
            return replace(named, kind="static", static=self.tape.inputs_read[register])
        copied = not self.tape.backend.reshapes_are_views and register in self.tape.left
        if copied and register is not None and named.source == self._views.get(register, ""):
            return replace(named, kind="device", source=None)
        return named

    def _constants(self) -> dict[str, Any]:
        """The static values that device steps use, by the first name each was bound to."""
        first: dict[int, str] = {}
        for name, named in self._names.items():
            if named.static is not None:
                first.setdefault(id(named.static), name)
        used = self.tape.used_constants()
        return {first.get(id(v), f"constant {i}"): a for i, (v, a) in enumerate(used)}


def _arrays(arguments: Sequence[Argument]) -> list[Static | Device]:
    return [
        a.value
        for a in arguments
        if a.parameter.need is Need.ARRAY and isinstance(a.value, (Static, Device))
    ]
