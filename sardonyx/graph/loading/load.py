"""Conversion of a ModelProto to a checked `Source`: plain data that the other modules can trust.

The structure is checked here, once: names, order, opsets, functions, attributes. Types are checked
at load as far as the file declares them (`graph.checking.audit`); shapes are checked while tracing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
from onnx import AttributeProto

from sardonyx.deviations import (
    HIDDEN_INITIALIZER,
    MISSING_IMPORT,
    SHADOWED_NAME,
    UNSORTED_NODES,
    Departure,
    Deviation,
)
from sardonyx.errors import InvalidModel, LimitExceeded, UnsupportedModel
from sardonyx.garbage import RARELY_COLLECTED
from sardonyx.graph.ir import (
    AttributeReference,
    Function,
    FunctionKey,
    Graph,
    Node,
    Placement,
    Source,
    every_node,
)
from sardonyx.graph.loading import devices
from sardonyx.graph.loading.attributes import (
    check_fields,
    plain_value,
    refuse_undeclared_references,
)
from sardonyx.graph.loading.declarations import (
    canonical_domain,
    newest_opset,
    opset_versions,
    value_info,
)
from sardonyx.graph.loading.inline_weights import NOTHING_INLINE, InlineWeights
from sardonyx.graph.loading.order import in_order
from sardonyx.graph.loading.refusals import invalid, refuse_duplicates
from sardonyx.graph.loading.tensors import TensorReader
from sardonyx.graph.loading.visible_names import VisibleNames

DEEPEST_NESTING = 64
_WITH_GRAPHS = (AttributeProto.GRAPH, AttributeProto.GRAPHS)


def load_source(
    model: onnx.ModelProto,
    file: Path | None = None,
    inline: InlineWeights = NOTHING_INLINE,
    written: bytes = b"",
) -> Source:
    """Check and convert `model`, whose large weights can be `inline`, cut out of the proto.

    External weights are mapped from the folder of its `file`. The result keeps what was `written`,
    for `sardonyx.save`.
    """
    with RARELY_COLLECTED:
        return replace(_Loader(model, file, inline).source(), written=written, file=file)


def load_function(body: onnx.FunctionProto, opset: int) -> Function:
    """Convert the function body that the ONNX standard defines for an operator."""
    model = onnx.ModelProto()
    model.opset_import.add(domain="", version=opset)
    return _Loader(model, None, NOTHING_INLINE).function(body)


class _Loader:
    """Converts the parts of one model, and holds what they share: tensors, opsets, devices."""

    def __init__(self, model: onnx.ModelProto, file: Path | None, inline: InlineWeights) -> None:
        self.model = model
        self.tensors = TensorReader(file, inline)
        self.departures: list[Departure] = []
        self.opsets = opset_versions(model.opset_import, "the model", self.departures)
        self.configurations = devices.configurations(model)
        self.depth = 0

    def source(self) -> Source:
        if self.model.ir_version > onnx.IR_VERSION:
            raise UnsupportedModel(
                f"The model has IR version {self.model.ir_version}, but the installed onnx "
                f"{onnx.__version__} supports only versions up to {onnx.IR_VERSION}: upgrade onnx."
            )
        if self.model.ir_version < 1:
            raise invalid("The model has no IR version")
        if not self.opsets:
            raise invalid("The model imports no opset")
        functions = self.functions()
        graph = self.graph(self.model.graph, None)
        refuse_undeclared_references(
            graph.nodes, (), "a function, but the node is not in a function"
        )
        if not graph.outputs:
            raise InvalidModel(f"Graph '{graph.name}' has no outputs: export it with at least one.")
        self.note_hidden_initializers(graph)
        return Source(
            graph,
            self.opsets | self.missing_opsets(graph, functions),
            functions,
            self.model.ir_version,
            self.metadata(),
            self.configurations,
            departures=tuple(self.departures),
        )

    def note(self, deviation: Deviation, where: str) -> None:
        """Note a deviation from the standard, which only `strict=True` refuses."""
        self.departures.append(Departure(deviation, where))

    def missing_opsets(
        self, graph: Graph, functions: Mapping[FunctionKey, Function]
    ) -> dict[str, int]:
        """Return the newest opset of each known domain that nodes use without an import."""
        called = (node for node in every_node(graph.nodes) if node.function_key not in functions)
        missing = dict.fromkeys(n.domain for n in called if n.domain not in self.opsets)
        newest = {domain: newest_opset(domain) for domain in missing}
        known = {domain: version for domain, version in newest.items() if version is not None}
        for domain in known:
            title = domain or "ai.onnx"
            self.note(MISSING_IMPORT, f"The model imports no opset of '{title}'")
        return known

    def note_hidden_initializers(self, graph: Graph) -> None:
        hidden = set(graph.initializers).difference(info.name for info in graph.inputs)
        if hidden and self.model.ir_version < 4:
            self.note(HIDDEN_INITIALIZER, f"The initializer '{min(hidden)}' is not an input")

    def metadata(self) -> dict[str, str]:
        fields = {
            "graph": self.model.graph.name,
            "producer": f"{self.model.producer_name} {self.model.producer_version}".strip(),
            "domain": self.model.domain,
            "description": self.model.doc_string,
            "model_version": str(self.model.model_version or ""),
        }
        properties = {p.key: p.value for p in self.model.metadata_props}
        return {name: text for name, text in fields.items() if text} | properties

    def functions(self) -> dict[FunctionKey, Function]:
        functions: dict[FunctionKey, Function] = {}
        for proto in self.model.functions:
            key = (canonical_domain(proto.domain), proto.name, proto.overload)
            if key in functions:
                raise InvalidModel(f"Function '{proto.name}' is defined twice: remove one of them.")
            if not proto.name:
                raise invalid("A function of the model has no name")
            functions[key] = self.function(proto)
        return functions

    def function(self, proto: onnx.FunctionProto) -> Function:
        where = f"function '{proto.name}'"
        opsets = opset_versions(proto.opset_import, where, self.departures) or self.opsets
        defaults: dict[str, Any] = dict.fromkeys(proto.attribute)
        defaults |= {a.name: self.attribute(a, where, None) for a in proto.attribute_proto}
        refuse_duplicates(proto.input, f"{where} has two inputs named")
        refuse_duplicates(proto.output, f"{where} has two outputs named")
        if "" in proto.input or "" in proto.output:
            raise invalid(f"An input or output of {where} has no name")
        inputs = VisibleNames(frozenset(proto.input))
        nodes = self.nodes(proto.node, inputs, where)
        owner = f"{where}, which has {', '.join(defaults) or 'none'}"
        refuse_undeclared_references(nodes, defaults, owner)
        _require_outputs(proto.output, inputs, nodes, where)
        return Function(
            proto.name,
            canonical_domain(proto.domain),
            proto.overload,
            tuple(proto.input),
            tuple(proto.output),
            defaults,
            nodes,
            opsets,
        )

    def graph(self, proto: onnx.GraphProto, outer: VisibleNames | None) -> Graph:
        """Convert a graph, which can read the values `outer` of the graphs around it."""
        where = f"graph '{proto.name}'"
        self.depth += 1
        if self.depth > DEEPEST_NESTING:
            raise LimitExceeded(
                f"Subgraphs are nested more than {DEEPEST_NESTING} deep: flatten them."
            )
        initializers = self.initializers(proto, where)
        inputs = tuple(value_info(value, where, self.departures) for value in proto.input)
        input_names = [value.name for value in inputs]
        refuse_duplicates(input_names, f"{where} has two inputs named")
        own_names = {*input_names, *initializers}
        if outer is not None and (shadowed := outer.among(own_names)):
            shown = f"'{min(shadowed)}' has the name of a value of an outer graph"
            self.note(SHADOWED_NAME, f"In {where} {shown}")
        available = VisibleNames(own_names, outer)
        nodes = self.nodes(proto.node, available, where)
        outputs = tuple(value_info(value, where, self.departures) for value in proto.output)
        output_names = [value.name for value in outputs]
        _require_outputs(output_names, available, nodes, where)
        if outer is None:
            refuse_duplicates(output_names, f"{where} has two outputs named")
        self.depth -= 1
        return Graph(proto.name, inputs, outputs, nodes, initializers)

    def initializers(self, proto: onnx.GraphProto, where: str) -> dict[str, Any]:
        dense = [tensor.name for tensor in proto.initializer]
        names = [*dense, *(tensor.values.name for tensor in proto.sparse_initializer)]
        refuse_duplicates(names, f"{where} has two initializers named")
        if "" in names:
            raise invalid(f"An initializer of {where} has no name")
        arrays = {tensor.name: self.tensors.dense(tensor) for tensor in proto.initializer}
        for sparse in proto.sparse_initializer:
            arrays[sparse.values.name] = self.tensors.sparse(sparse)
        return arrays

    def nodes(
        self,
        protos: Iterable[onnx.NodeProto],
        available: VisibleNames,
        where: str,
    ) -> tuple[Node, ...]:
        """Convert and order nodes, which can read the `available` values and one another's."""
        protos = list(protos)
        computed = [name for proto in protos for name in proto.output if name]
        refuse_duplicates(computed, f"In {where} two nodes have the output")
        if redefined := available.among(computed):
            raise InvalidModel(
                f"In {where} a node has the output '{min(redefined)}', which is already an input, "
                "an initializer or a value of an outer graph: rename one of them."
            )
        all_computed = frozenset(computed)
        visible = VisibleNames(all_computed, available)
        earlier: set[str] = set()
        nodes = []
        for proto in protos:
            # A subgraph does not see later values, and may use their names for its own.
            inner = _inner_names(proto)
            hidden = inner.intersection(all_computed).difference(earlier) if inner else None
            seen = VisibleNames(all_computed, available, hidden) if hidden else visible
            nodes.append(self.node(proto, seen, where))
            earlier.update(proto.output)
        ordered = in_order(nodes, available, where)
        late = next((n for n, first in zip(nodes, ordered, strict=True) if n is not first), None)
        if late is not None:
            self.note(UNSORTED_NODES, f"In {where} {late.label} comes too early")
        return ordered

    def node(self, proto: onnx.NodeProto, visible: VisibleNames, where: str) -> Node:
        if not proto.op_type:
            raise invalid(f"In {where} the node '{proto.name}' has no operator")
        inputs = tuple(proto.input)
        for name in inputs:
            if name and name not in visible:
                raise invalid(
                    f"The {_label(proto, where)} reads '{name}', but no node, input or initializer "
                    "has that name"
                )
        return Node(
            proto.op_type,
            canonical_domain(proto.domain),
            proto.overload,
            proto.name,
            inputs,
            tuple(proto.output),
            self.attributes(proto, visible, where),
            self.placements(proto, where),
        )

    def attributes(
        self, proto: onnx.NodeProto, visible: VisibleNames, where: str
    ) -> dict[str, Any]:
        if not proto.attribute:  # As many nodes have none, no label is written for them.
            return {}
        label = _label(proto, where)
        names = (attribute.name for attribute in proto.attribute)
        refuse_duplicates(names, f"The {label} has two attributes named")
        return {a.name: self.attribute(a, label, visible) for a in proto.attribute}

    def placements(self, proto: onnx.NodeProto, where: str) -> tuple[Placement, ...]:
        if not proto.device_configurations:
            return ()
        return devices.placements(proto, self.configurations, _label(proto, where))

    def attribute(self, proto: AttributeProto, where: str, visible: VisibleNames | None) -> Any:
        check_fields(proto, where)
        if proto.ref_attr_name:
            return AttributeReference(proto.ref_attr_name)
        if proto.type == AttributeProto.GRAPH:
            return self.graph(proto.g, visible)
        if proto.type == AttributeProto.GRAPHS:
            return tuple(self.graph(g, visible) for g in proto.graphs)
        return plain_value(proto, self.tensors, where)


def _label(proto: onnx.NodeProto, where: str) -> str:
    output = next(filter(None, proto.output), "")
    named = f"node '{proto.name}'" if proto.name else f"node with output '{output}'"
    return f"{named} ({proto.op_type}) of {where}"


def _inner_names(proto: onnx.NodeProto) -> set[str]:
    """Return the names that the subgraphs of a node define, at any depth."""
    names: set[str] = set()
    nodes = [proto]
    while nodes:
        for attribute in nodes.pop().attribute:
            if attribute.type not in _WITH_GRAPHS:  # Reading a field that is empty takes longer.
                continue
            for graph in (attribute.g, *attribute.graphs):
                names.update(value.name for value in (*graph.input, *graph.initializer))
                names.update(name for node in graph.node for name in node.output)
                nodes.extend(graph.node)
    return names


def _require_outputs(
    names: Iterable[str], available: VisibleNames, nodes: Iterable[Node], where: str
) -> None:
    computed = {name for node in nodes for name in node.outputs}
    for name in names:
        if name not in computed and name not in available:
            raise invalid(f"No node, input or initializer of {where} provides the output '{name}'")
