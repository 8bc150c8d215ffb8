"""Rules and presets: results equal to those of one device, and shardings that are as asked for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import sardonyx
from tests.devices.models import FEATURES, HIDDEN, WORDS, transformer
from tests.support.onnx_builders import INT64, STRING, model, node, value, weight

IDS = np.random.default_rng(0).integers(0, WORDS, (8, 6))


@pytest.fixture(scope="module")
def proto() -> onnx.ModelProto:
    return transformer()


@pytest.fixture(scope="module")
def expected(proto: onnx.ModelProto) -> Any:
    return sardonyx.load(proto, backend="numpy")(IDS)


def mesh(**axes: int) -> jax.sharding.Mesh:
    count = int(np.prod(list(axes.values())))
    return jax.make_mesh(tuple(axes.values()), tuple(axes), devices=jax.devices()[:count])


def collectives(sharded: Any, *inputs: Any) -> dict[str, int]:
    text = sharded.compiled(*inputs).as_text()
    kinds = ("all-reduce", "all-gather", "all-to-all", "collective-permute", "reduce-scatter")
    return {
        kind: found for kind in kinds if (found := len(re.findall(rf" {kind}(-start)?\(", text)))
    }


@pytest.mark.parametrize(
    ("axes", "rules"),
    [
        ({"data": 8}, "data"),
        ({"anything": 8}, "data"),
        ({"model": 4}, "tensor"),
        ({"data": 2, "model": 4}, "tensor"),
        ({"data": 4, "model": 2}, "data"),
        ({"model": 8}, "tensor"),  # More devices than heads.
        ({"model": 3}, "tensor"),  # A number that divides nothing.
        ({"model": 4}, {"*.up": P(None, "model"), "words": P("model")}),
        ({"a": 2, "b": 4}, {"l0.*q": P(("a", "b"), None), "ids": P("a"), "logits": P(None, "b")}),
    ],
)
def test_results_are_those_of_one_device(
    proto: onnx.ModelProto, expected: Any, axes: dict[str, int], rules: Any
) -> None:
    sharded = sardonyx.shard(proto, mesh(**axes), rules)
    found = sharded(IDS)
    assert type(found) is np.ndarray
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_a_mesh_of_any_kind_of_axes_serves(
    proto: onnx.ModelProto, expected: Any, kind: AxisType
) -> None:
    given = jax.make_mesh((2, 4), ("data", "model"), axis_types=(kind, kind))
    found = sardonyx.shard(proto, given, "tensor")(IDS)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


def test_data_parallel_work_needs_no_communication(proto: onnx.ModelProto) -> None:
    sharded = sardonyx.shard(proto, mesh(data=8), "data")
    assert collectives(sharded, IDS) == {}
    (placed,) = jax.tree.leaves(sharded.compiled(IDS).input_shardings[0][2])
    assert placed.spec == P("data", None)


def test_matrices_are_divided_by_columns_and_rows_in_turn(proto: onnx.ModelProto) -> None:
    sharded = sardonyx.shard(proto, mesh(model=4), "tensor")
    specs = {name: array.sharding.spec for name, array in sharded.params.items()}
    for i in range(2):
        for part in ("q", "k", "v", "up"):
            assert specs[f"l{i}.{part}"] == P(None, "model")
            assert specs[f"l{i}.{part}.bias"] == P("model")
        assert specs[f"l{i}.merge"] == specs[f"l{i}.down"] == P("model", None)
        assert specs[f"l{i}.scale"] == P(None)
    assert specs["words"] == P("model", None)
    # One sum after each matrix that is divided by rows, and one for what the table holds.
    assert collectives(sharded, IDS)["all-reduce"] == 5


def test_weights_lie_in_parts(proto: onnx.ModelProto) -> None:
    sharded = sardonyx.shard(proto, mesh(model=4), "tensor")
    array = sharded.params["l0.up"]
    assert {shard.data.shape for shard in array.addressable_shards} == {(FEATURES, HIDDEN // 4)}
    model_weights = sardonyx.load(proto, backend="numpy").params
    np.testing.assert_array_equal(np.asarray(array), model_weights["l0.up"])


def test_the_first_rule_that_matches_holds(proto: onnx.ModelProto) -> None:
    rules = [
        (re.compile(r"^l1\.up$"), P("model")),
        ("*.up", P()),
        "tensor",
    ]
    params = sardonyx.shard(proto, mesh(model=4), rules).params
    assert params["l1.up"].sharding.spec == P("model", None)
    assert params["l0.up"].sharding.spec == P(None, None)
    assert params["l0.q"].sharding.spec == P(None, "model")


def test_outputs_follow_rules(proto: onnx.ModelProto) -> None:
    sharded = sardonyx.shard(proto, mesh(model=4), {"logits": P(None, None, "model")})
    out = sharded(jnp.asarray(IDS, np.int32))
    assert isinstance(out, jax.Array)
    assert out.sharding.is_equivalent_to(NamedSharding(sharded.mesh, P(None, None, "model")), 3)


def test_the_report_tells_what_each_weight_became(proto: onnx.ModelProto) -> None:
    sharded = sardonyx.shard(proto, mesh(model=4), "tensor")
    report = sharded.report
    rows = {row.name: row for row in report.rows}
    assert rows["l0.up"].divided == ((), ("model",))
    assert "columns" in rows["l0.up"].reason
    assert report.bytes_per_device < report.total_bytes / 3
    text = str(report)
    assert "mesh: model 4" in text
    assert "l0.scale" in text
    assert "replicated" in text


def test_a_size_that_no_device_count_divides_stays_whole_and_is_told(
    proto: onnx.ModelProto,
) -> None:
    sharded = sardonyx.shard(proto, mesh(model=3), "tensor")
    assert sharded.params["l0.up"].sharding.spec == P(None, None)
    assert "64 columns are no multiple of 3" in str(sharded.report)


def test_it_works_inside_a_callers_jit(proto: onnx.ModelProto, expected: Any) -> None:
    sharded = sardonyx.shard(proto, mesh(data=8), "data")
    traced = jax.jit(lambda ids: sharded(ids) * 2)(jnp.asarray(IDS, np.int32))
    np.testing.assert_allclose(np.asarray(traced), expected * 2, rtol=4e-5, atol=4e-5)


def test_replaced_weights_of_a_loaded_model_are_those_that_are_divided(
    proto: onnx.ModelProto,
) -> None:
    loaded = sardonyx.load(proto)
    loaded.params["l1.down"] = np.zeros((HIDDEN, FEATURES), np.float32)
    sharded = sardonyx.shard(loaded, mesh(model=4), "tensor")
    np.testing.assert_allclose(sharded(IDS), np.asarray(loaded(IDS)), rtol=2e-5, atol=2e-5)


def test_wide_types_and_several_outputs_stay_what_they_are() -> None:
    proto = model(
        [node("Add", ["x", "big"], ["y"]), node("Cast", ["x"], ["z"], to=11)],
        [value("x", ["n", 2], INT64)],
        [value("y", ["n", 2], INT64), value("z", ["n", 2], onnx.TensorProto.DOUBLE)],
        [weight("big", np.full((600, 2), 2**40)[:1].repeat(2, 1)[:, :2])],
    )
    sharded = sardonyx.shard(proto, mesh(data=4), "data")
    out = sharded(np.arange(8).reshape(4, 2) + 2**41)
    np.testing.assert_array_equal(out["y"], np.arange(8).reshape(4, 2) + 2**41 + 2**40)
    assert out["z"].dtype == np.float64


@pytest.mark.parametrize(
    ("content", "dtype"),
    [("float16", np.float16), ("float64", np.float64), ("bfloat16", jnp.bfloat16)],
)
def test_types_are_divided_alike(content: str, dtype: Any) -> None:
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    matrix = (np.arange(32.0).reshape(4, 8) / 32).astype(dtype)
    proto = model(
        [node("MatMul", ["x", "w"], ["y"])],
        [value("x", ["n", 4], kind)],
        [value("y", ["n", 8], kind)],
        [weight("w", matrix)],
        opset=22,
    )
    x = np.ones((2, 4), dtype)
    sharded = sardonyx.shard(proto, mesh(model=8), "tensor")
    found, wanted = sharded(x), sardonyx.load(proto, backend="numpy")(x)
    assert found.dtype == wanted.dtype == dtype
    np.testing.assert_allclose(found.astype("f"), wanted.astype("f"), rtol=1e-2)


def test_random_operators_draw_on_a_mesh() -> None:
    proto = model(
        [node("RandomNormalLike", ["x"], ["y"])], [value("x", ["n", 64])], [value("y", ["n", 64])]
    )
    sharded = sardonyx.shard(proto, mesh(data=8), "data")
    x = np.zeros((8, 64), np.float32)
    first, second = sharded(x), sharded(x)
    assert not np.array_equal(first, second)
    assert abs(first.std() - 1) < 0.2
    assert len(np.unique(first)) > 500


def test_a_zero_batch_and_a_rank_of_zero_pass() -> None:
    proto = model(
        [node("ReduceSum", ["x"], ["total"], keepdims=0), node("Mul", ["x", "s"], ["y"])],
        [value("x", ["n", 3]), value("s", [])],
        [value("total", []), value("y", ["n", 3])],
    )
    sharded = sardonyx.shard(proto, mesh(data=4), "data")
    out = sharded(np.zeros((0, 3), np.float32), np.float32(2))
    assert out["total"] == 0
    assert out["y"].shape == (0, 3)


@pytest.mark.parametrize(
    ("rules", "complaint"),
    [
        ("both", "There are no rules called 'both'"),
        ({"*.up": P(None, "modal")}, "names the axis 'modal', but the mesh has 'model' \\(4\\)"),
        ({"*.up": P("model", "model")}, "uses an axis of the mesh twice"),
        ({"nothing*": P("model")}, "matches no weight, input or output"),
        ({"*": P(None, "model")}, "cannot be divided by the rule for '\\*'"),
        ({"l0.scale": P(None, "model")}, "it has 1 axes, but axis 1"),
        ({3: P()}, "pattern is a string"),
        ({"*.up": "model"}, "a str: pass a jax.sharding.PartitionSpec"),
        ([("a",)], "A rule is a pattern and a PartitionSpec"),
        (7, "The rules are a int"),
        ("annotations", "has no device annotations"),
    ],
)
def test_rules_that_make_no_sense_are_refused(
    proto: onnx.ModelProto, rules: Any, complaint: str
) -> None:
    with pytest.raises(sardonyx.InvalidInput, match=complaint):
        sardonyx.shard(proto, mesh(model=4), rules)


def test_a_mesh_whose_axes_say_nothing_is_refused(proto: onnx.ModelProto) -> None:
    with pytest.raises(sardonyx.InvalidInput, match="is called 'data' or 'batch' or 'dp'"):
        sardonyx.shard(proto, mesh(a=2, b=2), "data")
    with pytest.raises(sardonyx.InvalidInput, match="pass a mesh"):
        sardonyx.shard(proto)
    with pytest.raises(sardonyx.InvalidInput, match=r"pass a jax\.sharding\.Mesh"):
        sardonyx.shard(proto, 8)


def test_a_batch_that_cannot_be_divided_is_refused(proto: onnx.ModelProto) -> None:
    sharded = sardonyx.shard(proto, mesh(data=8), "data")
    with pytest.raises(sardonyx.InvalidInput, match="size 6 on axis 0 is no multiple of 8"):
        sharded(IDS[:6])
    with pytest.raises(sardonyx.InvalidInput, match="must be int64"):
        sharded(IDS.astype(np.float32))
    with pytest.raises(sardonyx.InvalidInput, match="also needs ids"):
        sharded()


def test_what_only_the_host_can_do_is_refused_with_its_node() -> None:
    proto = model([node("NonZero", ["x"], ["y"], name="find")], ["x"], [value("y", None, INT64)])
    sharded = sardonyx.shard(proto, mesh(data=8), "data")
    with pytest.raises(sardonyx.InvalidInput, match="'find'"):
        sharded(np.ones(8, np.float32))
    text = model(
        [node("Identity", ["x"], ["y"])], [value("x", ["n"], STRING)], [value("y", ["n"], STRING)]
    )
    with pytest.raises(sardonyx.SardonyxError, match="tensor of numbers"):
        sardonyx.shard(text, mesh(data=8), "data")(np.asarray(["a"] * 8, object))


def test_the_encoder_of_the_examples_is_divided() -> None:
    path = Path("examples/encoder.onnx")
    x = np.random.default_rng(1).normal(size=(8, 5, 48)).astype(np.float32)
    wanted = sardonyx.load(path, backend="numpy")(x)
    for rules in ("data", "tensor"):
        found = sardonyx.shard(path, mesh(data=2, model=4), rules)(x)
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)
