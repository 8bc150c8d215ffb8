"""The names that the nodes of a graph can read.

A graph may have many subgraphs, so none of them copies the names of the graphs around it.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass


@dataclass(frozen=True, eq=False, slots=True)
class VisibleNames:
    """The names of one graph, without those in `hidden`, and the names of the graphs around it."""

    own: Set[str] = frozenset()
    outer: VisibleNames | None = None
    hidden: Set[str] = frozenset()

    def __contains__(self, name: object) -> bool:
        if name in self.own and name not in self.hidden:
            return True
        return self.outer is not None and name in self.outer

    def among(self, names: Iterable[str]) -> set[str]:
        """Return those of `names` that are visible."""
        return {name for name in names if name in self}
