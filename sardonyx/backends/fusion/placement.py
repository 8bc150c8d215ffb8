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
    lifetimes: dict[Node, Lifetime] = field(default_factory=dict)
    layout: Layout = field(init=False)

    def __post_init__(self) -> None:
        for step in self.steps:
            if step.is_view:
                self.bases[step.writes[0]] = self.base(step.reads[0])
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
        self.layout = layout(list(self.lifetimes.values()))

    def base(self, node: Node) -> Node:
        return self.bases.get(node, node)

    @property
    def offsets(self) -> dict[Node, int]:
        """Where the nodes that lie in the arena begin."""
        return dict(zip(self.lifetimes, self.layout.offsets, strict=True))
