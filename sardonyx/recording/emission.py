"""A recording as a ModelProto: names for all values, and the nodes that results depend on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, NodeProto, ValueInfoProto, helper, numpy_helper

from sardonyx.graph.loading.external import Bytes
from sardonyx.graph.loading.inline_weights import SMALLEST, InlineWeights
from sardonyx.graph.standard.types import ELEMENT_TYPES, number_of
from sardonyx.recording.graph import Call, Frame, needed_calls
from sardonyx.recording.inlining import graphs_in, renamed
from sardonyx.recording.symbols import SymbolicArray
from sardonyx.recording.types import is_known
from sardonyx.version import __version__


class GivenWeights(InlineWeights):
    """Arrays in memory, by the marks in their place in a ModelProto."""

    def __init__(self) -> None:
        super().__init__()
        self._arrays: list[np.ndarray[Any, Any]] = []

    def mark_array(self, array: np.ndarray[Any, Any]) -> bytes:
        """Return the mark that takes the place of the array's bytes."""
        self._arrays.append(np.ascontiguousarray(array))
        return self.mark(len(self._arrays) - 1, len(self._arrays))

    def data(self, raw: bytes) -> Bytes | None:
        """Return the bytes whose mark `raw` is; None if it is none."""
        place = self.place_of(raw)
        return None if place is None else self._arrays[place.start].reshape(-1).view(np.uint8)


