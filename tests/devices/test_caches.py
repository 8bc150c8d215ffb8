"""Caches of keys and values beside divided heads: divided with them, by the preset "tensor"."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import onnx
import pytest
from jax.sharding import PartitionSpec as P

import sardonyx
from tests.devices.test_rules import mesh
from tests.support.onnx_builders import INT64, model, node, value, weight

HEADS, SIZE, ROOM = 4, 8, 16
WIDTH = HEADS * SIZE
RNG = np.random.default_rng(0)
SHAPE = [WIDTH, WIDTH]
WEIGHTS = [
    *(weight(name, RNG.normal(size=SHAPE).astype(np.float32) / 4) for name in ("wq", "wk", "wv")),
    weight("wo", RNG.normal(size=SHAPE).astype(np.float32) / 4),
    weight("by_head", np.array([0, 0, HEADS, SIZE])),
    weight("joined", np.array([0, 0, WIDTH])),
]


def by_head(name: str) -> list[onnx.NodeProto]:
    return [
        node("MatMul", ["x", f"w{name}"], [f"{name}1"]),
        node("Reshape", [f"{name}1", "by_head"], [f"{name}2"]),
        node("Transpose", [f"{name}2"], [name], perm=[0, 2, 1, 3]),
    ]


def decoder(form: str, room: int | str = ROOM) -> onnx.ModelProto:
    """A step whose cache is a buffer that is written, or grows by concatenation."""
    nodes = [each for name in "qkv" for each in by_head(name)]
    extra = []
    if form == "buffer":
        nodes += [
            node("TensorScatter", ["past_k", "k", "start"], ["new_k"]),
            node("TensorScatter", ["past_v", "v", "start"], ["new_v"]),
            node("Attention", ["q", "new_k", "new_v", "", "", "", "lengths"], ["y"], is_causal=1),
        ]
        extra = [value("start", ["batch"], INT64), value("lengths", ["batch"], INT64)]
    elif form == "concat":
        nodes += [
            node("Concat", ["past_k", "k"], ["new_k"], axis=2),
            node("Concat", ["past_v", "v"], ["new_v"], axis=2),
            node("Attention", ["q", "new_k", "new_v"], ["y"]),
        ]
    else:
        names = ["q", "k", "v", "", "past_k", "past_v"]
        nodes.append(node("Attention", names, ["y", "new_k", "new_v"]))
    nodes += [
        node("Transpose", ["y"], ["y1"], perm=[0, 2, 1, 3]),
        node("Reshape", ["y1", "joined"], ["y2"]),
        node("MatMul", ["y2", "wo"], ["out"]),
    ]
    cache = ["batch", HEADS, room, SIZE]
    inputs = [value("x", ["batch", "length", WIDTH])]
    inputs += [value(name, cache) for name in ("past_k", "past_v")] + extra
    return model(nodes, inputs, ["out", "new_k", "new_v"], WEIGHTS, opset=24)


def feeds(form: str) -> dict[str, Any]:
    past = (4, HEADS, ROOM, SIZE)
    found: dict[str, Any] = {"x": RNG.normal(size=(4, 2, WIDTH)).astype(np.float32)}
    found |= {name: RNG.normal(size=past).astype(np.float32) for name in ("past_k", "past_v")}
    if form == "buffer":
        start = np.array([0, 3, 7, 14])
        found |= {"start": start, "lengths": start + 2}
    return found


@pytest.mark.parametrize("axes", [{"model": 4}, {"data": 2, "model": 4}, {"model": 8}], ids=str)
@pytest.mark.parametrize("form", ["buffer", "concat", "past of attention"])
def test_results_are_those_of_one_device(form: str, axes: dict[str, int]) -> None:
    proto, given = decoder(form), feeds(form)
    expected = sardonyx.load(proto, backend="numpy").run(None, given)
    found = sardonyx.shard(proto, mesh(**axes), "tensor").run(None, given)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("form", ["buffer", "concat", "past of attention"])
def test_caches_are_divided_by_heads_and_by_the_batch(form: str) -> None:
    sharded = sardonyx.shard(decoder(form), mesh(data=2, model=4), "tensor")
    layouts = dict(sharded.report.inputs)
    for name in ("past_k", "past_v"):
        assert layouts[name] == "('data', 'model', None, None)"
    given = feeds(form)
    compiled = sharded.compiled(**given)
    arguments = compiled.memory_analysis().argument_size_in_bytes
    whole = sum(given[name].nbytes for name in ("past_k", "past_v"))
    assert arguments < whole / 8 + sharded.report.bytes_per_device + given["x"].nbytes


def test_fewer_heads_than_devices_are_divided_by_positions() -> None:
    sharded = sardonyx.shard(decoder("buffer"), mesh(model=8), "tensor")
    assert dict(sharded.report.inputs)["past_k"] == "(None, None, 'model', None)"
    free = sardonyx.shard(decoder("concat", "past"), mesh(model=8), "tensor")
    assert dict(free.report.inputs)["past_k"] == "replicated"
    assert "'past_k'" in str(free.report)
    assert "4 heads and past positions are no multiple of 8" in str(free.report)


def test_own_rules_come_first() -> None:
    rules = [("past_*", P("model")), "tensor"]
    sharded = sardonyx.shard(decoder("concat"), mesh(model=4), rules)
    assert dict(sharded.report.inputs)["past_k"] == "('model', None, None, None)"


def test_inputs_that_meet_no_divided_heads_stay_whole() -> None:
    image = model([node("Relu", ["image"], ["y"])], [value("image", [2, 4, 8, 8])], ["y"])
    sharded = sardonyx.shard(image, mesh(model=4), "tensor")
    assert dict(sharded.report.inputs)["image"] == "replicated"
    assert jax.device_count() == 8
