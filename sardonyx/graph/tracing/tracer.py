"""Traces a graph: one walk finds out which values are static, device, alias or host values.

Nodes that depend only on constants and shapes run at once, on NumPy; all others become steps on the
tape. If an op needs a value that the device has not computed yet, the tape is cut: the segment so
far runs, the value is read, and the walk goes on.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar
from zlib import crc32

import numpy as np

from sardonyx.backends.conditions import BadData
from sardonyx.backends.numpy import FoldingBackend, TooLarge
from sardonyx.backends.size_limits import Budget, largest_value, spending
from sardonyx.backends.standard import Array
from sardonyx.deviations import to_the_letter
from sardonyx.errors import LimitExceeded
from sardonyx.graph.errors import node_errors
from sardonyx.graph.ir import Function, Graph, Node, Source, names_read, outputs_read
from sardonyx.graph.loading.custom_ops import definition_of
from sardonyx.graph.standard.operators import Signature
from sardonyx.graph.standard.schema import bind_types, check_result
from sardonyx.graph.standard.signatures import signature_of
from sardonyx.graph.standard.type_flow import Flow
from sardonyx.graph.standard.types import dtype_of, dtype_of_type, type_name
from sardonyx.graph.tracing.binding import Argument, Bound, bind
from sardonyx.graph.tracing.function_bodies import standard_function
from sardonyx.graph.tracing.known_calls import DTypes, KnownCall, KnownCalls
from sardonyx.graph.tracing.names import Named, Names
from sardonyx.graph.tracing.node_walk import NodeWalk
from sardonyx.graph.tracing.op_call import Drawing, OpCall
from sardonyx.graph.tracing.registers import Registers
from sardonyx.graph.tracing.scope import Scope
from sardonyx.graph.tracing.steps import Block
from sardonyx.graph.tracing.subgraphs import Subgraph
from sardonyx.graph.tracing.tape import Tape
from sardonyx.graph.tracing.tree_folding import with_folded_trees
from sardonyx.graph.values.kinds import Device, Hosted, Static, Value, as_value, leaves, static
from sardonyx.graph.values.params import is_static
from sardonyx.ops.definition import Definition, Map, MapRows, Need, NeedsHost, Parameter

# Maximum number of elements of a constant that is folded into the leaves of trees.
LARGEST_FOLDED = 2**12


@dataclass(frozen=True, eq=False, slots=True)
class Traced:
    """The result of one walk over the graph; the recorder has the steps."""

    names: Mapping[str, Named]
    outputs: Sequence[Value]
    registers: Registers
    source: Source


class Tracer:
    """Walks one model's graph for one call, and writes steps on the tape."""

    # Whether a call is the same in all traces, if the types of a node's inputs are.
    shares_calls: ClassVar[bool] = True

    def __init__(self, source: Source, tape: Tape, *, strict: bool) -> None:
        self.source = source
        self.tape = tape
        self.strict = strict
        self._folding = FoldingBackend()
        self._names = Names()
        # Notes of ops on values, by register.
        self.notes: dict[int, Any] = {}
        # The numbers of the current iterations, one for each loop around the walk.
        self._iterations: list[Static | Device] = []
        # Number of nodes of subgraphs that were walked.
        self._walked = 0
        # What nodes called in earlier traces; None in the first one.
        self._known: KnownCalls | None = None
        # The nodes whose subgraphs were checked, with the types of the values that these read.
        self._followed: set[tuple[Any, ...]] = set()

    def trace(self, inputs: Sequence[Any], key: Any) -> Traced:
        """Trace the graph for inputs like these: arrays, maps or lists of them, or None.

        The program holds for the values of inputs that are `Static`.
        """
        graph = self._graph()
        if self.shares_calls and self.tape.calls.begin(len(graph.nodes)):
            self._known = self.tape.calls
        scope = Scope(self.source.opsets, missing=self._initializer)
        for info, value in zip(graph.required_inputs, inputs, strict=True):
            slot = self._input(value)
            scope.bind(info.name, slot)
            self._names.note(info.name, slot)
        self._key = self.tape.key(key)
        self._outermost = scope
        with spending(self._budget()), to_the_letter(self.source.to_the_letter):
            outputs = self._walk(graph, scope)
            self.tape.finish(outputs)
        return Traced(self._names.after(self.tape), outputs, self.tape.registers, self.source)

    def _graph(self) -> Graph:
        """Return the graph to walk, with trees folded if weights are the same at each call."""
        recorder = self.tape.recorder
        if not (self.source.rewrites and recorder.knows_weights):
            return self.source.graph
        return with_folded_trees(self.source, _Reader(self.source, self.tape, strict=self.strict))

    def _budget(self) -> Budget:
        """Return how much memory the values of the trace may take."""
        least = self.source.limits.value_bytes or self.tape.backend.largest_value or largest_value()
        specs = self.tape.registers.input_specs
        inputs = sum(math.prod(shape) * dtype.itemsize for shape, dtype in specs)
        weights = sum(array.nbytes for array in self.source.graph.initializers.values())
        return Budget.of(least, inputs, weights)

    def _input(self, value: Any) -> Value:
        if value is None or isinstance(value, Static):
            return value
        if isinstance(value, list):
            return [self._input(one) for one in value]
        if isinstance(value, Map):
            return replace(value, values=self._input(value.values))
        return self.tape.input(value)

    def renew(self, old: Value, new: Value) -> None:
        """Replace the model's inputs that are `old` by `new` for the following nodes."""
        if self.tape.is_in_block:
            raise NeedsHost
        for info in self.source.graph.required_inputs:
            if self._outermost.holds(info.name, old):
                self._outermost.bind(info.name, new)

    def _initializer(self, name: str) -> Value:
        host = self.tape.weights.host(name)
        slot = static(host) if is_static(host) else self.tape.weight(name)
        self._names.note(name, slot)
        return slot

    # -- graphs and nodes -------------------------------------------------------------------------

    def _walk(self, graph: Graph | Function, scope: Scope) -> list[Value]:
        scope.graph = graph
        outer_path, self.tape.path = self.tape.path, scope.path
        for node, releases in zip(graph.nodes, graph.last_reads, strict=True):
            for name, value in zip(node.outputs, self.results_of(node, scope), strict=False):
                if name:
                    scope.bind(name, value)
                    self._names.note(scope.path + name, value, scope.depth)
            value = None  # Otherwise this variable keeps a value that no node reads any more.
            scope.release(releases)
        self.tape.path = outer_path
        names = graph.outputs if isinstance(graph, Function) else [o.name for o in graph.outputs]
        return [scope[name] if name else None for name in names]

    def results_of(self, node: Node, scope: Scope) -> Sequence[Value]:
        """Trace one node, and return the values of its outputs."""
        inputs = [scope[name] if name else None for name in node.inputs]
        opset = scope.opsets.get(node.domain, 0)
        try:
            known = None if self._known is None else self._known.of(node, inputs)
            if known is None:
                return self._traced(node, inputs, opset, scope)
            return self._called(known, node, inputs, opset)
        except NeedsHost as error:
            if error.args and not self.tape.is_in_block:
                raise error.args[0] from None  # The host cannot do the work either.
            raise
        except Exception as error:
            if isinstance(error, BadData) and self.tape.is_in_block:
                # A call need not get this far, so the host decides.
                fault = node_errors.fault_at_node(error, node, opset, inputs, self.tape.backend)
                raise NeedsHost(fault) from error
            node_errors.raise_at_node(error, node, opset, inputs, self.tape.backend)

    def _traced(
        self, node: Node, inputs: Sequence[Value], opset: int, scope: Scope
    ) -> Sequence[Value]:
        """Trace a node whose call is not known."""
        attributes = scope.resolve(node.attributes)
        called = self.source.function_of(node)
        if called is not None:
            return self._call(called, node, inputs, attributes, scope)
        self._check_subgraphs(node, scope)
        schema = signature_of(node.op_type, node.domain, opset) if self.strict else None
        dtypes = self._dtypes_of(node, schema, opset, inputs)
        op = self.source.op_of(node)
        if op is None:
            body = standard_function(node, scope.opsets, attributes, inputs)
            return self._call(body, node, inputs, attributes, scope)
        definition = definition_of(op, opset)
        outputs = len(node.outputs)
        if definition.skips_unread and scope.graph is not None:
            outputs = outputs_read(node, scope.graph.unread)
            dtypes = dtypes[:outputs]
        bound = bind(definition, inputs, attributes, outputs, dtype_of)
        # Nodes of functions have attributes of the node that calls these.
        if self._known is not None and scope.is_of_the_model:
            known = self._known.noted(node, inputs, bound, definition, schema, dtypes)
            if known is not None:
                return self._called(known, node, inputs, opset)
        results = self._apply(node, definition, bound, dtypes, scope)
        return _checked(node, schema, opset, results)

    def _called(
        self, known: KnownCall, node: Node, inputs: Sequence[Value], opset: int
    ) -> Sequence[Value]:
        """Trace a node whose call is known."""
        arrays = [value for value in inputs if isinstance(value, (Static, Device))]
        results = self._emitted(node, known.definition, known.call, arrays)
        return _checked(node, known.schema, opset, results)

    def _dtypes_of(
        self, node: Node, schema: Signature | None, opset: int, inputs: Sequence[Value]
    ) -> DTypes:
        return _result_dtypes(node, schema, opset, inputs)

    def _call(
        self,
        function: Function,
        node: Node,
        inputs: Sequence[Value],
        attributes: Mapping[str, Any],
        scope: Scope,
    ) -> Sequence[Value]:
        """Inline a function, in a scope where its inputs have its own names."""
        path = f"{scope.path}{node.name or node.op_type}/"
        inner = Scope(
            function.opsets,
            path=path,
            attributes={**function.defaults, **attributes},
            depth=scope.depth + 1,
            place=f"{scope.place}/{node.first_output}",
        )
        for i, name in enumerate(function.inputs):
            inner.bind(name, inputs[i] if i < len(inputs) else None)
        return self._walk(function, inner)

    def _check_subgraphs(self, node: Node, scope: Scope) -> None:
        """Check the types in all subgraphs of a node, as it may run only one of them, or none."""
        if not (self.strict and node.subgraphs):
            return
        types = {name: self._type_of(name, scope) for name in names_read(node)}
        key = node, *types.values()
        if key not in self._followed:
            self._followed.add(key)
            Flow(self.source, scope.opsets, strict=True).results(node, ChainMap(types))

    def _type_of(self, name: str, scope: Scope) -> str | None:
        value: Any = scope.bound(name)
        if value is None and scope.is_of_the_model:
            value = self.source.graph.initializers.get(name)
        return None if value is None or not hasattr(value, "dtype") else type_name(value.dtype)

    # -- one op -----------------------------------------------------------------------------------

    def _apply(
        self, node: Node, definition: Definition, bound: Bound, dtypes: DTypes, scope: Scope
    ) -> Sequence[Value]:
        arguments = self._fetched(bound.arguments)
        walk = NodeWalk(self, node, scope)
        attributes = dict(bound.attributes)
        bodies = [name for name, value in attributes.items() if isinstance(value, Graph)]
        for name in bodies:
            attributes[name] = self.subgraph(node, attributes[name], scope, name)
        if definition.walks:
            values = [argument.value for argument in arguments]
            return [as_value(v) for v in definition.function(walk, *values, **attributes)]
        if definition.draws:
            # The op gets a key of its own, from the call's key, its place and its iterations.
            number = crc32(f"{scope.place}/{node.first_output}".encode())
            drawing = Drawing(definition.function, number, len(self._iterations))
            definition = replace(definition, function=drawing)
            arguments += [Argument(_KEY, part) for part in (self._key, *self._iterations)]
        arrays = _arrays(arguments)
        if definition.beginning is not None and self._begins(arrays):
            ahead = replace(definition, function=definition.beginning, is_unsized=False)
            call = OpCall.of(ahead, arguments, attributes, (None,))
            arguments.append(Argument(_BEGUN, *self.emit(node, call, arrays)))
            arrays = _arrays(arguments)
        call = OpCall.of(definition, arguments, attributes, dtypes)
        if bodies:
            return walk.step(call, arrays)
        return self._emitted(node, definition, call, arrays)

    def _begins(self, arrays: Sequence[Static | Device]) -> bool:
        """Whether the device does ahead what a step on the host would take long for.

        A program for that alone would take longer. Nor may sizes change: calls can be padded only
        if that is proved for all that the device does.
        """
        tape = self.tape
        is_possible = not (tape.is_in_block or tape.recorder.is_inline)
        is_worth_it = tape.has_device_steps and self.source.graph.has_fixed_sizes
        has_data = any(isinstance(array, Device) for array in arrays)
        return is_possible and is_worth_it and has_data and tape.backend.begins_host_steps

    def _emitted(
        self, node: Node, definition: Definition, call: OpCall, arrays: Sequence[Static | Device]
    ) -> Sequence[Value]:
        slots = self.emit(node, call, arrays)
        if definition.is_view and isinstance(arrays[0], Device):
            self._names.note_view(slots[0], arrays[0])
        return [slots] if definition.makes_sequence else slots

    def emit(self, node: Node, call: OpCall, arrays: Sequence[Static | Device]) -> list[Value]:
        """Return the results of a call: static ones if all its arrays are, else those of a step."""
        if not any(isinstance(array, Device) for array in arrays):
            # If the host cannot do it, the device computes it at each call.
            with suppress(TooLarge, NotImplementedError):
                return self.fold(call, arrays)
        return self.tape.emit(node, call, arrays)

    def fold(self, call: OpCall, arrays: Sequence[Static | Device]) -> list[Value]:
        """Run an op on static values now, on NumPy. An argument that it returns stays as it is."""
        xp = self._folding
        operands = [array.value for array in arrays if isinstance(array, Static)]
        xp.allow_operands([value.shape for value in operands])
        with np.errstate(all="ignore"):
            results = call.unrounded(xp, operands)
        folded: list[Value] = []
        for i, result in enumerate(results):
            if isinstance(result, (Static, Device, Map, MapRows, list)) or result is None:
                folded.append(result)
                continue
            same = next((a for a in arrays if isinstance(a, Static) and a.value is result), None)
            if same is None:
                fresh = call.rounded(xp, i, np.asarray(result))
                xp.keep(fresh)
                same = static(fresh)
            folded.append(same)
        return folded

    def _fetched(self, arguments: Sequence[Argument]) -> list[Argument]:
        """Return the arguments, with values in place of arrays where the op needs to know them."""
        needed = [a.value for a in arguments if a.parameter.need is Need.STATIC]
        if not needed:
            return list(arguments)
        values = iter(self.tape.fetch(needed))
        return [
            Argument(a.parameter, next(values)) if a.parameter.need is Need.STATIC else a
            for a in arguments
        ]

    # -- subgraphs --------------------------------------------------------------------------------

    def subgraph(self, node: Node, graph: Graph, scope: Scope, name: str) -> Subgraph:
        """Return a graph that is an attribute of the node as a function."""
        path = f"{node.name or node.op_type}/{name}"

        def walk(arguments: Sequence[Value], iteration: Value) -> tuple[Value, ...]:
            inner = scope.inner(path, f"{scope.place}/{node.first_output}/{name}")
            return self._inlined(graph, inner, arguments, iteration)

        recorder = partial(self._recorded, walk)
        return Subgraph(graph, self.tape.backend, walk, recorder, self.tape.example)

    def _recorded(self, walk: Any, arguments: Sequence[Any], iteration: Any) -> Block:
        compiled = self.tape.backend.compiled
        with self.tape.block() as as_block:
            slots = [
                static(a) if compiled and isinstance(a, np.ndarray) else self.tape.parameter(a)
                for a in (*arguments, *([] if iteration is None else [iteration]))
            ]
            results = walk(slots[: len(arguments)], None if iteration is None else slots[-1])
            return as_block(results, [slot for slot in slots if isinstance(slot, Device)])

    def _inlined(
        self, graph: Graph, inner: Scope, arguments: Sequence[Value], iteration: Value
    ) -> tuple[Value, ...]:
        for name, array in graph.initializers.items():
            inner.bind(name, static(array))
        names = [info.name for info in graph.inputs if info.name not in graph.initializers]
        if len(arguments) != len(names):
            raise ValueError(
                f"its subgraph '{graph.name}' takes {len(names)} inputs, and gets {len(arguments)}"
            )
        self._walked += 1 + len(graph.nodes)
        most = self.source.limits.traced_nodes
        if self._walked > most:
            raise LimitExceeded(
                f"the subgraphs that are traced iteration by iteration have {self._walked:,} nodes "
                f"so far, and at most {most:,} are allowed: run fewer iterations, or pass "
                "limits=sardonyx.Limits(traced_nodes=...) to sardonyx.load"
            )
        for name, value in zip(names, arguments, strict=True):
            inner.bind(name, value)
        outer_iterations = self._iterations
        self._iterations = [*outer_iterations, *leaves(iteration)]
        try:
            return tuple(self._walk(graph, inner))
        finally:
            self._iterations = outer_iterations


