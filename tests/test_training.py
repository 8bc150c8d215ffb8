"""Training: gradients as torch has them, batches that are normalised, params kept and overlaid."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx
import pytest

import sardonyx
from tests.support.jax_models import drawn, mixed
from tests.support.onnx_builders import BOOL, INT64, graph, model, node, value, weight

NETWORKS = sorted(Path("tests/models/gradients").glob("*.onnx"))


@pytest.mark.parametrize("path", NETWORKS, ids=lambda path: path.stem)
@pytest.mark.sampled(5)
def test_gradients_are_those_of_torch(path: Path) -> None:
    fn, params = sardonyx.to_jax(path)
    kept = np.load(path.with_suffix(".npz"))
    slopes = {key.removeprefix("slope/"): kept[key] for key in kept if key.startswith("slope/")}
    trained = {name: params[name] for name in slopes if name != "in"}
    assert trained.keys() <= fn.trainable

    def loss(trained: dict[str, Any], x: Any) -> Any:
        out = fn(params | trained, x)
        return (out * kept["factors"]).sum(), out

    takes_floats = "in" in slopes
    found = jax.jit(jax.grad(loss, (0, 1) if takes_floats else (0,), has_aux=True))
    (made, *by_input), out = found(trained, kept["in"])
    np.testing.assert_allclose(out, kept["out"], rtol=1e-4, atol=1e-5)
    made |= {"in": by_input[0]} if takes_floats else {}
    steepest = max(np.abs(slope).max() for slope in slopes.values())
    for name, slope in slopes.items():
        np.testing.assert_allclose(made[name], slope, rtol=1e-5, atol=1e-5 * steepest, err_msg=name)


def test_there_are_ten_networks() -> None:
    assert len(NETWORKS) == 10


# -- training mode --------------------------------------------------------------------------------


def normalised(opset: int) -> onnx.ModelProto:
    """A convolution, batch normalisation and dropout, as some opset writes them in inference."""
    ratio = [] if opset < 12 else [weight("ratio", np.float32(0.5))]
    told = {"is_test": 1} if opset < 7 else {}
    how: Any = {} if ratio else {"ratio": 0.5, **told}
    dropout = node("Dropout", ["n", *(["ratio"] if ratio else [])], ["y"], **how)
    names = ["w", "scale", "bias", "mean", "var"]
    arrays = [drawn(4, 3, 1, 1), drawn(4), drawn(4) + 1, drawn(4) - 1, np.abs(drawn(4, 1))[:, 0]]
    return model(
        [
            node("Conv", ["x", "w"], ["c"]),
            node("BatchNormalization", ["c", *names[1:]], ["n"], momentum=0.75, **told),
            dropout,
        ],
        [value("x", ["n", 3, "h", "w"])],
        ["y"],
        [*map(weight, names, arrays), *ratio],
        opset=opset,
    )


def by_hand(params: Any, x: Any) -> tuple[Any, Any, Any]:
    c = jnp.einsum("nihw,oi->nohw", x, params["w"][..., 0, 0])
    mean, var = c.mean((0, 2, 3)), c.var((0, 2, 3))
    by_channel = (slice(None), None, None)
    steps = (c - mean[by_channel]) / jnp.sqrt(var[by_channel] + 1e-5)
    return steps * params["scale"][by_channel] + params["bias"][by_channel], mean, var


@pytest.mark.sampled(8)
@pytest.mark.parametrize("opset", [6, 7, 9, 13, 14, 20])
def test_training_normalises_by_batch_and_drops_at_random(opset: int) -> None:
    fn, params = sardonyx.to_jax(normalised(opset), training=True)
    assert fn.trainable == {"w", "scale", "bias"}
    assert fn.statistics == {"mean", "var"}
    x = drawn(6, 3, 8, 9)
    y, renewed = jax.jit(fn)(params, x, key=jax.random.key(1))
    expected, mean, var = by_hand(params, x)
    np.testing.assert_allclose(renewed["mean"], params["mean"] * 0.75 + mean / 4, rtol=1e-4)
    np.testing.assert_allclose(renewed["var"], params["var"] * 0.75 + var / 4, rtol=1e-4)
    kept = np.asarray(y) != 0
    assert 0.45 < kept.mean() < 0.55
    np.testing.assert_allclose(y, np.where(kept, 2 * expected, 0), rtol=1e-4, atol=1e-5)
    with pytest.raises(sardonyx.InvalidInput, match="pass a key"):
        fn(params, x)

    plain, _ = sardonyx.to_jax(normalised(opset))
    assert plain(params | renewed, x).shape == y.shape


@pytest.mark.slow
def test_gradients_go_through_the_batchs_statistics() -> None:
    fn, params = sardonyx.to_jax(normalised(20), training=True)
    x = drawn(6, 3, 8, 9)
    key = jax.random.key(1)
    kept = 2 * (fn(params, x, key=key)[0] != 0)
    made = jax.grad(lambda p: jnp.sum(fn(p, x, key=key)[0] ** 3))(params)
    expected = jax.grad(lambda p: jnp.sum((by_hand(p, x)[0] * kept) ** 3))(params)
    for name in fn.trainable:
        np.testing.assert_allclose(made[name], expected[name], rtol=1e-3, atol=1e-3)


def in_function() -> onnx.ModelProto:
    opsets = [onnx.helper.make_opsetid("", 18)]
    inner = node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"])
    block = onnx.helper.make_function("mine", "Block", list("xsbmv"), ["y"], [inner], opsets)
    names = ["s", "b", "m", "v"]
    weights = [weight(name, np.ones(3, np.float32)) for name in names]
    calls = [node("Block", [one, *names], [other], domain="mine") for one, other in ("xh", "hy")]
    return model(calls, [value("x", [8, 3])], ["y"], weights, functions=[block], mine=1)


def in_loop() -> onnx.ModelProto:
    names = ["s", "b", "m", "v"]
    body = graph(
        [
            node("BatchNormalization", ["c", *names], ["next"]),
            node("Identity", ["on"], ["still"]),
        ],
        [value("i", [], INT64), value("on", [], BOOL), value("c", [8, 3])],
        [value("still", [], BOOL), value("next", [8, 3])],
    )
    weights = [weight(name, np.ones(3, np.float32)) for name in names]
    weights += [weight("times", np.int64(2))]
    loop = node("Loop", ["times", "", "x"], ["y"], body=body)
    return model([loop], [value("x", [8, 3])], ["y"], weights)


@pytest.mark.parametrize("build", [in_function, in_loop])
def test_statistics_learn_wherever_the_node_is(build: Any) -> None:
    """What normalises twice learns twice, as a module of torch does that is called twice."""
    fn, params = sardonyx.to_jax(build(), training=True)
    x = drawn(8, 3)
    _, renewed = jax.jit(fn)(params, x)
    mean = np.float32(1)
    for batch in (x, 1 + (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5)):
        mean = 0.9 * mean + 0.1 * batch.mean(0)
    np.testing.assert_allclose(renewed["m"], mean, rtol=1e-4)


def test_without_statistics_training_renews_nothing() -> None:
    fn, params = sardonyx.to_jax(mixed(), training=True)
    outputs, renewed = fn(params, drawn(4, 5))
    assert renewed == {}
    assert outputs.keys() == ("y", "place")


# -- quantized ------------------------------------------------------------------------------------


def quantized(dtype: Any, *, per_axis: bool, domains: Sequence[str] = ("", "")) -> onnx.ModelProto:
    """A matrix times what nodes of these domains quantize and dequantize."""
    shape = (4,) if per_axis else ()
    scale = np.full(shape, 0.05, np.float32)
    number = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    zeros = np.full(shape, 3 if np.dtype(dtype).kind == "u" else 0)
    zero = onnx.helper.make_tensor("zero", number, shape, zeros.astype(np.float32).ravel())
    nodes = [
        node("QuantizeLinear", ["x", "scale", "zero"], ["q"], axis=1, domain=domains[0]),
        node("DequantizeLinear", ["q", "scale", "zero"], ["d"], axis=1, domain=domains[1]),
        node("MatMul", ["d", "w"], ["y"]),
    ]
    weights = [weight("scale", scale), zero, weight("w", drawn(4, 2))]
    return model(nodes, ["x"], ["y"], weights, opset=21)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("per_axis", [False, True])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, ml_dtypes.int4, ml_dtypes.float8_e4m3fn])
def test_straight_through_changes_slopes_and_no_value(dtype: Any, per_axis: bool) -> None:
    made = quantized(dtype, per_axis=per_axis)
    plain, params = sardonyx.to_jax(made)
    straight, _ = sardonyx.to_jax(made, straight_through=True)
    x = 3 * drawn(16, 4)
    np.testing.assert_array_equal(straight(params, x), plain(params, x))
    np.testing.assert_array_equal(jax.jit(straight)(params, x), plain(params, x))

    limits = (ml_dtypes.finfo if "float" in np.dtype(dtype).name else ml_dtypes.iinfo)(dtype)
    least, greatest = float(limits.min), float(limits.max)
    offset = 3 if np.dtype(dtype).kind == "u" else 0
    is_within = (x / 0.05 + offset >= least - 0.5) & (x / 0.05 + offset <= greatest + 0.5)
    assert straight(params, x).dtype == np.float32
    slope = jax.grad(lambda x: straight(params, x).sum())(x)
    np.testing.assert_allclose(slope, is_within * np.asarray(params["w"]).sum(1), rtol=1e-5)
    assert not np.any(jax.grad(lambda x: plain(params, x).sum())(x)) or "float8" in str(dtype)


@pytest.mark.parametrize(
    "domains", [("com.microsoft", "com.microsoft"), ("", "com.microsoft"), ("com.microsoft", "")]
)
def test_straight_through_nodes_of_com_microsoft(domains: tuple[str, str]) -> None:
    x = 3 * drawn(16, 4)
    values, slopes = [], []
    for each in (("", ""), domains):
        fn, params = sardonyx.to_jax(
            quantized(np.int8, per_axis=True, domains=each), straight_through=True
        )
        values.append(fn(params, x))
        slopes.append(jax.grad(lambda p, fn=fn: fn(p, x).sum())(params))
    np.testing.assert_array_equal(*values)
    assert np.any(slopes[0]["scale"])
    jax.tree.map(np.testing.assert_array_equal, *slopes)


def test_a_scale_learns_from_what_rounding_moved() -> None:
    made = quantized(np.int8, per_axis=False)
    fn, params = sardonyx.to_jax(made, straight_through=True)
    x, w = 3 * drawn(16, 4), np.asarray(params["w"])
    slope = jax.grad(lambda p: fn(p, x).sum())(params)["scale"]
    place = x / np.float32(0.05)
    moved = np.where(np.abs(place) <= 127.5, np.round(place) - place, np.clip(place, -128, 127))
    np.testing.assert_allclose(slope, (moved @ w).sum(), rtol=1e-4)


@pytest.mark.slow
def test_dynamic_quantization_passes_straight_through() -> None:
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    fn, params = sardonyx.to_jax(model(nodes, ["x"], ["y"]), straight_through=True)
    x = drawn(4, 5)
    y, pulled = jax.vjp(lambda x: fn(params, x), x)
    np.testing.assert_allclose(y, x, atol=0.02)
    inner = (x != x.max()) & (x != x.min())
    np.testing.assert_allclose(np.asarray(pulled(jnp.ones_like(y))[0])[inner], 1, rtol=1e-5)


# -- params ---------------------------------------------------------------------------------------


def test_params_are_told_apart() -> None:
    fn, params = sardonyx.to_jax(normalised(20))
    trained, rest = sardonyx.split_params(params, fn.trainable)
    assert trained.keys() == {"w", "scale", "bias"}
    assert trained.keys() | rest.keys() == params.keys()
    assert sardonyx.split_params(params)[0].keys() == params.keys() - {"ratio"}
    assert sardonyx.split_params(params, "*a*")[0].keys() == {"scale", "bias", "mean", "var"}
    assert sardonyx.split_params(params, ["w"])[0].keys() == {"w"}
    large = sardonyx.split_params(params, lambda name, array: array.ndim > 1)
    assert large[0].keys() == {"w"}
    with pytest.raises(sardonyx.InvalidInput, match="No param is called 'weight'"):
        sardonyx.split_params(params, "weight")


def test_params_travel_in_safetensors(tmp_path: Path) -> None:
    types = [
        "float32",
        "float16",
        "bfloat16",
        "float8_e4m3fn",
        "float8_e5m2",
        "int8",
        "uint32",
        "bool",
    ]
    params = {name: jnp.asarray(drawn(3, 4)).astype(name) for name in types}
    params |= {"turned": params["float32"].T, "single": jnp.float32(2), "empty": jnp.zeros((0, 3))}
    sardonyx.save_params(tmp_path / "kept.safetensors", params)
    again = sardonyx.load_params(tmp_path / "kept.safetensors")
    assert again.keys() == params.keys()
    for name, array in params.items():
        assert isinstance(again[name], jax.Array)
        assert again[name].dtype == array.dtype
        np.testing.assert_array_equal(again[name], array)


def test_files_that_hold_no_params_are_told(tmp_path: Path) -> None:
    with pytest.raises(sardonyx.InvalidInput, match="int4, which safetensors"):
        sardonyx.save_params(tmp_path / "kept", {"w": np.zeros(3, ml_dtypes.int4)})
    (tmp_path / "text").write_text("no params at all")
    with pytest.raises(sardonyx.InvalidInput, match="No params can be read"):
        sardonyx.load_params(tmp_path / "text")
    sardonyx.save_params(tmp_path / "wide", {"w": np.array([2**40])})
    with pytest.raises(sardonyx.InvalidInput, match=r"'w' has a value.*does not fit int32"):
        sardonyx.load_params(tmp_path / "wide")
    with jax.enable_x64(True):
        assert sardonyx.load_params(tmp_path / "wide")["w"] == 2**40


@pytest.mark.slow
def test_overlays_of_low_rank_begin_as_nothing_and_train_alone() -> None:
    optax = pytest.importorskip("optax", reason="optax, of the test extra, is not installed")
    fn, params = sardonyx.to_jax(normalised(20))
    adapters = sardonyx.lora_init(params, 2, key=jax.random.key(0))
    assert adapters.keys() == {"w"}
    assert [part.shape for part in adapters["w"]] == [(4, 2), (2, 3)]
    x = drawn(6, 3, 8, 9)
    np.testing.assert_array_equal(fn(sardonyx.apply_overlays(params, adapters), x), fn(params, x))
    assert sardonyx.apply_overlays(params, adapters)["bias"] is params["bias"]

    def loss(adapters: Any) -> Any:
        return jnp.mean((fn(sardonyx.apply_overlays(params, adapters, scale=0.5), x) - 1) ** 2)

    optimizer = optax.adam(0.05)

    @jax.jit
    def step(adapters: Any, state: Any) -> Any:
        value, slopes = jax.value_and_grad(loss)(adapters)
        updates, state = optimizer.update(slopes, state)
        return optax.apply_updates(adapters, updates), state, value

    state, losses = optimizer.init(adapters), []
    for _ in range(40):
        adapters, state, value = step(adapters, state)
        losses.append(float(value))
    assert losses[-1] < 0.8 * losses[0]
    with pytest.raises(sardonyx.InvalidInput, match="no param 'v'"):
        sardonyx.apply_overlays(params, {"v": adapters["w"]})


@pytest.mark.slow
def test_params_travel_through_orbax(tmp_path: Path) -> None:
    reason = "orbax-checkpoint, of the test extra, is not installed"
    checkpoint = pytest.importorskip("orbax.checkpoint", reason=reason)
    fn, params = sardonyx.to_jax(mixed())
    with checkpoint.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path.resolve() / "kept", params)
        checkpointer.wait_until_finished()
        again = checkpointer.restore(tmp_path.resolve() / "kept", params)
    np.testing.assert_array_equal(fn(again, drawn(4, 5))["y"], fn(params, drawn(4, 5))["y"])


def test_a_step_with_optax_learns() -> None:
    """A step with optax over params of which some are trained: its loss falls."""
    optax = pytest.importorskip("optax", reason="optax, of the test extra, is not installed")
    fn, params = sardonyx.to_jax("tests/models/cnn_dynamo.onnx", training=True)
    trained, rest = sardonyx.split_params(params, fn.trainable)
    images, labels = drawn(12, 3, 18, 22), np.arange(12) % 5
    optimizer = optax.sgd(0.1, momentum=0.9)

    def loss(trained: Any, rest: Any) -> Any:
        logits, renewed = fn(trained | rest, images)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        return losses.mean(), rest | renewed

    @jax.jit
    def step(trained: Any, rest: Any, state: Any) -> Any:
        (value, rest), slopes = jax.value_and_grad(loss, has_aux=True)(trained, rest)
        updates, state = optimizer.update(slopes, state)
        return optax.apply_updates(trained, updates), rest, state, value

    state, losses = optimizer.init(trained), []
    for _ in range(30):
        trained, rest, state, value = step(trained, rest, state)
        losses.append(float(value))
    assert losses[-1] < 0.3 * losses[0]
    assert not np.array_equal(rest["features.6.running_mean"], params["features.6.running_mean"])


@pytest.mark.slow
def test_the_example_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("optax", reason="optax, of the test extra, is not installed")
    example: Any = import_module("examples.fine_tuning")
    monkeypatch.setattr(example, "STEPS", 25)
    ways = example.all_ways()
    assert len(ways) == 3
    for losses, _ in ways.values():
        assert np.mean(losses[-5:]) < np.mean(losses[:5])
