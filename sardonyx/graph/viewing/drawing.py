"""A model as the picture that the graph view shows: every node, value and scope by number."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from sardonyx.backends.executable import Spec
from sardonyx.display.graph_view.histograms import content as content_text
from sardonyx.display.graph_view.histograms import summary
from sardonyx.display.graph_view.picture import ROOT, Box, Flow, Group, Picture, Port
from sardonyx.display.graph_view.runs import with_runs
from sardonyx.display.graph_view.tidying import without_single_members
from sardonyx.graph.ir import AttributeReference, Function, Graph, Node, Source, ValueInfo
from sardonyx.graph.standard.signatures import signature_of
from sardonyx.graph.values.kinds import spec_text
from sardonyx.graph.values.mmap import content
from sardonyx.graph.viewing.facts import Facts, declared, type_of, type_of_named
from sardonyx.graph.viewing.scopes import scope_of
from sardonyx.graph.viewing.written import written_in
from sardonyx.printable import shortened

_NO_FACTS = Facts()
# Bodies of functions are drawn at each call, which can multiply: beyond it only the calls are.
_MOST_BOXES = 20_000
_LONGEST_ATTRIBUTE = 400
_LONGEST_NAME = 400
# Kinds from the one that says most of a node to the one that says least.
_TELLING = ("device", "host", "alias", "constant", "static")

# Numbers of values by their names in the file; None for inputs of a function that are left out.
Bound = MutableMapping[str, "int | None"]


def picture_of(
    source: Source,
    title: str,
    facts: Facts = _NO_FACTS,
    weights: Mapping[str, np.ndarray[Any, Any]] | None = None,
) -> Picture:
    """Return the picture of a model; with the facts of a trace, also kinds, shapes and segments.

    `weights` has the current values of initializers, where these were replaced.
    """
    drawing = _Drawing(source, title, facts, weights or {})
    drawing.graph(source.graph, ROOT, {}, "")
    _place_merged(drawing.picture)
    without_single_members(drawing.picture)
    with_runs(drawing.picture)
    return drawing.picture


class _Drawing:
    """Walks a model's graphs and functions, and puts them into one picture."""

    def __init__(
        self,
        source: Source,
        title: str,
        facts: Facts,
        weights: Mapping[str, np.ndarray[Any, Any]],
    ) -> None:
        self.source = source
        self.written = written_in(source)
        self.facts = facts
        self.weights = weights
        self.picture = Picture(title, _description(source), segments=facts.segments)
        self._groups: dict[tuple[int, str], int] = {}

    # -- graphs -----------------------------------------------------------------------------------

    def graph(self, graph: Graph, group: int, bound: Bound, path: str) -> None:
        """Draw a graph into a group; `bound` has the values around it and takes its own."""
        types = {**self.written.types, **declared(graph)}
        for name, array in graph.initializers.items():
            bound[name] = self._weight(name, self.weights.get(name, array))
        for info in graph.inputs:
            if info.name not in graph.initializers:
                self._input(info.name, group, bound, path, type_of(info))
        self._nodes(graph, group, bound, path, types)
        for output in graph.outputs:
            self._output(output, group, bound)

    def _function(
        self, function: Function, node: Node, group: int, bound: Bound, path: str
    ) -> None:
        """Draw the body of a function, whose inputs are the node's."""
        inner: Bound = {}
        for i, name in enumerate(function.inputs):
            inner[name] = bound.get(node.inputs[i]) if i < len(node.inputs) else None
        self._nodes(function, group, inner, path, {})
        for name, outer in zip(function.outputs, node.outputs, strict=False):
            if name in inner and outer:
                info = ValueInfo(name, None, None, None)
                self._output(info, group, inner)

    def _input(self, name: str, group: int, bound: Bound, path: str, text: str) -> None:
        number = bound[name] = self._value(name, path + name, text)
        self._box(Box("Input", name, group, "input", outputs=[Port("", number)]))
        self.picture.boxes[-1].kind = self.facts.kind(path + name)

    def _output(self, info: ValueInfo, group: int, bound: Bound) -> None:
        number = bound.get(info.name)
        if number is not None and not self.picture.flows[number].type:
            self.picture.flows[number].type = type_of(info)
        self._box(Box("Output", info.name, group, "output", inputs=[Port("", number)]))
        if number is not None:
            self.picture.boxes[-1].kind = self.picture.flows[number].kind

    def _nodes(
        self, graph: Graph | Function, group: int, bound: Bound, path: str, types: Mapping[str, str]
    ) -> None:
        outputs = {o if isinstance(o, str) else o.name for o in graph.outputs}
        opsets = graph.opsets if isinstance(graph, Function) else self.source.opsets
        for node in graph.nodes:
            if _is_constant(node) and outputs.isdisjoint(node.outputs):
                self._constant(node, bound, path)
                continue
            for name in filter(None, node.outputs):
                bound[name] = self._value(name, path + name, types.get(name, ""))
            scopes = scope_of(node, self.written.scopes.get(node.first_output, ""))
            self._node(node, self._scope(group, scopes), bound, path, opsets)

    # -- nodes ------------------------------------------------------------------------------------

    def _node(
        self, node: Node, group: int, bound: Bound, path: str, opsets: Mapping[str, int]
    ) -> None:
        inputs, outputs = _parameters(node, opsets)
        box = Box(
            node.op_type,
            shortened(node.name or node.first_output, _LONGEST_NAME),
            group,
            domain=node.domain,
            inputs=[
                Port(name, bound.get(value) if value else None)
                for name, value in zip(inputs, node.inputs, strict=True)
            ],
            outputs=[
                Port(name, bound.get(value) if value else None)
                for name, value in zip(outputs, node.outputs, strict=True)
            ],
            attributes=[(name, _text(v)) for name, v in node.attributes.items()],
        )
        self._place(box, [path + name for name in node.outputs if name])
        self._box(box)
        self._insides(node, len(self.picture.boxes) - 1, bound, path)

    def _insides(self, node: Node, number: int, bound: Bound, path: str) -> None:
        """Draw the subgraphs of a node, or the body of the function that it calls."""
        function = self.source.function_of(node)
        if function is None and not node.subgraphs:
            return
        if len(self.picture.boxes) > _MOST_BOXES:
            self.picture.boxes[number].note = "its inside is left out, as the graph is very large"
            return
        box = self.picture.boxes[number]
        kind = "function" if function is not None else "control"
        own = self._group(Group(box.name or box.operator, box.group, kind, number))
        step = f"{path}{node.name or node.op_type}/"
        if function is not None:
            self._function(function, node, own, bound, step)
            return
        for name, graph in _subgraphs(node):
            branch = self._group(Group(name, own, "branch"))
            self.graph(graph, branch, ChainMap({}, bound), f"{step}{name.partition('[')[0]}/")

    def _place(self, box: Box, names: Sequence[str]) -> None:
        """Note a node's kind, and the segment and step that compute it."""
        kinds = {self.facts.kind(name) for name in names}
        box.kind = next((kind for kind in _TELLING if kind in kinds), None)
        place = next(filter(None, map(self.facts.place, names)), None)
        if place is not None:
            box.segment = place.segment
            if place.step != box.operator and not place.step.endswith(f"::{box.operator}"):
                box.note = f"runs as {place.step}"

    def _constant(self, node: Node, bound: Bound, path: str) -> None:
        (attribute,) = node.attributes.values()
        array = attribute if isinstance(attribute, np.ndarray) else np.asarray(attribute)
        (name,) = node.outputs
        bound[name] = self._weight(name, array, self.facts.kind(path + name) or "static")

    # -- values -----------------------------------------------------------------------------------

    def _weight(self, name: str, array: Any, kind: str | None = None) -> int:
        known = spec_text(Spec(array.shape, array.dtype))
        shown = summary(array, content)
        flow = Flow(shortened(name, _LONGEST_NAME), known, kind or self.facts.kind(name))
        flow.content, flow.weight = shown.pop("content", None), shown
        return self._flow(flow)

    def _value(self, name: str, full_name: str, text: str) -> int:
        named = self.facts.names.get(full_name)
        known = type_of_named(named) or text
        flow = Flow(shortened(name, _LONGEST_NAME), known, self.facts.kind(full_name))
        if named is not None and named.static is not None and named.static.size <= 16:
            flow.content = content_text(named.static)
        return self._flow(flow)

    def _flow(self, flow: Flow) -> int:
        self.picture.flows.append(flow)
        return len(self.picture.flows) - 1

    def _box(self, box: Box) -> None:
        self.picture.boxes.append(box)

    # -- groups -----------------------------------------------------------------------------------

    def _scope(self, group: int, scopes: Sequence[str]) -> int:
        for name in scopes:
            key = group, name
            if key not in self._groups:
                self._groups[key] = self._group(Group(shortened(name, _LONGEST_NAME), group))
            group = self._groups[key]
        return group

    def _group(self, group: Group) -> int:
        self.picture.groups.append(group)
        return len(self.picture.groups) - 1


