"""ONNX's device annotations, converted to layouts over the axes of a mesh.

An annotation assigns a shard to each numbered device. The position of a device in a mesh has one
coordinate per axis of the mesh, like the digits of its number. So an axis of a tensor is divided
along those axes of the mesh whose coordinates are the digits of the shard's number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from sardonyx.errors import InvalidInput
from sardonyx.graph.checking.audit import all_nodes
from sardonyx.graph.ir import Configuration, DividedAxis, Division, Node, Placement, Source
from sardonyx.sharding.layout import Layout, MeshAxes, Misfit

Numbers: TypeAlias = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Annotated:
    """The nodes that one configuration places."""

    configuration: Configuration
    nodes: tuple[tuple[Node, Placement], ...]

    @classmethod
    def of(cls, source: Source, name: str | None) -> Annotated | None:
        """Return the placements of the configuration with this name, or of the only one."""
        declared = source.configurations
        if name is not None and name not in declared:
            raise InvalidInput(
                f"The model declares no device configuration '{name}'; it declares "
                f"{', '.join(declared) or 'none'}."
            )
        placed = [
            (node, placement) for node, _ in all_nodes(source) for placement in node.placements
        ]
        used = dict.fromkeys(placement.configuration for _, placement in placed)
        if name is None and len(used) > 1:
            raise InvalidInput(
                "The model has annotations for several device configurations: pass "
                f"configuration= one of {', '.join(used)}."
            )
        chosen = name or next(iter(used), None)
        if chosen is None:
            return None
        nodes = [(node, p) for node, p in placed if p.configuration == chosen]
        return cls(declared[chosen], tuple(nodes))

    @property
    def stages(self) -> int:
        """The number of pipeline stages that the nodes are assigned to."""
        return len({placement.stage for _, placement in self.nodes} - {None})

    def mesh_axes(self, preferred: MeshAxes | None) -> dict[str, int]:
        """Return the axes of a mesh along which most annotated tensors can be divided.

        The preferred axes win a tie.
        """
        candidates = [dict(preferred)] if preferred else []
        candidates += map(_named, factorisations(self.configuration.devices))
        divisions = {division for _, placement in self.nodes for division in placement.divisions}

        def unmapped(axes: MeshAxes) -> int:
            return sum(not _maps(division, axes) for division in divisions)

        return min(candidates, key=unmapped)


def _named(sizes: Sequence[int]) -> dict[str, int]:
    if len(sizes) == 1:
        return {"devices": sizes[0]}
    return {f"devices{i}": size for i, size in enumerate(sizes)}


def factorisations(count: int) -> list[tuple[int, ...]]:
    """Return all ordered factorisations of a number of devices, those with few factors first.

    >>> factorisations(8)
    [(8,), (2, 4), (4, 2), (2, 2, 2)]
    """
    several = [
        (first, *rest)
        for first in range(2, count // 2 + 1)
        if count % first == 0
        for rest in factorisations(count // first)
    ]
    return sorted([(count,), *several], key=len)


def _maps(division: Division, axes: MeshAxes) -> bool:
    try:
        layout_of(division, axes)
    except Misfit:
        return False
    return True


def layout_of(division: Division, axes: MeshAxes) -> Layout:
    """Return the annotated layout along the axes of a mesh; raise `Misfit` if there is none."""
    for axis in division.axes:
        _require_contiguous(axis)
    shards = _shards(division, math.prod(axes.values()))
    counts = [axis.shards for axis in division.axes]
    places = np.unravel_index(shards, counts) if counts else ()
    pairs = zip(division.axes, places, strict=True)
    divided = [(a.axis, _digits(place, axes, a.shards)) for a, place in pairs if a.shards > 1]
    return Layout(tuple(divided))


def _shards(division: Division, count: int) -> Numbers:
    """Return the shard number of each device."""
    shards = np.full(count, -1, np.int64)
    for number, group in enumerate(division.groups):
        shards[list(group)] = number
    if division.groups and np.any(shards < 0):
        devices = ", ".join(map(str, np.flatnonzero(shards >= 0).tolist()))
        raise Misfit(f"it is only on the devices {devices} of {count}")
    return np.maximum(shards, 0)


def _require_contiguous(axis: DividedAxis) -> None:
    """Raise `Misfit` unless each shard is one contiguous part of the axis."""
    for outer, inner in pairwise(axis.parts):
        whole = outer.blocks is not None and outer.blocks == outer.count
        if inner.count > 1 and not whole:
            raise Misfit(f"its shards on axis {axis.axis} are not contiguous")
    for part in axis.parts:
        if part.blocks is not None and part.blocks % part.count:
            raise Misfit(
                f"{part.blocks} blocks on axis {axis.axis} cannot form {part.count} equal shards"
            )


def _digits(place: Numbers, axes: MeshAxes, count: int) -> tuple[str, ...]:
    """Return the axes of the mesh whose coordinates, most significant first, number the shards."""
    places = place.reshape(tuple(axes.values()))
    steps = {
        name: places.take(1, axis=i).flat[0] - places.flat[0]
        for i, (name, size) in enumerate(axes.items())
        if size > 1
    }
    names = sorted((name for name, step in steps.items() if step), key=lambda name: -steps[name])
    sizes = [axes[name] for name in names]
    coordinates = dict(zip(axes, np.indices(places.shape), strict=True))
    if math.prod(sizes) == count:
        numbers = np.ravel_multi_index(tuple(coordinates[name] for name in names), sizes)
        if np.array_equal(numbers, places):
            return tuple(names)
    raise Misfit("its shards do not follow the order of the devices along any axes of a mesh")
