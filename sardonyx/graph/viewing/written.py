"""What only the file says of nodes and values, and only a picture asks for."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx

from sardonyx.deviations import Departure
from sardonyx.graph.ir import Source, ValueInfo
from sardonyx.graph.loading.declarations import value_info
from sardonyx.graph.loading.proto_graphs import graphs_in
from sardonyx.graph.viewing.facts import type_of

# The property in which torch's exporter writes a node's scopes.
_SCOPES = "pkg.torch.onnx.name_scopes"


@dataclass
class Written:
    """Scopes by the first output of each node, and types by the names of values."""

    scopes: dict[str, str] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)


def written_in(source: Source) -> Written:
    """Return what the model's file notes of its nodes and values; nothing without a file."""
    found = Written()
    model = onnx.ModelProto()
    model.ParseFromString(source.written)
    for graph in graphs_in(model):
        for node in graph.node:
            scopes = next((p.value for p in node.metadata_props if p.key == _SCOPES), "")
            if scopes and node.output:
                found.scopes[node.output[0]] = scopes
        for declared in graph.value_info:
            try:
                found.types[declared.name] = type_of(_info(declared))
            except Exception:  # What is wrong with it does not matter to a picture.
                continue
    return found


def _info(declared: onnx.ValueInfoProto) -> ValueInfo:
    departures: list[Departure] = []
    return value_info(declared, "the graph", departures)