def _place_merged(picture: Picture) -> None:
    """Place nodes that rewrites merged into others, or moved into weights: where they are read."""
    reader: dict[int, int] = {}
    for box in reversed(picture.boxes):
        if box.segment is None and box.kind in ("device", "host") and box.role == "node":
            numbers = [reader.get(port.value, -1) for port in box.outputs if port.value is not None]
            box.segment = next((number for number in numbers if number >= 0), None)
            if box.segment is not None:
                box.note = "merged into the steps that read it, or computed ahead with the weights"
        if box.segment is not None:
            for port in box.inputs:
                if port.value is not None:
                    reader.setdefault(port.value, box.segment)


def _subgraphs(node: Node) -> Iterator[tuple[str, Graph]]:
    for name, value in node.attributes.items():
        if isinstance(value, Graph):
            yield name, value
        elif isinstance(value, tuple) and value and isinstance(value[0], Graph):
            yield from ((f"{name}[{i}]", graph) for i, graph in enumerate(value))


def _is_constant(node: Node) -> bool:
    """Whether a node is a constant, which the picture shows at the nodes that read it."""
    if (node.op_type, node.domain) != ("Constant", "") or len(node.outputs) != 1:
        return False
    values = list(node.attributes.values())
    return len(values) == 1 and not isinstance(values[0], (Graph, AttributeReference))


