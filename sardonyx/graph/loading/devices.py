"""Conversion of a model's device annotations, with the checks that need no shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping

import onnx

from sardonyx.errors import InvalidModel
from sardonyx.graph.ir import Configuration, DividedAxis, Division, Placement, Shards


def configurations(model: onnx.ModelProto) -> dict[str, Configuration]:
    """Return the device configurations that a model declares, by name."""
    declared: dict[str, Configuration] = {}
    for proto in model.configuration:
        title = f"The device configuration '{proto.name}'"
        if not proto.name:
            raise InvalidModel("A device configuration of the model has no name: name it.")
        if proto.name in declared:
            raise InvalidModel(f"{title} is declared twice: rename one.")
        if proto.num_devices < 1:
            raise InvalidModel(f"{title} has {proto.num_devices} devices, but needs at least one.")
        if proto.device and len(proto.device) != proto.num_devices:
            raise InvalidModel(
                f"{title} has {proto.num_devices} devices, but {len(proto.device)} device names: "
                "name all of them or none."
            )
        declared[proto.name] = Configuration(proto.name, proto.num_devices, tuple(proto.device))
    return declared


def placements(
    proto: onnx.NodeProto, declared: Mapping[str, Configuration], label: str
) -> tuple[Placement, ...]:
    """Return the annotations of a node, one for each configuration that it refers to."""
    by_configuration: dict[str, Placement] = {}
    for entry in proto.device_configurations:
        name = entry.configuration_id
        if name not in declared:
            raise InvalidModel(
                f"The {label} is annotated for the device configuration '{name}', which the model "
                f"does not declare; it declares {', '.join(declared) or 'none'}."
            )
        if name in by_configuration:
            raise InvalidModel(
                f"The {label} is annotated twice for the device configuration '{name}': remove one."
            )
        reader = _DivisionReader(proto, declared[name], label)
        divisions = tuple(map(reader.division, entry.sharding_spec))
        stage = entry.pipeline_stage if entry.HasField("pipeline_stage") else None
        by_configuration[name] = Placement(name, divisions, stage)
    return tuple(by_configuration.values())


class _DivisionReader:
    """Reads the sharding of one node's tensors under one configuration."""

    def __init__(self, node: onnx.NodeProto, configuration: Configuration, label: str) -> None:
        self.tensors = frozenset(filter(None, (*node.input, *node.output)))
        self.configuration = configuration
        self.label = label
        self.seen: set[str] = set()

    def division(self, proto: onnx.ShardingSpecProto) -> Division:
        tensor = proto.tensor_name
        if tensor not in self.tensors:
            raise InvalidModel(
                f"The {self.label} has a sharding for '{tensor}', which is neither an input nor an "
                "output of it."
            )
        if tensor in self.seen:
            raise InvalidModel(f"The {self.label} has two shardings for '{tensor}': remove one.")
        self.seen.add(tensor)
        axes = tuple(self._axis(dim, tensor) for dim in proto.sharded_dim)
        groups = self._groups(proto, tensor)
        shards = math.prod(axis.shards for axis in axes)
        if axes and shards != len(groups):
            raise self._invalid(
                tensor, f"has {shards} shards, but {len(groups)} devices or device groups"
            )
        if not axes and groups:
            groups = (tuple(dict.fromkeys(d for group in groups for d in group)),)
        return Division(tensor, groups, axes)

    def _axis(self, proto: onnx.ShardedDimProto, tensor: str) -> DividedAxis:
        if not proto.HasField("axis"):
            raise self._invalid(tensor, "has a sharded dimension without an axis")
        parts = []
        for part in proto.simple_sharding:
            if part.num_shards < 1:
                raise self._invalid(tensor, f"has an axis with {part.num_shards} shards")
            blocks = part.dim_value if part.HasField("dim_value") else None
            parts.append(Shards(blocks, part.num_shards))
        return DividedAxis(proto.axis, tuple(parts))

    def _groups(self, proto: onnx.ShardingSpecProto, tensor: str) -> tuple[tuple[int, ...], ...]:
        """Return for each shard the devices that hold it."""
        groups = {entry.key: tuple(entry.value) for entry in proto.index_to_device_group_map}
        if len(groups) < len(proto.index_to_device_group_map):
            raise self._invalid(tensor, "has two device groups with the same number")
        shards = tuple(groups.get(index, (index,)) for index in proto.device)
        devices = [device for shard in shards for device in shard]
        count = self.configuration.devices
        for device in devices:
            if not 0 <= device < count:
                raise self._invalid(
                    tensor, f"is on device {device}, but there are {count}, numbered from 0"
                )
        if len(set(devices)) < len(devices):
            raise self._invalid(tensor, "names a device twice")
        return shards

    def _invalid(self, tensor: str, problem: str) -> InvalidModel:
        return InvalidModel(
            f"In the {self.label} the sharding of '{tensor}' {problem}, under the device "
            f"configuration '{self.configuration.name}'."
        )
