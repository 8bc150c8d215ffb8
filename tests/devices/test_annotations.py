"""ONNX's own annotations of devices run as they stand: what XLA compiled is looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import onnx
import pytest
from jax.sharding import PartitionSpec as P

import sardonyx
from tests.devices.models import annotated
from tests.support.onnx_builders import function, model, node, value, weight

RNG = np.random.default_rng(3)
X = RNG.normal(size=(8, 16)).astype(np.float32)
A = RNG.normal(size=(16, 32)).astype(np.float32)
B = RNG.normal(size=(32, 16)).astype(np.float32)


def network() -> onnx.ModelProto:
    return model(
        [
            node("MatMul", ["x", "a"], ["h"], name="up"),
            node("Relu", ["h"], ["r"], name="act"),
            node("MatMul", ["r", "b"], ["y"], name="down"),
        ],
        [value("x", ["n", 16])],
        [value("y", ["n", 16])],
        [weight("a", A), weight("b", B)],
    )


def wanted(x: np.ndarray[Any, Any] = X) -> np.ndarray[Any, Any]:
    return np.maximum(x @ A, 0) @ B


def of(array: jax.Array) -> list[tuple[tuple[int, int], ...]]:
    """For each device, in order, the stretch of each axis that it holds."""
    stretches = {
        shard.device.id: tuple(
            piece.indices(size)[:2] for piece, size in zip(shard.index, array.shape, strict=True)
        )
        for shard in array.addressable_shards
    }
    return [stretches[device] for device in sorted(stretches)]


def test_a_matrix_is_divided_by_columns_and_the_next_by_rows() -> None:
    four = [0, 1, 2, 3]
    proto = annotated(
        network(),
        {
            "up": {"a": ([(1, 4)], four), "h": ([(1, 4)], four)},
            "down": {"b": ([(0, 4)], four), "y": ([], [four])},
        },
    )
    sharded = sardonyx.shard(proto)
    assert dict(sharded.mesh.shape) == {"devices": 4}
    assert sharded.params["a"].sharding.spec == P(None, "devices")
    assert sharded.params["b"].sharding.spec == P("devices", None)
    np.testing.assert_allclose(sharded(X), wanted(), rtol=1e-5, atol=1e-5)
    text = sharded.compiled(X).as_text()
    assert text.count(" all-reduce(") == 1
    assert "f32[8,8]" in text  # Each device makes a quarter of the 32 columns of h.
    assert not sharded.report.notes


def test_what_a_node_makes_is_laid_out_as_annotated() -> None:
    """The output itself is divided, over both axes, in the order in which the file says."""
    devices = [0, 1, 2, 3]
    proto = annotated(network(), {"down": {"y": ([(1, 2), (0, 2)], devices)}})
    sharded = sardonyx.shard(proto)
    out = sharded(jax.numpy.asarray(X))
    assert of(out) == [
        ((0, 4), (0, 8)),
        ((4, 8), (0, 8)),
        ((0, 4), (8, 16)),
        ((4, 8), (8, 16)),
    ]
    np.testing.assert_allclose(np.asarray(out), wanted(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("axes", "groups", "stretches"),
    [
        ([(0, 4)], [0, 1, 2, 3], [(0, 4), (4, 8), (8, 12), (12, 16)]),
        ([(0, 4)], [3, 2, 1, 0], None),
        ([(0, 4)], [0, 2, 1, 3], [(0, 4), (8, 12), (4, 8), (12, 16)]),
        ([(-2, 2)], [[0, 1], [2, 3]], [(0, 8), (0, 8), (8, 16), (8, 16)]),
        ([(0, 2)], [[0, 2], [1, 3]], [(0, 8), (8, 16), (0, 8), (8, 16)]),
        ([], [[0, 1, 2, 3]], [(0, 16)] * 4),
        ([], [0, 1, 2, 3], [(0, 16)] * 4),
        ([(0, 1)], [[0, 1, 2, 3]], [(0, 16)] * 4),
        # Four blocks of four, each of them divided further: one stretch for each device.
        ([(0, (2, 2), (8, 2))], [0, 1, 2, 3], [(0, 4), (4, 8), (8, 12), (12, 16)]),
        # Every shard would have a part of each of two blocks.
        ([(0, (2, 1), (8, 4))], [0, 1, 2, 3], None),
        ([(0, 2)], [0, 1], None),
        ([(0, 3)], [0, 1, [2, 3]], None),
    ],
)
def test_device_lists_and_groups(
    axes: Sequence[Any], groups: Sequence[Any], stretches: Sequence[Any] | None
) -> None:
    """What no mesh of the devices can express stays whole, and the report says why."""
    proto = annotated(network(), {"up": {"a": (axes, groups)}})
    sharded = sardonyx.shard(proto)
    found = [rows for rows, _ in of(sharded.params["a"])]
    assert found == (stretches or [(0, 16)] * 4)
    assert ("'a' of node 'up' stays whole" in str(sharded.report)) == (stretches is None)
    np.testing.assert_allclose(sharded(X), wanted(), rtol=1e-5, atol=1e-5)


def test_layouts_of_several_kinds_share_one_mesh() -> None:
    eight = list(range(8))
    proto = annotated(
        network(),
        {
            "up": {"a": ([(1, 8)], eight), "x": ([(0, 2)], [[0, 1, 2, 3], [4, 5, 6, 7]])},
            "down": {"b": ([(0, 4), (1, 2)], eight)},
        },
        devices=8,
    )
    sharded = sardonyx.shard(proto)
    assert sorted(sharded.mesh.devices.shape) == [2, 2, 2]
    assert of(sharded.params["a"])[3] == ((0, 16), (12, 16))
    assert of(sharded.params["b"])[3] == ((8, 16), (8, 16))
    np.testing.assert_allclose(sharded(X), wanted(), rtol=1e-5, atol=1e-5)
    assert not sharded.report.notes


def test_an_input_is_read_in_another_layout_by_each_node() -> None:
    four = [0, 1, 2, 3]
    proto = annotated(network(), {"act": {"h": ([(0, 4)], four)}, "down": {"r": ([(1, 4)], four)}})
    sharded = sardonyx.shard(proto)
    text = sharded.compiled(X).as_text()
    assert "f32[2,32]" in text  # Relu runs on a quarter of the rows, ...
    assert "f32[8,8]" in text  # ... and the product on a quarter of the columns.
    np.testing.assert_allclose(sharded(X), wanted(), rtol=1e-5, atol=1e-5)


def test_a_given_mesh_is_followed_where_it_serves() -> None:
    proto = annotated(network(), {"up": {"a": ([(1, 2)], [[0, 1], [2, 3]])}})
    mesh = jax.make_mesh((2, 2), ("rows", "columns"), devices=jax.devices()[4:])
    sharded = sardonyx.shard(proto, mesh)
    assert sharded.params["a"].sharding.spec == P(None, "rows")
    assert {device.id for device in sharded.params["a"].devices()} == {4, 5, 6, 7}
    with pytest.raises(sardonyx.InvalidInput, match="is for 4 devices, but there are 8"):
        sardonyx.shard(proto, jax.make_mesh((8,), ("data",)))


def test_sizes_that_are_found_out_of_step_while_tracing_are_told() -> None:
    proto = annotated(network(), {"act": {"r": ([(0, 4)], [0, 1, 2, 3])}})
    sharded = sardonyx.shard(proto)
    np.testing.assert_allclose(sharded(X[:6]), wanted(X[:6]), rtol=1e-5, atol=1e-5)
    assert "size 6 on axis 0 is no multiple of 4" in str(sharded.report)


def test_nodes_of_functions_and_subgraphs_are_placed() -> None:
    body = function("Twice", [node("Add", ["v", "v"], ["w"], name="inner")], ["v"], ["w"])
    proto = model(
        [node("Twice", ["x"], ["y"], domain="mine")],
        [value("x", [8, 4])],
        [value("y", [8, 4])],
        functions=[body],
        mine=1,
    )
    proto.ir_version = 11
    proto.configuration.add(name="two", num_devices=2)
    entry = proto.functions[0].node[0].device_configurations.add(configuration_id="two")
    spec = entry.sharding_spec.add(tensor_name="w", device=[0, 1])
    spec.sharded_dim.add(axis=0).simple_sharding.add(num_shards=2)
    out = sardonyx.shard(proto)(jax.numpy.ones((8, 4)))
    assert out.sharding.spec == P("devices") or out.sharding.spec == P("devices", None)
    np.testing.assert_array_equal(np.asarray(out), np.full((8, 4), 2))


def test_pipeline_stages_are_told() -> None:
    proto = annotated(network(), {}, stages=[0, 0, 1])
    sharded = sardonyx.shard(proto)
    assert "2 stages of the pipeline run one after the other" in str(sharded.report)
    np.testing.assert_allclose(sharded(X), wanted(), rtol=1e-5, atol=1e-5)


def test_one_of_several_configurations_is_chosen() -> None:
    proto = annotated(network(), {"up": {"a": ([(1, 4)], [0, 1, 2, 3])}})
    proto = annotated(proto, {"up": {"a": ([(0, 2)], [0, 1])}}, devices=2, name="two")
    assert of(sardonyx.shard(proto, configuration="two").params["a"])[1] == ((8, 16), (0, 32))
    assert of(sardonyx.shard(proto, configuration="four").params["a"])[1] == ((0, 16), (8, 16))
    with pytest.raises(sardonyx.InvalidInput, match="configuration= one of four, two"):
        sardonyx.shard(proto)
    with pytest.raises(sardonyx.InvalidInput, match="no device configuration 'six'"):
        sardonyx.shard(proto, configuration="six")


def test_other_rules_may_go_before_or_instead() -> None:
    proto = annotated(network(), {"up": {"a": ([(1, 4)], [0, 1, 2, 3])}})
    mesh = jax.make_mesh((4,), ("data",), devices=jax.devices()[:4])
    instead = sardonyx.shard(proto, mesh, "data")
    assert instead.params["a"].sharding.spec == P(None, None)
    before = sardonyx.shard(proto, mesh, [("a", P("data")), "annotations"])
    assert before.params["a"].sharding.spec == P("data", None)
    np.testing.assert_allclose(before(X), wanted(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ({"up": {"y": ([], [0])}}, "sharding for 'y', which is neither an input nor an output"),
        ({"up": {"a": ([(0, 2)], [0, 4])}}, "is on device 4, but there are 4"),
        ({"up": {"a": ([(0, 2)], [0, 0])}}, "names a device twice"),
        ({"up": {"a": ([(0, 2)], [0, 1, 2])}}, "has 2 shards, but 3 devices"),
        ({"up": {"a": ([(0, 0)], [])}}, "an axis with 0 shards"),
    ],
)
def test_annotations_that_contradict_themselves_are_refused(
    said: Mapping[str, Any], complaint: str
) -> None:
    with pytest.raises(sardonyx.InvalidModel, match=complaint):
        sardonyx.load(annotated(network(), said))


def test_declarations_that_contradict_themselves_are_refused() -> None:
    proto = annotated(network(), {"up": {"a": ([(0, 2)], [0, 1])}})
    proto.configuration.add(name="four", num_devices=4)
    with pytest.raises(sardonyx.InvalidModel, match="'four' is declared twice"):
        sardonyx.load(proto)
    del proto.configuration[:]
    with pytest.raises(sardonyx.InvalidModel, match="which the model does not declare"):
        sardonyx.load(proto)
    proto.configuration.add(name="four", num_devices=0)
    with pytest.raises(sardonyx.InvalidModel, match="has 0 devices"):
        sardonyx.load(proto)
    proto.configuration[0].num_devices = 2**30
    with pytest.raises(sardonyx.InvalidInput, match="but there are 8"):
        sardonyx.shard(proto)


def test_on_one_device_an_annotated_model_is_a_model_like_any_other() -> None:
    proto = annotated(network(), {"up": {"a": ([(1, 4)], [0, 1, 2, 3])}})
    np.testing.assert_allclose(sardonyx.load(proto)(X), wanted(), rtol=1e-5, atol=1e-5)
