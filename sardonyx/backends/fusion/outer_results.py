"""Results that no kernel computes: arguments, constants, and views of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sardonyx.backends.fusion.nodes import Argument, Constant, Node
from sardonyx.backends.fusion.placement import Placement

View = Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]


@dataclass(frozen=True, eq=False, slots=True)
class OuterResults:
    """How to get these results from the arguments and constants of a call."""

    # The results that are inputs themselves, by number.
    inputs: tuple[int, ...]
    # The views on the way to the others: a function, what it reads, and what it returns.
    views: tuple[tuple[View, int, int], ...]

    def of(self, inputs: Sequence[Any]) -> dict[int, Any]:
        """Return the arrays of these results by number, from all arguments and constants."""
        arrays = {number: inputs[number] for number in self.inputs}
        for view, read, number in self.views:
            source = inputs[read] if read < len(inputs) else arrays[read]
            (arrays[number],) = view((source,), ())
        return arrays


def outer_results(
    placement: Placement, results: Sequence[Node], numbers: dict[Node, int]
) -> OuterResults:
    inputs = [numbers[node] for node in results if isinstance(node, (Argument, Constant))]
    needed = {node for node in results if isinstance(placement.base(node), (Argument, Constant))}
    views = []
    for step in reversed(placement.steps):
        if step.is_view and step.writes[0] in needed:
            (source,), (node,) = step.reads, step.writes
            needed.add(source)
            views.append((step.run, numbers[source], numbers[node]))
    return OuterResults(tuple(dict.fromkeys(inputs)), tuple(reversed(views)))
