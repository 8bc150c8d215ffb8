"""`GraphRecorder`: takes note of calls on symbolic arrays, and knows what they return."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TypeProto, numpy_helper

from sardonyx.errors import InvalidInput
from sardonyx.graph.loading.single_op import attribute_value
from sardonyx.graph.standard.operators import Signature
from sardonyx.graph.standard.signatures import signature_of
from sardonyx.graph.standard.types import is_string, type_name
from sardonyx.ops import OPS
from sardonyx.ops.definition import Op
from sardonyx.recording import inlining
from sardonyx.recording.active import BoundCall, is_body
from sardonyx.recording.bodies import body_inputs, result_types
from sardonyx.recording.graph import Call, Frame
from sardonyx.recording.inference import infer
from sardonyx.recording.literals import (
    host_copy,
    is_array,
    is_sequence,
    numpy_dtype,
    slot_at,
    with_arrays,
)
from sardonyx.recording.operators import Operator
from sardonyx.recording.symbols import SymbolicArray, holds_symbols
from sardonyx.recording.types import tensor_type, type_of_array

_PROTOS = (onnx.TensorProto, onnx.SparseTensorProto, onnx.TypeProto)

# The opset of graphs whose functions name none: that of Python's operators on symbolic arrays.
WIDELY_READ = 21


class GraphRecorder:
    """Records one graph with its subgraphs.

    Arrays that calls read become constants of the graph; with `arrays_are_inputs` they become its
    inputs, as tracers of JAX can be.
    """

    def __init__(
        self,
        opsets: Mapping[str, int],
        names: Mapping[int, str] | None = None,
        *,
        arrays_are_inputs: bool = False,
    ) -> None:
        self.opsets = dict(opsets)
        self.main = Frame()
        self.frame = self.main
        self.custom: dict[tuple[str, str], Op[Any]] = {}
        self.functions: dict[tuple[str, str, str], onnx.FunctionProto] = {}
        # Constants by the identity of the array, with the array, so that it stays alive.
        self.constants: dict[Any, tuple[Any, SymbolicArray]] = {}
        self._names = names or {}
        self._arrays_are_inputs = arrays_are_inputs

    # -- values -----------------------------------------------------------------------------------

    def input(self, name: str, kind: TypeProto) -> SymbolicArray:
        """Add an input to the graph that is recorded now."""
        symbol = SymbolicArray(self, self.frame, kind, name)
        self.frame.inputs.append(symbol)
        return symbol

    def symbol(self, value: Any) -> SymbolicArray:
        """Return the symbolic array for any value that a call can read."""
        if isinstance(value, SymbolicArray):
            return self._own(value)
        if isinstance(value, (list, tuple)) and holds_symbols(value):
            return self._stack(value)
        if not is_array(value):
            return self._literal(np.asarray(value))
        if id(value) not in self.constants:
            self.constants[id(value)] = value, self._constant(value)
        return self.constants[id(value)][1]

    def _own(self, value: SymbolicArray) -> SymbolicArray:
        if value._recorder is not self:
            raise InvalidInput(
                f"{value} belongs to another recording: a function that is recorded takes what it "
                "needs as inputs, and symbolic arrays are of no use after it."
            )
        if not self.frame.sees(value._frame):
            raise InvalidInput(
                f"{value} is a value of a subgraph, which the graph around it cannot read: return "
                "it from the subgraph's function."
            )
        return value

    def _constant(self, value: Any) -> SymbolicArray:
        hint = self._names.get(id(value), "constant")
        if self._arrays_are_inputs:
            dtype = numpy_dtype(value)
            kind = TypeProto() if dtype is None else tensor_type(dtype, tuple(value.shape))
            symbol = SymbolicArray(self, self.main, kind, f"array{len(self.main.inputs)}")
            self.main.inputs.append(symbol)
            return symbol
        try:
            array = host_copy(value)
        except Exception as error:
            raise InvalidInput(
                f"A {type(value).__name__} of shape {value.shape} cannot become a weight of the "
                "model: record outside of jax.jit and other transformations."
            ) from error
        return self._constant_of(array.astype(object) if is_string(array.dtype) else array, hint)

    def _constant_of(self, array: np.ndarray[Any, Any], hint: str) -> SymbolicArray:
        array.flags.writeable = False
        symbol = SymbolicArray(self, self.main, type_of_array(array), hint)
        symbol._array = array
        return symbol

    def _literal(self, array: np.ndarray[Any, Any]) -> SymbolicArray:
        """Return the constant of a Python number or list; equal ones are one constant."""
        array = array.astype(object) if is_string(array.dtype) else array
        content = tuple(array.ravel().tolist()) if array.dtype == object else array.tobytes()
        key = type_name(array.dtype), array.shape, content
        if key not in self.constants:
            self.constants[key] = array, self._constant_of(np.array(array), "constant")
        return self.constants[key][1]

    def _stack(self, values: Sequence[Any]) -> SymbolicArray:
        """Return a vector of numbers, some of which are symbolic."""
        first = next(each for each in values if isinstance(each, SymbolicArray))
        parts = [
            self.apply("Unsqueeze", (each, [0]), {})
            if isinstance(each, SymbolicArray)
            else self._literal(np.asarray([each], first.dtype))
            for each in values
        ]
        return self.apply("Concat", parts, {"axis": 0}) if len(parts) > 1 else parts[0]

    # -- calls ------------------------------------------------------------------------------------

    def use_opset(self, domain: str, opset: int, operator: str = "") -> None:
        """Note the opset of a domain; a graph can have one only."""
        present = self.opsets.setdefault(domain, opset)
        if present != opset:
            what = f", in which {operator} is another version" if operator else ""
            raise InvalidInput(
                f"The function uses opset {opset} of {domain or 'ai.onnx'} after opset "
                f"{present}{what}, but a graph has one: use the same everywhere, or convert the "
                "model with onnx.version_converter.convert_version."
            )

    def opset(self, domain: str) -> int:
        """Return the opset of a domain: the one in use, or one that most runtimes read."""
        return self.opsets.get(domain, 1 if domain else WIDELY_READ)

    def apply(self, op_type: str, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        """Record a call of an operator of the standard that has one result."""
        opset = self.opset("")
        schema = signature_of(op_type, "", opset)
        assert schema is not None
        call = BoundCall(
            Operator(op_type, "", opset, schema), list(inputs), dict(attributes), ("C",)
        )
        return self._record(op_type, "", schema, call)[0]

    def call(self, call: BoundCall) -> tuple[Any, ...]:
        """Record a call, and return its results as symbolic arrays."""
        operator = call.operator
        if not operator.is_same_in(self.opsets.get(operator.domain, operator.opset)):
            self.use_opset(operator.domain, operator.opset, operator.name)
        self.opsets.setdefault(operator.domain, operator.opset)
        found = self._record(operator.name, operator.domain, operator.schema, call)
        return tuple(each for each in found if each is not None)

    def call_own(self, op: Op[Any], inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        """Record a call of a caller's own operator."""
        self.use_opset(op.domain, self.opset(op.domain))
        self.custom[op.domain, op.name] = op
        count = op.at(self.opset(op.domain)).outputs
        names = [f"result{i}" for i in range(count)]
        bare = Signature((), (), {}, frozenset(), (0, 0), (count, count), deprecated=False)
        operator = Operator(op.name, op.domain, self.opset(op.domain), bare)
        call = BoundCall(operator, list(inputs), dict(attributes), tuple(names))
        found = self._record(op.name, op.domain, None, call)
        return found[0] if count == 1 else found

    def _record(
        self, op_type: str, domain: str, schema: Signature | None, bound: BoundCall
    ) -> tuple[Any, ...]:
        results, attributes = bound.results, bound.attributes
        symbols = self._inputs(schema, bound.inputs)
        protos = [attribute_proto(n, v, schema) for n, v in attributes.items() if not is_body(v)]
        call = Call(op_type, domain, symbols, [], protos)
        if bound.has_bodies:
            takes = body_inputs(op_type, symbols, attributes)
            functions = {n: f for n, f in sorted(attributes.items()) if is_body(f)}
            call.bodies = {n: self._body(n, f, takes) for n, f in functions.items()}
            types = result_types(op_type, symbols, attributes, call.bodies)
        else:
            assert results is not None
            types = self.types_of(call, len(results), schema)
        if results is not None and len(results) != len(types):
            raise InvalidInput(f"{op_type} has {len(types)} results here, not {len(results)}.")
        names = results or [op_type] * len(types)
        # A result that the caller leaves out has no symbol.
        call.results = [
            SymbolicArray(self, self.frame, kind, op_type) if name else None
            for kind, name in zip(types, names, strict=True)
        ]
        self.frame.calls.append(call)
        return tuple(call.results)

    def _inputs(self, schema: Signature | None, inputs: Sequence[Any]) -> list[Any]:
        if schema is None:
            return [None if each is None else self.symbol(each) for each in inputs]
        joined = [self._joined(schema, i, each) for i, each in enumerate(inputs)]
        arrays = with_arrays(schema, joined)
        return [
            None if new is None else self.symbol(new) if new is old else self._literal(new)
            for old, new in zip(joined, arrays, strict=True)
        ]

    def _joined(self, schema: Signature, index: int, value: Any) -> Any:
        """Return a list that holds symbolic arrays as one: a sequence, or a vector."""
        if isinstance(value, (list, tuple)) and (value or not schema.inputs):
            kinds = slot_at(schema, index).allowed or ()
            if is_sequence(slot_at(schema, index), value) and any(
                k.startswith("seq") for k in kinds
            ):
                return self.apply("SequenceConstruct", value, {})
            if holds_symbols(value):
                return self._stack(value)
        return value

    def types_of(self, call: Call, count: int, schema: Signature | None) -> list[TypeProto]:
        """Return the types of a call's results."""
        node = onnx.NodeProto(op_type=call.op_type, domain=call.domain)
        node.input.extend("" if s is None else f"i{i}" for i, s in enumerate(call.inputs))
        node.output.extend(f"{call.op_type}_{i}" for i in range(count))
        node.attribute.extend(call.attributes)
        opsets = self.opsets | {call.domain: self.opset(call.domain), "": self.opset("")}
        return infer(node, call.inputs, schema, opsets)

    def _body(self, name: str, function: Callable[..., Any], takes: Sequence[TypeProto]) -> Frame:
        """Record a subgraph, by a call of the function that computes it."""
        with self._inner() as frame:
            inputs = [self.input(f"{name}_in", kind) for kind in takes]
            frame.outputs = [self.symbol(each) for each in as_list(function(*inputs))]
        return frame

    @contextmanager
    def _inner(self) -> Iterator[Frame]:
        frame = self.frame = Frame(self.frame)
        try:
            yield frame
        finally:
            assert frame.outer is not None
            self.frame = frame.outer

    def inline(self, source: Any, weights: Any, arguments: Sequence[Any]) -> list[Any]:
        """Record the graph of a model on these arguments, and return its outputs."""
        return inlining.inline(self, source, weights, [self.symbol(each) for each in arguments])

    def suggestion(self, name: str) -> str:
        """Return which operator has the meaning of one of NumPy's functions, for messages."""
        names = {n.lower(): n for domain, n in OPS if not domain}
        plain = name.replace("_", "").lower()
        close = get_close_matches(plain, list(names), n=1, cutoff=0.5)
        return f"O.{names[close[0]]} of an opset" if close else "an operator of sardonyx.opset"


def as_list(value: Any) -> list[Any]:
    """Return what a function returned as a list of arrays."""
    return list(value) if isinstance(value, (tuple, list)) else [value]


def attribute_proto(name: str, value: Any, schema: Signature | None) -> AttributeProto:
    """Return the attribute of a node for a Python value."""
    if isinstance(value, _PROTOS):
        return onnx.helper.make_attribute(name, value)
    kind: Any = schema.attributes.get(name) if schema is not None else None
    plain = attribute_value(name, value, schema)
    if isinstance(plain, np.ndarray):
        plain = numpy_helper.from_array(plain)
    number = None if kind is None else getattr(AttributeProto, kind.name)
    try:
        return onnx.helper.make_attribute(name, plain, attr_type=number)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"The attribute '{name}' cannot be {value!r:.100}: {error}.") from None
