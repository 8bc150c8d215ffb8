"""The graphs of a model's proto, at any depth."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import onnx

ProtoGraph: TypeAlias = onnx.GraphProto | onnx.FunctionProto


def graphs_in(model: onnx.ModelProto) -> Iterator[ProtoGraph]:
    """Yield the graph and the functions of a model, and the subgraphs of all of them."""
    waiting: list[ProtoGraph] = [model.graph, *model.functions]
    while waiting:
        graph = waiting.pop()
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                waiting += [attribute.g] if attribute.HasField("g") else []
                waiting += attribute.graphs