class Names:
    """Names that no other value of the model has."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._counts: dict[str, int] = {}

    def exact(self, name: str) -> str:
        """Take a name as it is."""
        self._taken.add(name)
        return name

    def fresh(self, hint: str) -> str:
        """Return the hint itself if it is free, or else with the next number."""
        name = hint
        while name in self._taken:
            self._counts[hint] = self._counts.get(hint, 0) + 1
            name = f"{hint}_{self._counts[hint]}"
        self._taken.add(name)
        return name


class Emission:
    """Writes one recording as a ModelProto, with its large weights beside it."""

    def __init__(self, recorder: Any, outputs: Mapping[str, SymbolicArray]) -> None:
        self._recorder = recorder
        self._outputs = outputs
        self._names = Names()
        self._node_names = Names()
        self._given: dict[int, str] = {}
        # Symbolic arrays stay alive, so that identities stay theirs.
        self._symbols: list[SymbolicArray] = []
        self._constants: dict[int, SymbolicArray] = {}
        self.weights = GivenWeights()

    def model(self, name: str) -> onnx.ModelProto:
        """Return the model; `weights` has the data of its large initializers."""
        main: Frame = self._recorder.main
        for symbol in main.inputs:
            self._assign(symbol, self._names.exact(symbol._hint))
        copies = self._name_outputs(main)
        main.outputs = list(self._outputs.values())
        nodes = [self._node(call) for call in needed_calls(main)]
        nodes += [self._identity(symbol, output) for output, symbol in copies]
        graph = GraphProto(name=name, node=nodes)
        graph.input.extend(self._declared(s, self._given[id(s)]) for s in main.inputs)
        graph.output.extend(self._declared(s, output) for output, s in self._outputs.items())
        graph.initializer.extend(map(self._initializer, self._constants.values()))
        opsets = dict(self._recorder.opsets)
        if not opsets or any(not node.domain for node in _every_node(graph)):
            opsets.setdefault("", self._recorder.opset(""))
        imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
        functions = list(self._recorder.functions.values())
        model = helper.make_model(
            graph,
            opset_imports=imports,
            functions=functions,
            producer_name="sardonyx",
            producer_version=__version__,
        )
        model.ir_version = self._ir_version(opsets, has_functions=bool(functions))
        return model

    def _ir_version(self, opsets: Mapping[str, int], *, has_functions: bool) -> int:
        """Return the oldest IR version that has the opsets, so that most runtimes read it."""
        imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
        least = int(helper.find_min_ir_version_for(imports, ignore_unknown=True))
        return max(least, 8 if has_functions else 4)

    def _name_outputs(self, main: Frame) -> list[tuple[str, SymbolicArray]]:
        """Give results the outputs' names; return the outputs that need a copy."""
        computed = {id(result) for call in main.calls for result in call.results}
        copies = []
        for output, symbol in self._outputs.items():
            self._names.exact(output)
            if id(symbol) in computed and id(symbol) not in self._given:
                self._assign(symbol, output)
            else:
                copies.append((output, symbol))
        return copies

    def _assign(self, symbol: SymbolicArray, name: str) -> str:
        self._symbols.append(symbol)
        self._given[id(symbol)] = name
        return name

    def _name(self, symbol: SymbolicArray | None) -> str:
        if symbol is None:
            return ""
        if id(symbol) not in self._given:
            self._assign(symbol, self._names.fresh(symbol._hint))
            if symbol._array is not None:
                self._constants[id(symbol)] = symbol
        return self._given[id(symbol)]

    def _node(self, call: Call) -> NodeProto:
        node = NodeProto(op_type=call.op_type, domain=call.domain, doc_string=call.doc)
        node.name = self._node_names.fresh(call.name or call.op_type)
        node.overload = call.overload
        node.input.extend(map(self._name, call.inputs))
        node.attribute.extend(call.attributes)
        around = {name: self._name(symbol) for name, symbol in call.captured.items()}
        for graph in graphs_in(node.attribute):
            renamed(graph, around, self._names.fresh)
        for name, body in call.bodies.items():
            node.attribute.append(helper.make_attribute(name, self._body(name, body)))
        node.output.extend(map(self._name, call.results))
        return node

    def _body(self, name: str, frame: Frame) -> GraphProto:
        inputs = [self._declared(symbol, self._name(symbol)) for symbol in frame.inputs]
        nodes = [self._node(call) for call in needed_calls(frame)]
        computed = {id(result) for call in frame.calls for result in call.results}
        outputs: list[ValueInfoProto] = []
        for symbol in frame.outputs:
            output = self._name(symbol)
            if id(symbol) not in computed or any(o.name == output for o in outputs):
                output = self._names.fresh(f"{symbol._hint}_out")
                nodes.append(self._identity(symbol, output))
            outputs.append(self._declared(symbol, output))
        return GraphProto(name=name, node=nodes, input=inputs, output=outputs)

    def _identity(self, symbol: SymbolicArray, output: str) -> NodeProto:
        name = self._node_names.fresh("Identity")
        return helper.make_node("Identity", [self._name(symbol)], [output], name=name)

    def _declared(self, symbol: SymbolicArray, name: str) -> ValueInfoProto:
        info = ValueInfoProto(name=name)
        if is_known(symbol._type):
            info.type.CopyFrom(symbol._type)
        return info

    def _initializer(self, symbol: SymbolicArray) -> onnx.TensorProto:
        array, name = symbol._array, self._given[id(symbol)]
        assert array is not None
        number = number_of(array.dtype) if array.dtype != object else 0
        is_large = array.nbytes >= SMALLEST and number and ELEMENT_TYPES[number].bits >= 8
        if not is_large or array.dtype == np.bool_:
            return numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
        raw = self.weights.mark_array(array)
        return onnx.TensorProto(name=name, dims=array.shape, data_type=number, raw_data=raw)


def _every_node(graph: GraphProto) -> Iterator[NodeProto]:
    """Yield the nodes of a graph and of the graphs in their attributes."""
    for node in graph.node:
        yield node
        for inner in graphs_in(node.attribute):
            yield from _every_node(inner)


def model_of(
    recorder: Any, outputs: Mapping[str, SymbolicArray], name: str
) -> tuple[onnx.ModelProto, GivenWeights]:
    """Return a recording as a ModelProto, and its large weights."""
    emission = Emission(recorder, outputs)
    return emission.model(name), emission.weights


def body_of(recorder: Any, outputs: Sequence[SymbolicArray]) -> onnx.ModelProto:
    """Return a recording without weights as a ModelProto, its outputs by number."""
    named = {f"output{i}": symbol for i, symbol in enumerate(outputs)}
    return model_of(recorder, named, "bodies")[0]
