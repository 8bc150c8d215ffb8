"""Type inference over a whole graph, from the standard's schemas and the ops' own rules.

Shapes are not inferred, since they need not fit in a branch that is never taken.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from sardonyx.errors import InvalidModel
from sardonyx.graph.ir import AttributeReference, Graph, Node, Source
from sardonyx.graph.standard import schema
from sardonyx.graph.standard.signatures import signature_of
from sardonyx.graph.standard.types import dtype_of_type, type_name
from sardonyx.ops.definition import Outline

# Types by the name of the value; None for an unknown type.
Types: TypeAlias = "ChainMap[str, str | None]"


class Flow:
    """Infers types under one set of opsets; without `strict` it checks only counts of values."""

    def __init__(self, source: Source, opsets: Mapping[str, int], *, strict: bool) -> None:
        self.source = source
        self.opsets = opsets
        self.strict = strict

    def graph(self, graph: Graph, outer: Types) -> Outline:
        """Check a graph, which can read values of the types `outer`; return its output types."""
        types = outer.new_child()
        types.update((value.name, value.type) for value in graph.inputs)
        types.update((n, type_name(a.dtype)) for n, a in graph.initializers.items())
        self.nodes(graph.nodes, types)
        dtypes = tuple(dtype_of_type(types.get(output.name)) for output in graph.outputs)
        return Outline(len(graph.required_inputs), dtypes)

    def nodes(self, nodes: Sequence[Node], types: Types) -> None:
        """Check nodes, and add the types of their outputs to `types`."""
        for node in nodes:
            # Of the innermost mapping, as the update of a ChainMap is slow.
            types.maps[0].update(zip(node.outputs, self.results(node, types), strict=False))
            # An absent output has no type that an absent input could get.
            types.maps[0].pop("", None)

    def results(self, node: Node, types: Types) -> Sequence[str | None]:
        """Return the types of a node's outputs; refuse a node that can never run."""
        outlines = {
            name: self.graph(value, types)
            for name, value in node.attributes.items()
            if isinstance(value, Graph)
        }
        opset = self.opsets.get(node.domain, 0)
        signature = signature_of(node.op_type, node.domain, opset)
        if signature is None or self.source.function_of(node) is not None:
            return (None,) * len(node.outputs)
        inputs = [_type_of(name, types) if self.strict else None for name in node.inputs]
        by_schema = schema.bind_types(node, signature, inputs, opset)
        dtypes = self._inferred(node, inputs, outlines, opset)
        if dtypes is None:
            return by_schema
        for dtype, slot in zip(dtypes, signature.outputs, strict=False):
            if dtype is not None and self.strict and not slot.variadic:
                schema.check_result(node, signature, type_name(dtype), opset)
        by_op = (None if dtype is None else type_name(dtype) for dtype in dtypes)
        return [a or b for a, b in zip(by_schema, by_op, strict=True)]

    def _inferred(
        self,
        node: Node,
        inputs: Sequence[str | None],
        outlines: Mapping[str, Outline],
        opset: int,
    ) -> Sequence[np.dtype[np.generic] | None] | None:
        """Return the output dtypes by the op's own inference rule; None if there is no rule."""
        op = self.source.op_of(node)
        inference = op.inference_at(opset) if op else None
        if inference is None:
            return None
        if any(isinstance(v, AttributeReference) for v in node.attributes.values()):
            return None
        dtypes = [dtype_of_type(text) for text in inputs]
        try:
            inferred = inference(dtypes, len(node.outputs), **{**node.attributes, **outlines})
        except ValueError as error:
            raise InvalidModel(
                f"{node.title(opset)} can never run: {error}. Export the model again."
            ) from None
        unknown = (None,) * len(node.outputs)
        return (*inferred, *unknown)[: len(node.outputs)] if self.strict else unknown


def _type_of(name: str, types: Types) -> str | None:
    for level in types.maps:
        if name in level:
            return level[name]
    return None
