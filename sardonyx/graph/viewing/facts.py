"""What a trace knows of the values of a graph, for a picture of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sardonyx.graph.ir import Graph, ValueInfo
from sardonyx.graph.standard.types import short_name
from sardonyx.graph.tracing.names import Named
from sardonyx.graph.tracing.steps import Segment, Step
from sardonyx.graph.values.kinds import spec_text

_LONGEST_TYPE = 200


@dataclass(frozen=True, slots=True)
class Place:
    """Where a register is computed: the number of the segment, and the title of the step."""

    segment: int
    step: str


@dataclass(frozen=True, eq=False, slots=True)
class Facts:
    """What is known beyond the graph: values by their full names, and where registers come from."""

    names: Mapping[str, Named] = field(default_factory=dict)
    places: Mapping[int, Place] = field(default_factory=dict)
    segments: Sequence[str] = ()
    # Names of static values that steps use.
    constants: frozenset[str] = frozenset()

    def kind(self, name: str) -> str | None:
        """Return the kind of a value; None without a trace, or if the trace did not come there."""
        named = self.names.get(name)
        if named is None:
            return None
        return "constant" if name in self.constants else named.kind

    def place(self, name: str) -> Place | None:
        """Return where a value is computed, if a step of the program computes it."""
        named = self.names.get(name)
        if named is None or named.register is None or named.kind == "alias":
            return None
        return self.places.get(named.register)


def places_of(segments: Sequence[Segment]) -> dict[int, Place]:
    """Return the place of each register that a step of the segments computes."""
    places: dict[int, Place] = {}

    def note(step: Step, number: int) -> None:
        places.update(dict.fromkeys(step.results, Place(number, step.title)))
        for block in step.blocks:
            for inner in block.steps:
                note(inner, number)

    for number, segment in enumerate(segments):
        for step in segment.steps:
            note(step, number)
    return places


def declared(graph: Graph) -> dict[str, str]:
    """Return the types and shapes of a graph's inputs and outputs, by their names."""
    return {info.name: type_of(info) for info in (*graph.inputs, *graph.outputs)}


def type_of(info: ValueInfo) -> str:
    """Return a declared type as it stands at an edge, such as `float32[batch, 3]`.

    >>> import numpy as np
    >>> type_of(ValueInfo("x", "tensor(float)", np.dtype(np.float32), ("batch", 3, None)))
    'float32[batch, 3, ?]'
    """
    if info.type is None:
        return ""
    if info.container or info.dtype is None:
        return info.type[:_LONGEST_TYPE]
    name = short_name(info.dtype)
    if info.shape is None:
        return name
    sizes = ", ".join("?" if size is None else str(size) for size in info.shape)
    return f"{name}[{sizes}]"[:_LONGEST_TYPE]


def type_of_named(named: Named | None) -> str:
    """Return the dtype and shape of a traced value; empty if it has none."""
    return "" if named is None or named.spec is None else spec_text(named.spec)