class _Reader:
    """Reads the constants of a tracer's model, and runs nodes on NumPy."""

    def __init__(self, source: Source, tape: Tape, *, strict: bool) -> None:
        self._source = source
        self._tape = tape
        self._strict = strict

    @cached_property
    def _tracer(self) -> Tracer:
        """Another one, which few models need: with values and names of its own."""
        return Tracer(self._source, self._tape, strict=self._strict)

    def constant(self, name: str) -> np.ndarray[Any, Any] | None:
        source, weights = self._source, self._tape.weights
        if name not in source.graph.initializers:
            return None
        value = weights.host(name)
        if value.size > LARGEST_FOLDED:
            return None
        if not is_static(value):
            weights.note_read(name)
        return value

    def evaluate(
        self, node: Node, values: Mapping[str, np.ndarray[Any, Any]]
    ) -> np.ndarray[Any, Any] | None:
        scope = Scope(self._source.opsets)
        for name, value in values.items():
            scope.bind(name, static(value))
        try:
            (result,) = self._tracer.results_of(node, scope)
        except Exception:  # The walk comes to the same node, and raises the error there.
            return None
        return result.value if isinstance(result, Static) else None


def _checked(
    node: Node, schema: Signature | None, opset: int, results: Sequence[Value]
) -> Sequence[Value]:
    """Return the results; refuse those whose types the operator cannot have."""
    for result in results:
        if schema is not None and isinstance(result, (Static, Hosted)):
            check_result(node, schema, type_name(result.dtype), opset)
    return results


def _result_dtypes(
    node: Node, schema: Signature | None, opset: int, inputs: Sequence[Value]
) -> DTypes:
    """Check the inputs' types against the schema; return the dtypes of the results, if it says."""
    if schema is None:
        return (None,) * len(node.outputs)
    types = [type_name(v.dtype) if isinstance(v, (Static, Device)) else None for v in inputs]
    return tuple(dtype_of_type(t) for t in bind_types(node, schema, types, opset))


_KEY = Parameter("key", Need.ARRAY, Array, required=True)
_BEGUN = Parameter("begun", Need.ARRAY, Array, required=True)


def _arrays(arguments: Sequence[Argument]) -> list[Static | Device]:
    return [array for a in arguments if a.parameter.need is Need.ARRAY for array in leaves(a.value)]
