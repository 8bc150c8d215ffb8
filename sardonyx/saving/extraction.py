"""A part of a model as a model: the nodes between some of its values."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from sardonyx.errors import InvalidInput, SardonyxError
from sardonyx.graph.ir import Source
from sardonyx.graph.loading.load import load_source
from sardonyx.graph.loading.read import Readable, read_model
from sardonyx.graph.model.named_values import reads_by_name, values_named
from sardonyx.graph.standard.type_flow import Flow
from sardonyx.graph.standard.types import dtype_of_type, number_of
from sardonyx.graph.values.mmap import content
from sardonyx.printable import first_line
from sardonyx.saving.protos import proto_of

_CONTAINERS = ("seq", "optional")


@dataclass(frozen=True)
class Part:
    """A part of a model: its proto, in which weights may lack their data, and the weights."""

    proto: onnx.ModelProto
    weights: Mapping[str, Any]


def extracted(model: Readable, inputs: Iterable[str], outputs: Iterable[str]) -> Part:
    """Return the part of a model that computes `outputs` from `inputs`.

    Names and patterns mean what they mean to `Model.run`. Inputs of the model that the part reads
    besides remain its inputs; without `inputs` these are all. Without `outputs` the part goes to
    the model's own outputs.

    >>> part = extracted("examples/encoder.onnx", ["layer_norm"], ["layer_norm_1"])
    >>> [info.name for info in part.proto.graph.input], len(part.proto.graph.node)
    (['x', 'layer_norm'], 23)
    """
    source = load_source(*read_model(model))
    starts = values_named(source, inputs)
    ends = values_named(source, outputs) or tuple(v.name for v in source.graph.outputs)
    proto = proto_of(source)
    graph = proto.graph
    _require_computed(graph, starts, ends)
    nodes, read = _between(graph, starts, ends)
    _refuse_unread(starts, read, ends)
    _refuse_reads_by_name(source, nodes)
    types = _Types(source, proto)
    kept_inputs = [info.name for info in graph.input if info.name in read]
    names = dict.fromkeys([*kept_inputs, *starts])
    declared = [types.declaration(name, required=name in starts) for name in names]
    results = [types.declaration(name) for name in ends]
    weights = {n: content(a) for n, a in source.graph.initializers.items()
               if n in read and n not in starts}  # fmt: skip
    _cut(graph, nodes, weights, read | set(ends))
    del graph.input[:], graph.output[:]
    graph.input.extend(declared)
    graph.output.extend(results)
    _keep_functions(proto)
    # It refers to the whole graph.
    del proto.training_info[:]
    return Part(proto, weights)


def _require_computed(graph: Any, starts: Sequence[str], ends: Sequence[str]) -> None:
    computed = {name for node in graph.node for name in node.output}
    for name in ends:
        if name in starts or name not in computed:
            why = "it is an input of the part too" if name in starts else "no node computes it"
            raise InvalidInput(
                f"The value '{name}' cannot be an output of a part, since {why}: name a value that "
                "a node of the part computes."
            )


def _between(
    graph: Any, starts: Sequence[str], ends: Sequence[str]
) -> tuple[list[onnx.NodeProto], set[str]]:
    """Return the nodes that compute the ends, in their order, and all names that they read."""
    makers = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
    waiting, chosen, read = list(ends), set[int](), set[str]()
    seen = set(starts)
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in makers and makers[name] not in chosen:
            chosen.add(makers[name])
            names = set(_names_read(graph.node[makers[name]]))
            read |= names
            waiting += names
    return [node for i, node in enumerate(graph.node) if i in chosen], read


def _names_read(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names that a node and its subgraphs read from the graph around them."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        graphs = [attribute.g] if attribute.HasField("g") else []
        for graph in (*graphs, *attribute.graphs):
            yield from _captured(graph)


def _captured(graph: onnx.GraphProto) -> set[str]:
    own = {info.name for info in graph.input} | {each.name for each in graph.initializer}
    own |= {each.values.name for each in graph.sparse_initializer}
    own |= {name for node in graph.node for name in node.output}
    read = {name for node in graph.node for name in _names_read(node)}
    read |= {info.name for info in graph.output}
    return read - own


def _refuse_unread(starts: Sequence[str], read: set[str], ends: Sequence[str]) -> None:
    for name in starts:
        if name not in read:
            raise InvalidInput(
                f"The value '{name}' does not lead to {', '.join(repr(n) for n in ends[:5])}: name "
                "inputs that the part reads."
            )


def _refuse_reads_by_name(source: Source, nodes: Sequence[onnx.NodeProto]) -> None:
    remaining = {name for node in nodes for name in node.output if name}
    for node in source.graph.nodes:
        if remaining.intersection(node.outputs) and reads_by_name(source, node):
            raise InvalidInput(
                f"{node.title()} refers to values of the whole graph by their names, so a part "
                "with it cannot be cut out: choose a part without it."
            )


class _Types:
    """The types of the values of a model: as declared, or as inferred."""

    def __init__(self, source: Source, proto: onnx.ModelProto) -> None:
        self._source = source
        self._proto = proto
        graph = proto.graph
        infos = (*graph.value_info, *graph.output, *graph.input)
        self._infos = {info.name: info for info in infos if info.type.WhichOneof("value")}
        self._is_inferred = False

    def declaration(self, name: str, *, required: bool = False) -> onnx.ValueInfoProto:
        """Return a value's name and type; an output's may be unknown."""
        if name not in self._infos and not self._is_inferred:
            self._infer()
        info = self._infos.get(name)
        if info is None and required:
            raise InvalidInput(
                f"The type of the value '{name}' is not known, so it cannot be an input: choose "
                "another value, or declare its type among the graph's value_info."
            )
        copy = onnx.ValueInfoProto(name=name)
        if info is not None:
            copy.CopyFrom(info)
        return copy

    def _infer(self) -> None:
        self._is_inferred = True
        for info in _inferred_by_onnx(self._proto):
            if info.type.WhichOneof("value"):
                self._infos.setdefault(info.name, info)
        known: ChainMap[str, str | None] = ChainMap({})
        for name, array in self._source.graph.initializers.items():
            kind = onnx.helper.make_tensor_type_proto(number_of(array.dtype), array.shape)
            self._infos.setdefault(name, onnx.ValueInfoProto(name=name, type=kind))
        try:
            flow = Flow(self._source, self._source.opsets, strict=True)
            known.update((value.name, value.type) for value in self._source.graph.inputs)
            flow.nodes(self._source.graph.nodes, known)
        except SardonyxError:
            pass  # A part of a model that cannot run may run; the types so far are right.
        for name, text in known.items():
            inferred = None if text is None else _type_proto(text)
            if inferred is not None:
                self._infos.setdefault(name, onnx.ValueInfoProto(name=name, type=inferred))


def _inferred_by_onnx(proto: onnx.ModelProto) -> Sequence[onnx.ValueInfoProto]:
    try:
        return list(onnx.shape_inference.infer_shapes(proto).graph.value_info)
    except Exception as error:
        # It refuses what it does not know, and models of more than 2 GiB.
        first_line(error)
        return []


def _type_proto(text: str) -> onnx.TypeProto | None:
    """Return the type "tensor(float)", without a shape; None for maps and sparse tensors."""
    kind, _, inner = text.partition("(")
    inner = inner[:-1]
    if kind in _CONTAINERS:
        element = _type_proto(inner)
        if element is None:
            return None
        container = onnx.TypeProto()
        field = container.sequence_type if kind == "seq" else container.optional_type
        field.elem_type.CopyFrom(element)
        return container
    dtype = dtype_of_type(text)
    return None if dtype is None else onnx.helper.make_tensor_type_proto(number_of(dtype), None)


def _cut(
    graph: Any,
    nodes: Sequence[onnx.NodeProto],
    weights: Mapping[str, Any],
    names: set[str],
) -> None:
    """Leave only these nodes and weights in a graph, and what is said of their values."""
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)
    _keep(graph, "initializer", [e for e in graph.initializer if e.name in weights])
    sparse = [e for e in graph.sparse_initializer if e.values.name in weights]
    _keep(graph, "sparse_initializer", sparse)
    written = {name for node in graph.node for name in node.output}
    _keep(graph, "value_info", [e for e in graph.value_info if e.name in written])
    annotated = [e for e in graph.quantization_annotation if e.tensor_name in written | names]
    _keep(graph, "quantization_annotation", annotated)


def _keep(graph: Any, field: str, remaining: Sequence[Any]) -> None:
    copies = [type(each).FromString(each.SerializeToString()) for each in remaining]
    graph.ClearField(field)
    getattr(graph, field).extend(copies)


def _keep_functions(proto: onnx.ModelProto) -> None:
    """Remove the functions that no node calls any more."""
    functions = {(f.domain, f.name, f.overload): f for f in proto.functions}
    waiting: list[Any] = list(proto.graph.node)
    called = set[tuple[str, str, str]]()
    while waiting:
        node = waiting.pop()
        key = (node.domain, node.op_type, node.overload)
        if key in functions and key not in called:
            called.add(key)
            waiting += functions[key].node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                waiting += graph.node
    _keep(proto, "functions", [f for key, f in functions.items() if key in called])
