"""The plain data of a recording: calls, bodies, and the graph or subgraph that they belong to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import onnx

Symbol: TypeAlias = Any  # A SymbolicArray, whose module imports none of this.


@dataclass(eq=False, slots=True)
class Frame:
    """A graph, or the subgraph of a call, with its calls in the order in which they ran."""

    outer: Frame | None = None
    inputs: list[Symbol] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    outputs: list[Symbol] = field(default_factory=list)

    def sees(self, frame: Frame | None) -> bool:
        """Whether the values of a frame can be read here."""
        here: Frame | None = self
        while here is not None and here is not frame:
            here = here.outer
        return here is frame


@dataclass(eq=False, slots=True)
class Call:
    """A node: an operator, its inputs (None if left out), attributes, bodies and results."""

    op_type: str
    domain: str
    inputs: list[Symbol | None]
    results: list[Symbol | None]
    attributes: list[onnx.AttributeProto] = field(default_factory=list)
    bodies: Mapping[str, Frame] = field(default_factory=dict)
    # Subgraphs of an inlined model as they are, and the values that they read from around them.
    captured: Mapping[str, Symbol] = field(default_factory=dict)
    overload: str = ""
    name: str = ""
    doc: str = ""

    def reads(self) -> Iterator[Symbol]:
        """Yield all values that the call reads, those of its bodies included."""
        yield from (each for each in self.inputs if each is not None)
        yield from self.captured.values()
        for body in self.bodies.values():
            yield from body.outputs
            for call in body.calls:
                yield from call.reads()


def needed_calls(frame: Frame) -> list[Call]:
    """Return the calls of a frame that its outputs depend on, in their order."""
    wanted = {id(each) for each in frame.outputs}
    kept: list[Call] = []
    for call in reversed(frame.calls):
        if any(id(result) in wanted for result in call.results if result is not None):
            kept.append(call)
            wanted.update(id(each) for each in call.reads())
    return kept[::-1]
