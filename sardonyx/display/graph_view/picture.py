"""What the graph view shows, as plain data: groups, nodes and values, which refer by number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

# The group of everything.
ROOT = 0


@dataclass(slots=True)
class Group:
    """Nodes that fold into one box, such as those of a scope or of a subgraph.

    A group with a `node` is that node: its subgraphs, or the body of its function, are inside.
    """

    name: str
    parent: int
    kind: str = "scope"
    node: int | None = None


@dataclass(slots=True)
class Port:
    """One input or output of a node: the parameter's name and the value, None if left out."""

    name: str
    value: int | None


@dataclass(slots=True)
class Box:
    """One node, or an input or output of a graph."""

    operator: str
    name: str
    group: int
    role: str = "node"
    domain: str = ""
    inputs: list[Port] = field(default_factory=list)
    outputs: list[Port] = field(default_factory=list)
    attributes: list[tuple[str, str]] = field(default_factory=list)
    kind: str | None = None
    segment: int | None = None
    note: str | None = None
    seconds: float | None = None
    bytes: int | None = None


@dataclass(slots=True)
class Flow:
    """One value: its type, shape and kind, as far as they are known; weights have a summary."""

    name: str
    type: str = ""
    kind: str | None = None
    content: str | None = None
    weight: Mapping[str, Any] | None = None


@dataclass(slots=True)
class Picture:
    """Everything that the page shows."""

    title: str
    facts: Sequence[tuple[str, str]] = ()
    groups: list[Group] = field(default_factory=lambda: [Group("", -1, "graph")])
    boxes: list[Box] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    segments: Sequence[str] = ()

    @property
    def nodes(self) -> int:
        """The number of nodes, without inputs and outputs."""
        return sum(box.role == "node" for box in self.boxes)

    def with_profile(self, profile: Mapping[str, Any]) -> Picture:
        """Return the picture with times and memory.

        `profile` maps the name of a node to seconds, or to a pair of seconds and bytes.
        """
        boxes = [_profiled(box, profile.get(box.name)) for box in self.boxes]
        return replace(self, boxes=boxes)

    def as_json(self) -> dict[str, Any]:
        """Return plain data for `json.dumps`, without empty and unknown entries."""
        return {
            "title": self.title,
            "facts": [list(fact) for fact in self.facts],
            "segments": list(self.segments),
            "groups": [_without_blanks(_fields(group)) for group in self.groups],
            "nodes": [_box(box) for box in self.boxes],
            "values": [_without_blanks(_fields(flow)) for flow in self.flows],
        }


def _profiled(box: Box, entry: Any) -> Box:
    if entry is None or box.role != "node":
        return box
    seconds, size = entry if isinstance(entry, tuple) else (entry, None)
    return replace(box, seconds=float(seconds), bytes=None if size is None else int(size))


def _box(box: Box) -> dict[str, Any]:
    row = _fields(box)
    for side in ("inputs", "outputs"):
        row[side] = [[port.name, port.value] for port in getattr(box, side)]
    return _without_blanks(row)


def _fields(row: Any) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__slots__}


def _without_blanks(row: Mapping[str, Any]) -> dict[str, Any]:
    return {n: v for n, v in row.items() if v not in (None, "", [])}
