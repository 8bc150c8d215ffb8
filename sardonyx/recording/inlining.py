"""The graph of a loaded model as calls of the graph that is recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import onnx
from onnx import GraphProto, NodeProto

from sardonyx.errors import InvalidInput
from sardonyx.graph.ir import Source
from sardonyx.graph.loading.declarations import canonical_domain
from sardonyx.graph.standard.signatures import signature_of
from sardonyx.recording.graph import Call
from sardonyx.recording.symbols import SymbolicArray
from sardonyx.recording.types import is_known


def inline(
    recorder: Any, source: Source, weights: Any, arguments: Sequence[SymbolicArray]
) -> list[SymbolicArray]:
    """Record the calls of a model's graph on these arguments, and return its outputs."""
    model = onnx.ModelProto()
    model.ParseFromString(source.written)
    for domain, opset in source.opsets.items():
        recorder.use_opset(domain, opset)
    _take_functions(recorder, model)
    recorder.custom.update(source.custom)
    names = [info.name for info in source.graph.required_inputs]
    values = dict(zip(names, arguments, strict=False))
    for name in source.graph.initializers:
        values[name] = recorder._constant_of(weights.content(name).copy(), name)
    prefix = f"{model.graph.name}/" if model.graph.name else ""
    for node in _in_order(model.graph, set(values)):
        _record(recorder, node, values, prefix)
    for declared in model.graph.output:
        symbol = values[declared.name]
        if not is_known(symbol._type):
            symbol._type = declared.type
    return [values[info.name] for info in source.graph.outputs]


def _take_functions(recorder: Any, model: onnx.ModelProto) -> None:
    for function in model.functions:
        key = function.domain, function.name, function.overload
        present = recorder.functions.setdefault(key, function)
        if present != function:
            raise InvalidInput(
                f"Two models have different functions '{function.name}' of {function.domain!r}: "
                "rename one of them."
            )


def _in_order(graph: GraphProto, known: set[str]) -> Iterator[NodeProto]:
    """Yield the nodes, each after those that it reads."""
    waiting = list(graph.node)
    while waiting:
        later = []
        for node in waiting:
            reads = {*filter(None, node.input), *_captures(node)}
            if reads <= known:
                known.update(node.output)
                yield node
            else:
                later.append(node)
        if len(later) == len(waiting):
            raise InvalidInput(f"The model reads '{min(reads - known)}', which nothing provides.")
        waiting = later


def _record(recorder: Any, node: NodeProto, values: dict[str, SymbolicArray], prefix: str) -> None:
    domain = canonical_domain(node.domain)
    call = Call(
        node.op_type,
        domain,
        [values[name] if name else None for name in node.input],
        [],
        list(node.attribute),
        captured={name: values[name] for name in _captures(node)},
        overload=node.overload,
        name=f"{prefix}{node.name}" if node.name else "",
        doc=node.doc_string,
    )
    is_function = (domain, node.op_type, node.overload) in recorder.functions
    is_own = is_function or (domain, node.op_type) in recorder.custom
    schema = None if is_own else signature_of(node.op_type, domain, recorder.opset(domain))
    types = recorder.types_of(call, len(node.output), schema)
    call.results = [
        SymbolicArray(recorder, recorder.frame, kind, f"{prefix}{name}") if name else None
        for name, kind in zip(node.output, types, strict=True)
    ]
    values.update(
        (name, s) for name, s in zip(node.output, call.results, strict=True) if s is not None
    )
    recorder.frame.calls.append(call)


def graphs_in(attributes: Sequence[onnx.AttributeProto]) -> Iterator[GraphProto]:
    """Yield the graphs in the attributes of a node."""
    for attribute in attributes:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def _captures(node: NodeProto) -> set[str]:
    """Return the names that the subgraphs of a node read from around it."""
    found: set[str] = set()
    for graph in graphs_in(node.attribute):
        defined = {v.name for v in (*graph.input, *graph.initializer)}
        defined.update(name for inner in graph.node for name in inner.output)
        read = {name for inner in graph.node for name in (*inner.input, *_captures(inner)) if name}
        read.update(output.name for output in graph.output)
        found |= read - defined
    return found


def renamed(graph: GraphProto, names: Mapping[str, str], fresh: Any) -> None:
    """Rename the values of a graph in place: those around it by `names`, its own anew."""
    inner = dict(names)
    for value in (*graph.input, *graph.initializer):
        inner[value.name] = value.name = fresh(value.name)
    for node in graph.node:
        for name in node.output:
            if name:
                inner[name] = fresh(name)
    for node in graph.node:
        node.input[:] = [inner.get(name, name) for name in node.input]
        node.output[:] = [inner.get(name, name) for name in node.output]
        for body in graphs_in(node.attribute):
            renamed(body, inner, fresh)
    for value in (*graph.output, *graph.value_info):
        value.name = inner.get(value.name, value.name)
