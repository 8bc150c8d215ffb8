"""Small models to divide: a transformer's block, and graphs with ONNX's annotations of devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from tests.support.onnx_builders import INT64, model, node, value, weight

WORDS, FEATURES, HEADS, HIDDEN = 40, 16, 4, 64


def transformer(layers: int = 2) -> onnx.ModelProto:
    """Embedding, attention and a network, as exporters write them."""
    rng = np.random.default_rng(7)
    weights = [weight("words", rng.normal(size=(WORDS, FEATURES)).astype(np.float32))]
    nodes = [node("Gather", ["words", "ids"], ["x0"])]
    for i in range(layers):
        nodes += _layer(i, weights, rng)
    nodes += [
        node("Transpose", ["words"], ["out"], perm=[1, 0]),
        node("MatMul", [f"x{layers}", "out"], ["logits"]),
    ]
    return model(
        nodes,
        [value("ids", ["batch", "length"], INT64)],
        [value("logits", ["batch", "length", WORDS])],
        weights,
    )


def _layer(i: int, weights: list[Any], rng: np.random.Generator) -> list[onnx.NodeProto]:
    def matrix(name: str, rows: int, columns: int) -> str:
        scale = rows**-0.5
        weights.append(
            weight(f"l{i}.{name}", (rng.normal(size=(rows, columns)) * scale).astype("f"))
        )
        return f"l{i}.{name}"

    def vector(name: str, size: int) -> str:
        weights.append(weight(f"l{i}.{name}", rng.normal(size=size).astype(np.float32)))
        return f"l{i}.{name}"

    def named(name: str) -> str:
        return f"{name}{i}"

    nodes = []
    weights.append(weight(named("split"), np.asarray([0, 0, HEADS, -1])))
    weights.append(weight(named("joined"), np.asarray([0, 0, -1])))
    for part in "qkv":
        matrix(part, FEATURES, FEATURES), vector(f"{part}.bias", FEATURES)
        nodes += [
            node("MatMul", [f"x{i}", f"l{i}.{part}"], [named(f"{part}m")]),
            node("Add", [named(f"{part}m"), f"l{i}.{part}.bias"], [named(f"{part}b")]),
            node("Reshape", [named(f"{part}b"), named("split")], [named(f"{part}h")]),
            node(
                "Transpose",
                [named(f"{part}h")],
                [named(part)],
                perm=[0, 2, 3, 1] if part == "k" else [0, 2, 1, 3],
            ),
        ]
    scale = vector("scale", FEATURES), vector("shift", FEATURES)
    return [
        *nodes,
        node("MatMul", [named("q"), named("k")], [named("scores")]),
        node("Softmax", [named("scores")], [named("shares")], axis=-1),
        node("MatMul", [named("shares"), named("v")], [named("mixed")]),
        node("Transpose", [named("mixed")], [named("turned")], perm=[0, 2, 1, 3]),
        node("Reshape", [named("turned"), named("joined")], [named("flat")]),
        node("MatMul", [named("flat"), matrix("merge", FEATURES, FEATURES)], [named("merged")]),
        node("Add", [named("merged"), f"x{i}"], [named("sum")]),
        node("LayerNormalization", [named("sum"), *scale], [named("normal")], axis=-1),
        node("MatMul", [named("normal"), matrix("up", FEATURES, HIDDEN)], [named("wide")]),
        node("Add", [named("wide"), vector("up.bias", HIDDEN)], [named("biased")]),
        node("Relu", [named("biased")], [named("active")]),
        node("MatMul", [named("active"), matrix("down", HIDDEN, FEATURES)], [named("narrow")]),
        node("Add", [named("narrow"), named("normal")], [f"x{i + 1}"]),
    ]


def annotated(
    proto: onnx.ModelProto,
    shardings: Mapping[str, Mapping[str, Any]],
    *,
    devices: int = 4,
    name: str = "four",
    stages: Sequence[int] = (),
) -> onnx.ModelProto:
    """The model with what is said of the tensors of its nodes: by node, then by tensor.

    Of a tensor: a list of (axis, shards), and the devices or groups of them in order.
    """
    proto.ir_version = 11
    proto.configuration.add(name=name, num_devices=devices)
    for place, one in enumerate(proto.graph.node):
        said = shardings.get(one.name or one.output[0], {})
        if not said and not stages:
            continue
        entry = one.device_configurations.add(configuration_id=name)
        if stages:
            entry.pipeline_stage = stages[place]
        for tensor, (axes, groups) in said.items():
            _sharding(entry.sharding_spec.add(tensor_name=tensor), axes, groups)
    return proto


def _sharding(spec: Any, axes: Sequence[Any], groups: Sequence[Any]) -> None:
    for axis, *parts in axes:
        dim = spec.sharded_dim.add(axis=axis)
        for part in parts:
            if isinstance(part, int):
                dim.simple_sharding.add(num_shards=part)
            else:
                dim.simple_sharding.add(dim_value=part[0], num_shards=part[1])
    for number, group in enumerate(groups):
        if isinstance(group, int):
            spec.device.append(group)
        else:
            spec.device.append(-1 - number)
            spec.index_to_device_group_map.add(key=-1 - number, value=group)
