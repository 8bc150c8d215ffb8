"""What was measured of a call, and sums of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from sardonyx.errors import InvalidInput

_GROUPS = ("operator", "scope", "segment", "name")


@dataclass(frozen=True, slots=True)
class NodeTime:
    """One node, or a step that stands for several nodes after a rewrite, as it runs in a call."""

    name: str
    operator: str
    # The part of the name before its last slash: the layer that the node belongs to.
    scope: str
    segment: int
    # Its part of the segment's seconds.
    seconds: float
    # Read and written by the operator, if each array is moved once.
    bytes: int
    # Additions and multiplications of products and convolutions, and one per element of a result.
    operations: int


@dataclass(frozen=True, slots=True)
class SegmentTime:
    """One segment of a call."""

    number: int
    # How it runs: "compiled", "fused" (CuPy's kernels), "written out" (calls of NumPy), "step by
    # step" or "host".
    tier: str
    # How the times of its nodes were found; see `Profile.method`.
    method: str
    # The factor that turned the times of its nodes, as they were measured, into those that are
    # shown: the segment's seconds here, divided by those of the run that timed the nodes.
    scale: float
    steps: int
    # From the call of its function until its results are computed.
    seconds: float
    # The part of the seconds that belongs to no node: the launch, and operations without a name.
    overhead: float
    bytes: int
    operations: int


@dataclass(frozen=True)
class Group:
    """The sum of several nodes."""

    name: str
    nodes: int
    seconds: float
    bytes: int
    operations: int


@dataclass(frozen=True)
class Measurements:
    """The times of a call: per segment, per node, and outside of both."""

    title: str
    calls: int
    total: float
    segments: tuple[SegmentTime, ...]
    nodes: tuple[NodeTime, ...]
    rest: Mapping[str, float]
    """The time outside of segments: arguments in, between segments, results out.

    The look-up of the call's program belongs to "arguments in".
    """

    @property
    def accounted(self) -> float:
        """The sum of all segments and the rest: a call that waits after each segment."""
        return sum(each.seconds for each in self.segments) + sum(self.rest.values())

    @property
    def remainder(self) -> float:
        """What is left of `total` for no row; negative if the rows sum up to more.

        It is what waiting after each segment and reading the clock cost, and what other work on the
        machine did to one of the two calls.
        """
        return self.total - self.accounted

    @property
    def scales(self) -> tuple[float, float]:
        """The smallest and the largest factor by which nodes were scaled to their segment."""
        factors = [each.scale for each in self.segments] or [1.0]
        return min(factors), max(factors)

    @property
    def method(self) -> str:
        """How the times of nodes were found.

        "steps one by one": each was measured in a call that waits after it. "compiler's profiler":
        XLA reported its operations, which bear the names of nodes; nodes that were fused into one
        operation share it in proportion to their operations. "shares of steps one by one": the
        steps of a compiled or fused segment were measured apart from the call, and share its time.
        "segments only": nodes have no times.

        Each of these slows a segment down. So its nodes are scaled to the time that the segment
        takes in a call, by the factor `scale` of the segment.
        """
        methods = dict.fromkeys(each.method for each in self.segments)
        return ", ".join(methods) or "no segments"

    @property
    def tier(self) -> str:
        """How the segments run: "compiled", "fused", "written out", "step by step" or "host"."""
        return ", ".join(dict.fromkeys(each.tier for each in self.segments)) or "nothing runs"

    @property
    def seconds_by_node(self) -> dict[str, float]:
        """The seconds of each node, by its name."""
        return {group.name: group.seconds for group in self.by("name")}

    @property
    def bytes_by_node(self) -> dict[str, int]:
        """The bytes that each node moves, by its name."""
        return {group.name: group.bytes for group in self.by("name")}

    def by(self, group: str) -> list[Group]:
        """Return the sums of nodes by "operator", "scope", "segment" or "name", slowest first."""
        if group not in _GROUPS:
            raise InvalidInput(f"Nodes are grouped by {', '.join(_GROUPS)}, not by {group!r:.80}.")
        groups: dict[str, list[NodeTime]] = defaultdict(list)
        for node in self.nodes:
            groups[str(getattr(node, group))].append(node)
        sums = [
            Group(
                name,
                len(nodes),
                sum(node.seconds for node in nodes),
                sum(node.bytes for node in nodes),
                sum(node.operations for node in nodes),
            )
            for name, nodes in groups.items()
        ]
        return sorted(sums, key=lambda each: -each.seconds)
