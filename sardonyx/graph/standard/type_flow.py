"""How types pass through a graph, by the standard's tables and by what ops say, without a run.

Only types are followed, since shapes need not fit in a branch that is never taken.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import NoReturn, TypeAlias

import numpy as np

from sardonyx.errors import InvalidModel
from sardonyx.graph.ir import AttributeReference, Graph, Node, Source
from sardonyx.graph.standard import schema
from sardonyx.graph.standard.types import dtype_of_type, type_name
from sardonyx.ops.definition import Outline

# By name; None where a type is not known.
Types: TypeAlias = "ChainMap[str, str | None]"


class Flow:
    """Follows types where certain opsets hold; if it is not strict, it looks at numbers alone."""

    def __init__(self, source: Source, opsets: Mapping[str, int], *, strict: bool) -> None:
        self.source = source
        self.opsets = opsets
        self.strict = strict

    def graph(self, graph: Graph, outer: Types) -> Outline:
        """Follow the types through a graph that sees names of the types `outer`."""
        types = outer.new_child()
        types.update((value.name, value.type) for value in graph.inputs)
        types.update((n, schema.type_of_array(a)) for n, a in graph.initializers.items())
        self.nodes(graph.nodes, types)
        dtypes = tuple(dtype_of_type(types.get(output.name)) for output in graph.outputs)
        return Outline(len(graph.required_inputs), dtypes)

    def nodes(self, nodes: Sequence[Node], types: Types) -> None:
        """Add the types of what the nodes make to `types`."""
        for node in nodes:
            types.update(zip(node.outputs, self.results(node, types), strict=False))

    def results(self, node: Node, types: Types) -> Sequence[str | None]:
        """The types of a node's results; a node that can never run is refused."""
        outlines = {
            name: self.graph(value, types)
            for name, value in node.attributes.items()
            if isinstance(value, Graph)
        }
        opset = self.opsets.get(node.domain, 0)
        known = schema.signature(node.op_type, node.domain, opset)
        if known is None or self.source.function_of(node) is not None:
            return (None,) * len(node.outputs)
        given = [types.get(name) if self.strict else None for name in node.inputs]
        results = schema.bind_types(node, known, given, opset)
        inferred = self._inferred(node, given, outlines, opset)
        for dtype, slot in zip(inferred, known.outputs, strict=False):
            if dtype is not None and self.strict and not slot.variadic:
                schema.check_result(node, known, type_name(dtype), opset)
        own = (None if dtype is None else type_name(dtype) for dtype in inferred)
        return [a or b for a, b in zip(results, own, strict=True)]

    def _inferred(
        self,
        node: Node,
        given: Sequence[str | None],
        outlines: Mapping[str, Outline],
        opset: int,
    ) -> Sequence[np.dtype[np.generic] | None]:
        """What the op itself says of its results."""
        unknown = (None,) * len(node.outputs)
        op = self.source.op_of(node)
        is_open = any(isinstance(value, AttributeReference) for value in node.attributes.values())
        inference = op.inference_at(opset) if op else None
        if inference is None or is_open:
            return unknown
        dtypes = [dtype_of_type(text) for text in given]
        try:
            made = inference(dtypes, len(node.outputs), **{**node.attributes, **outlines})
        except ValueError as error:
            _refuse(node, opset, error)
        return (*made, *unknown)[: len(node.outputs)] if self.strict else unknown


def _refuse(node: Node, opset: int, error: ValueError) -> NoReturn:
    where = f"{node.label[0].upper()}{node.label[1:]} ({node.operator}, opset {opset})"
    raise InvalidModel(f"{where} can never run: {error}. Export the model again.") from None
