"""What a model says of many devices (ONNX's IR 11): configurations, and how tensors are divided."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Configuration:
    """A number of devices that the model's nodes may speak of, by their places in it."""

    name: str
    devices: int
    device_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shards:
    """Blocks that are dealt out to a number of shards; of how many blocks may be left open."""

    blocks: int | None
    count: int


@dataclass(frozen=True, slots=True)
class DividedAxis:
    """How one axis is divided; several parts stand for an axis that was fused of several."""

    axis: int
    parts: tuple[Shards, ...]

    @property
    def shards(self) -> int:
        """Into how many shards the axis is divided."""
        count = 1
        for part in self.parts:
            count *= part.count
        return count


@dataclass(frozen=True, slots=True)
class Division:
    """Where the shards of one tensor of a node are: the last axis that is divided counts fastest.

    Each shard is on all devices of its group.
    """

    tensor: str
    groups: tuple[tuple[int, ...], ...]
    axes: tuple[DividedAxis, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """What a node says of its tensors under one configuration."""

    configuration: str
    divisions: tuple[Division, ...]
    stage: int | None = None
