"""What a model says of many devices is taken over, and checked in so far as it needs no shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping

import onnx

from sardonyx.errors import InvalidModel
from sardonyx.graph.ir import Configuration, DividedAxis, Division, Placement, Shards


def configurations(model: onnx.ModelProto) -> dict[str, Configuration]:
    """The configurations of devices that a model declares, by name."""
    found: dict[str, Configuration] = {}
    for proto in model.configuration:
        title = f"The device configuration '{proto.name}'"
        if not proto.name:
            raise InvalidModel("A device configuration of the model has no name.")
        if proto.name in found:
            raise InvalidModel(f"{title} is declared twice.")
        if proto.num_devices < 1:
            raise InvalidModel(f"{title} has {proto.num_devices} devices; there is at least one.")
        if proto.device and len(proto.device) != proto.num_devices:
            raise InvalidModel(
                f"{title} names {len(proto.device)} devices, but has {proto.num_devices}."
            )
        found[proto.name] = Configuration(proto.name, proto.num_devices, tuple(proto.device))
    return found


def placements(
    proto: onnx.NodeProto, known: Mapping[str, Configuration], label: str
) -> tuple[Placement, ...]:
    """What a node says under each of the model's configurations."""
    found: dict[str, Placement] = {}
    for entry in proto.device_configurations:
        name = entry.configuration_id
        if name not in known:
            raise InvalidModel(
                f"The {label} is placed by the device configuration '{name}', which the model "
                f"does not declare; it declares {', '.join(known) or 'none'}."
            )
        if name in found:
            raise InvalidModel(f"The {label} is placed twice by the device configuration '{name}'.")
        reader = _Divisions(proto, known[name], label)
        divisions = tuple(map(reader.division, entry.sharding_spec))
        stage = entry.pipeline_stage if entry.HasField("pipeline_stage") else None
        found[name] = Placement(name, divisions, stage)
    return tuple(found.values())


class _Divisions:
    """How the tensors of one node are divided under one configuration."""

    def __init__(self, node: onnx.NodeProto, configuration: Configuration, label: str) -> None:
        self.tensors = frozenset(filter(None, (*node.input, *node.output)))
        self.configuration = configuration
        self.label = label
        self.seen: set[str] = set()

    def division(self, proto: onnx.ShardingSpecProto) -> Division:
        tensor = proto.tensor_name
        if tensor not in self.tensors:
            raise InvalidModel(
                f"The {self.label} says how '{tensor}' is sharded, which it neither reads nor "
                "makes."
            )
        if tensor in self.seen:
            raise InvalidModel(f"The {self.label} says twice how '{tensor}' is sharded.")
        self.seen.add(tensor)
        axes = tuple(self._axis(dim, tensor) for dim in proto.sharded_dim)
        groups = self._groups(proto, tensor)
        shards = math.prod(axis.shards for axis in axes)
        if axes and shards != len(groups):
            raise self._wrong(
                tensor, f"is divided into {shards} shards for {len(groups)} devices or groups"
            )
        if not axes and groups:
            groups = (tuple(dict.fromkeys(d for group in groups for d in group)),)
        return Division(tensor, groups, axes)

    def _axis(self, proto: onnx.ShardedDimProto, tensor: str) -> DividedAxis:
        if not proto.HasField("axis"):
            raise self._wrong(tensor, "is divided along an axis that is not given")
        parts = []
        for part in proto.simple_sharding:
            if part.num_shards < 1:
                raise self._wrong(tensor, f"has an axis with {part.num_shards} shards")
            blocks = part.dim_value if part.HasField("dim_value") else None
            parts.append(Shards(blocks, part.num_shards))
        return DividedAxis(proto.axis, tuple(parts))

    def _groups(self, proto: onnx.ShardingSpecProto, tensor: str) -> tuple[tuple[int, ...], ...]:
        """Of each shard the devices that have it."""
        groups = {entry.key: tuple(entry.value) for entry in proto.index_to_device_group_map}
        if len(groups) < len(proto.index_to_device_group_map):
            raise self._wrong(tensor, "has two device groups of one number")
        shards = tuple(groups.get(index, (index,)) for index in proto.device)
        devices = [device for shard in shards for device in shard]
        count = self.configuration.devices
        for device in devices:
            if not 0 <= device < count:
                raise self._wrong(
                    tensor, f"is on device {device}, and there are {count}, counted from 0"
                )
        if len(set(devices)) < len(devices):
            raise self._wrong(tensor, "is twice on one device")
        return shards

    def _wrong(self, tensor: str, what: str) -> InvalidModel:
        return InvalidModel(
            f"By the {self.label} '{tensor}' {what}, under the device configuration "
            f"'{self.configuration.name}'."
        )