def _parameters(node: Node, opsets: Mapping[str, int]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the names of a node's inputs and outputs; empty ones where no schema has them."""
    signature = signature_of(node.op_type, node.domain, opsets.get(node.domain, 0))
    inputs = [slot.name for slot in signature.inputs] if signature else []
    outputs = [slot.name for slot in signature.outputs] if signature else []
    return _padded(inputs, len(node.inputs)), _padded(outputs, len(node.outputs))


def _padded(names: Sequence[str], count: int) -> Sequence[str]:
    """Return `count` names; those beyond belong to the last parameter, which is variadic."""
    beyond = [f"{names[-1]}[{i}]" if names else "" for i in range(1, 1 + count - len(names))]
    return [*names[:count], *beyond]


def _text(value: Any) -> str:
    """Return an attribute as text."""
    if isinstance(value, Graph):
        return f"graph of {len(value.nodes)} nodes"
    if isinstance(value, AttributeReference):
        return f"the function's {value.name}"
    if isinstance(value, np.ndarray):
        known = spec_text(Spec(value.shape, value.dtype))
        return f"{known} = {content_text(content(value))}" if value.size <= 16 else known
    if isinstance(value, tuple):
        if value and isinstance(value[0], Graph):
            return f"{len(value)} graphs"
        value = list(value)
    if isinstance(value, bytes):
        value = value.decode("utf-8", "backslashreplace")
    return shortened(str(value), _LONGEST_ATTRIBUTE)


def _description(source: Source) -> list[tuple[str, str]]:
    opsets = ", ".join(f"{name or 'ai.onnx'} {v}" for name, v in source.opsets.items())
    arrays = source.graph.initializers.values()
    size = sum(array.nbytes for array in arrays)
    rows = [("opsets", opsets), ("weights", f"{len(arrays):,} with {size:,} bytes")]
    return rows + [(name, shortened(text, 300)) for name, text in source.metadata.items()]
