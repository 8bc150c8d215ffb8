"""Which values of a program lie in its arena, and from when until when they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sardonyx.backends.fusion.arena import Layout, Lifetime, layout
from sardonyx.backends.fusion.nodes import Node
from sardonyx.backends.fusion.steps import Step


@dataclass(eq=False, slots=True)
class Placement:
    """Follows the steps of a program in order.

    A view needs the array that it is a view of. Results leave the program, and with them what they
    are views of; so neither lies in the arena.
    """

    steps: Sequence[Step]
    results: Sequence[Node]
    # The node whose array holds the elements of a view.
    bases: dict[Node, Node] = field(default_factory=dict)
    # Of each node in the arena, from the step that writes it to the last one that reads it.
    lifetimes: dict[Node, Lifetime] = field(default_factory=dict)
    # The node whose place in the arena another one takes over.
    places: dict[Node, Node] = field(default_factory=dict)
    layout: Layout = field(init=False)
    _offsets: dict[Node, int] = field(init=False)

    def __post_init__(self) -> None:
        for step in self.steps:
            if step.is_view:
                self.bases[step.writes[0]] = self.base(step.reads[0])
        self._find_lifetimes()
        needed = dict(self.lifetimes)
        for place, step in enumerate(self.steps):
            self._take_over(step, place, needed)
        self.layout = layout(list(needed.values()))
        self._offsets = dict(zip(needed, self.layout.offsets, strict=True))

    def base(self, node: Node) -> Node:
        return self.bases.get(node, node)

    @property
    def offsets(self) -> dict[Node, int]:
        """Where the nodes that lie in the arena begin."""
        return {node: self._offsets[self.places.get(node, node)] for node in self.lifetimes}

    def _find_lifetimes(self) -> None:
        leaving = {self.base(node) for node in self.results}
        for place, step in enumerate(self.steps):
            if step.writes_into:
                for node in step.writes:
                    if node not in leaving and node.size:
                        size = node.size * node.dtype.itemsize
                        self.lifetimes[node] = Lifetime(size, place, place)
            for node in map(self.base, step.reads):
                if node in self.lifetimes:
                    known = self.lifetimes[node]
                    self.lifetimes[node] = Lifetime(known.size, known.first, place)

    def _take_over(self, step: Step, place: int, needed: dict[Node, Lifetime]) -> None:
        """Let the result have the place of an array that only this step still reads."""
        if not step.overwritable or step.writes[0] not in self.lifetimes:
            return
        (result,) = step.writes
        read = [self.base(node) for node in step.reads]
        for node in step.overwritable:
            # Another operand may be a view of it, and read other elements.
            if node not in self.lifetimes or read.count(node) > 1:
                continue
            if self.lifetimes[node].last == place:
                origin = self.places.get(node, node)
                self.places[result] = origin
                whole, last = needed[origin], self.lifetimes[result].last
                needed[origin] = Lifetime(whole.size, whole.first, last)
                del needed[result]
                return
