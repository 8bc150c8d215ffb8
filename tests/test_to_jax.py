"""A model as a pure function of JAX: what it takes, what leaves it, and what it refuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest

import sardonyx
from tests.support.jax_models import drawn, mixed, perceptrons
from tests.support.onnx_builders import INT64, model, node, value, weight

MODELS = "tests/models"


@pytest.fixture(params=[False, True], ids=["x32", "x64"])
def mode(request: pytest.FixtureRequest) -> Any:
    with jax.enable_x64(request.param):
        yield request.param


# -- what it is -----------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["cnn_dynamo", "encoder_torchscript", "decoder_dynamo"])
def test_results_are_those_of_onnxruntime(name: str) -> None:
    fn, params = sardonyx.to_jax(f"{MODELS}/{name}.onnx")
    calls = np.load(f"{MODELS}/{name}.npz")
    given = {key[5:]: calls[key] for key in calls if key.startswith("1/in/")}
    expected = [calls[key] for key in calls if key.startswith("1/out/")]
    for call in (fn, jax.jit(fn)):
        made = jax.tree.leaves(call(params, **given))
        for one, other in zip(made, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_the_jaxpr_is_that_of_a_person() -> None:
    imported, written, params = perceptrons()
    one, other = (jax.make_jaxpr(fn)(params, drawn(4, 6)) for fn in (imported, written))
    assert str(one) == str(other)
    slopes = [
        jax.make_jaxpr(jax.grad(lambda p, x, fn=fn: fn(p, x).sum())) for fn in (imported, written)
    ]
    one, other = (slope(params, drawn(4, 6)) for slope in slopes)
    assert str(one) == str(other)


def test_params_are_floats_and_what_decides_no_shape() -> None:
    nodes = [
        node("Mul", ["half", "factors"], ["scales"]),
        node("Resize", ["x", "", "scales"], ["larger"]),
        node("Mul", ["larger", "gain"], ["m"]),
        node("Gather", ["m", "many"], ["g"], axis=2),
        node("Reshape", ["g", "shape"], ["y"]),
    ]
    weights = {
        "half": np.float32(0.5),
        "factors": np.array([2, 2, 4, 4], np.float32),
        "gain": np.float32(3),
        "many": np.arange(2000) % 4,
        "shape": np.array([-1, 8]),
    }
    fn, params = sardonyx.to_jax(
        model(nodes, [value("x", [1, 1, 2, 2])], ["y"], [weight(*w) for w in weights.items()])
    )
    assert params.keys() == {"gain", "many"}
    assert not fn.trainable
    made = jax.jit(fn)(params, drawn(1, 1, 2, 2))
    assert made.shape == (1000, 8)
    np.testing.assert_allclose(made, fn(params, drawn(1, 1, 2, 2)))


def test_what_decides_a_shape_inside_of_a_function_stays_inside() -> None:
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("mine", 1)]
    larger = onnx.helper.make_function(
        "mine", "Larger", ["x", "by"], ["y"], [node("Resize", ["x", "", "by"], ["y"])], opsets
    )
    made = model(
        [node("Larger", ["x", "by"], ["h"], domain="mine"), node("Mul", ["h", "w"], ["y"])],
        [value("x", [1, 1, 2, 2])],
        ["y"],
        [weight("by", np.array([1, 1, 2, 2], np.float32)), weight("w", drawn(4))],
        functions=[larger],
        mine=1,
    )
    fn, params = sardonyx.to_jax(made)
    assert params.keys() == {"w"}
    assert jax.eval_shape(fn, params, drawn(1, 1, 2, 2)).shape == (1, 1, 4, 4)


def test_weights_come_from_the_call_alone() -> None:
    fn, params = sardonyx.to_jax(mixed())
    jitted, x = jax.jit(fn), drawn(4, 5)
    before = jitted(params, x)
    doubled = {**params, "table": params["table"] * 2}
    np.testing.assert_allclose(jitted(doubled, x)["y"], before["y"] * 2, rtol=1e-6)
    np.testing.assert_array_equal(jitted(params, x)["y"], before["y"])
    # The caller's buffers are its own: giving them up leaves the function as it was.
    loaded = {name: jnp.array(array) for name, array in params.items()}
    jax.jit(lambda p: jax.tree.map(lambda a: a + 1, p), donate_argnums=0)(loaded)
    np.testing.assert_array_equal(jitted(params, x)["y"], before["y"])


def test_the_weights_of_a_model_are_shared_and_not_copied() -> None:
    loaded = sardonyx.load(mixed(), backend="jax")
    loaded.params["table"] = loaded.params["table"] * 3
    _, params = sardonyx.to_jax(loaded)
    assert all(params[name] is loaded.params[name] for name in params)
    on_numpy = sardonyx.load(mixed(), backend="numpy")
    _, copied = sardonyx.to_jax(on_numpy)
    np.testing.assert_allclose(copied["table"] * 3, params["table"])


def test_results_are_a_pytree_by_name_and_of_one_class_for_the_same_names() -> None:
    (fn, params), (other, _) = sardonyx.to_jax(mixed()), sardonyx.to_jax(mixed())
    made = jax.lax.cond(True, fn, other, params, drawn(4, 5))
    assert made.keys() == ("y", "place")
    assert jax.tree.map(jnp.shape, made)["y"] == (4, 3)


def test_an_input_with_a_default_may_be_given() -> None:
    nodes = [node("ReduceSum", ["x", "axes"], ["s"], keepdims=0), node("Mul", ["s", "w"], ["y"])]
    inputs = ["x", value("axes", [1], INT64), value("w", [])]
    weights = [weight("axes", np.array([0])), weight("w", np.float32(2))]
    fn, params = sardonyx.to_jax(model(nodes, inputs, ["y"], weights))
    x = drawn(2, 3)
    assert params.keys() == {"w"}
    np.testing.assert_allclose(fn(params, x), 2 * x.sum(0), rtol=1e-6)
    np.testing.assert_allclose(fn(params, x, axes=np.array([1])), 2 * x.sum(1), rtol=1e-6)
    np.testing.assert_allclose(fn(params, x, w=np.float32(3)), 3 * x.sum(0), rtol=1e-6)


# -- 64 bits --------------------------------------------------------------------------------------


def test_wide_results_leave_in_the_width_of_the_callers_mode(mode: bool) -> None:
    nodes = [node("Cast", ["x"], ["i"], to=INT64), node("Cast", ["x"], ["d"], to=11)]
    fn, params = sardonyx.to_jax(
        model(nodes, ["x"], [value("i", None, INT64), value("d", None, 11)])
    )
    for call in (fn, jax.jit(fn)):
        made = call(params, np.array([1.0, -2.0], np.float32))
        assert [one.dtype.itemsize for one in made] == ([8, 8] if mode else [4, 4])
        np.testing.assert_array_equal(made["i"], [1, -2])
    assert jax.config.jax_enable_x64 == mode


def test_inside_integers_have_64_bits() -> None:
    nodes = [
        node("Cast", ["x"], ["i"], to=INT64),
        node("Mul", ["i", "big"], ["m"]),
        node("Mod", ["m", "prime"], ["y"]),
    ]
    weights = [weight("big", np.int64(2**40)), weight("prime", np.int64(1_000_003))]
    fn, params = sardonyx.to_jax(model(nodes, ["x"], [value("y", None, INT64)], weights))
    x = np.arange(5, dtype=np.float32)
    expected = [i * 2**40 % 1_000_003 for i in range(5)]
    np.testing.assert_array_equal(jax.jit(fn)(params, x), expected)
    np.testing.assert_array_equal(jax.vmap(fn, (None, 0))(params, x[:, None])[:, 0], expected)


def test_what_does_not_fit_is_an_error_where_it_is_known() -> None:
    nodes = [node("Cast", ["x"], ["i"], to=INT64), node("Mul", ["i", "big"], ["y"])]
    fn, params = sardonyx.to_jax(
        model(nodes, ["x"], [value("y", None, INT64)], [weight("big", np.int64(2**40))])
    )
    x = np.array([0, 1, -1], np.float32)
    with pytest.raises(sardonyx.InvalidInput, match=r"1099511627776 does not fit int32.*64-bit"):
        fn(params, x)
    # Under jit no value is known: what does not fit is the nearest that does.
    limits = [0, 2**31 - 1, -(2**31)]
    np.testing.assert_array_equal(jax.jit(fn)(params, x), limits)
    with jax.enable_x64(True):
        np.testing.assert_array_equal(jax.jit(fn)(params, x), [0, 2**40, -(2**40)])

    known = [node("Identity", ["big"], ["y"])]
    big = weight("big", np.array([2**40]))
    fn, params = sardonyx.to_jax(model(known, ["x"], [value("y", None, INT64)], [big]))
    with pytest.raises(sardonyx.InvalidInput, match="1099511627776 does not fit int32"):
        jax.jit(fn)(params, x)


def test_params_have_the_width_of_the_callers_mode(mode: bool) -> None:
    large = np.arange(3000) % 3
    nodes = [node("Gather", ["w", "large"], ["g"]), node("Mul", ["x", "g"], ["y"])]
    made = model(
        nodes,
        [value("x", None, 11)],
        [value("y", None, 11)],
        [weight("w", np.array([0.1, 0.2, 0.3])), weight("large", large)],
    )
    fn, params = sardonyx.to_jax(made)
    assert [params[name].dtype.itemsize for name in ("w", "large")] == ([8, 8] if mode else [4, 4])
    x = np.ones(3000) if mode else np.ones(3000, np.float32)
    expected = np.asarray(params["w"])[large]
    made = jax.jit(fn)(params, x)
    assert made.dtype == (np.float64 if mode else np.float32)
    np.testing.assert_array_equal(made, expected)


def test_a_large_param_that_does_not_fit_is_refused() -> None:
    ends = [value("x", None, INT64)], [value("y", None, INT64)]
    made = model([node("Add", ["x", "w"], ["y"])], *ends, [weight("w", np.full(2000, 2**33))])
    with pytest.raises(sardonyx.InvalidInput, match=r"param 'w' has a value.*8589934592"):
        sardonyx.to_jax(made)


# -- at random ------------------------------------------------------------------------------------


def noise(**attributes: Any) -> onnx.ModelProto:
    nodes = [node("RandomNormalLike", ["x"], ["n"], **attributes), node("Add", ["x", "n"], ["y"])]
    return model(nodes, ["x"], ["y"])


def test_what_draws_takes_a_key_and_nothing_else() -> None:
    fn, params = sardonyx.to_jax(noise())
    x = drawn(3, 4)
    with pytest.raises(sardonyx.InvalidInput, match="pass a key"):
        jax.jit(fn)(params, x)
    for call in (fn, jax.jit(fn)):
        one, other = (call(params, x, key=jax.random.key(seed)) for seed in (0, 1))
        np.testing.assert_array_equal(one, call(params, x, key=jax.random.key(0)))
        assert (one != other).all()
        with pytest.raises(sardonyx.InvalidInput, match="pass a key"):
            fn(params, x)
    several = jax.vmap(lambda key: fn(params, x, key=key))(jax.random.split(jax.random.key(0), 3))
    assert (several[0] != several[1]).all()


def test_a_seed_of_the_graph_needs_no_key() -> None:
    fn, params = sardonyx.to_jax(noise(seed=3.0))
    x = drawn(3, 4)
    np.testing.assert_array_equal(jax.jit(fn)(params, x), fn(params, x))


# -- errors ---------------------------------------------------------------------------------------

X = drawn(4, 5)


@pytest.mark.parametrize(
    ("change", "x", "said"),
    [
        (lambda p: {k: v for k, v in p.items() if k != "w"}, [X], "params lack 'w'"),
        (lambda p: p | {"v": 1}, [X], "have the unknown 'v'"),
        (
            lambda p: p | {"w": p["w"].T},
            [X],
            r"'w' must be float32\[5, 7\], and is float32\[7, 5\]",
        ),
        (lambda p: p | {"w": p["w"].astype(jnp.bfloat16)}, [X], r"'w' must be float32.*bfloat16"),
        (lambda p: X, [X], "first argument is a .*: pass params"),
        (lambda p: p, [], "also needs x"),
        (lambda p: p, [X, X], "but 2 were passed"),
        (lambda p: p, [X.astype(int)], "'x' must be float32, but is int64"),
        (lambda p: p, [X[0]], r"'x' must have 2 dimensions"),
    ],
)
@pytest.mark.parametrize("how", [lambda fn: fn, jax.jit], ids=["plain", "jit"])
def test_what_does_not_fit_is_told(change: Any, x: Any, said: str, how: Any) -> None:
    fn, params = sardonyx.to_jax(mixed())
    if how is jax.jit and "int64" in said:
        said = said.replace("int64", "int32")  # JAX narrows it before anybody sees it.
    with pytest.raises(sardonyx.InvalidInput, match=said):
        how(fn)(change(params), *x)


def test_what_needs_a_value_says_so_under_jit_and_runs_without() -> None:
    nodes = [node("NonZero", ["x"], ["n"]), node("Transpose", ["n"], ["y"])]
    fn, params = sardonyx.to_jax(model(nodes, ["x"], [value("y", None, INT64)]))
    x = np.array([0, 1, 2], np.float32)
    np.testing.assert_array_equal(fn(params, x), [[1], [2]])
    with pytest.raises(sardonyx.InvalidInput, match=r"NonZero.*transformation"):
        jax.jit(fn)(params, x)


def test_bad_arguments_are_told() -> None:
    with pytest.raises(sardonyx.InvalidInput, match="no precision 'exact'"):
        sardonyx.to_jax(mixed(), precision="exact")
    fn, params = sardonyx.to_jax(mixed())
    with pytest.raises(sardonyx.InvalidInput, match="no input 'z'"):
        fn(params, X, z=X)


def test_precision_is_the_callers() -> None:
    fn, params = sardonyx.to_jax(mixed(), precision="highest")
    assert "HIGHEST" in str(jax.make_jaxpr(fn)(params, X))
    fn, params = sardonyx.to_jax(mixed())
    assert "HIGHEST" not in str(jax.make_jaxpr(fn)(params, X))
    with jax.default_matmul_precision("highest"):
        assert "HIGHEST" in str(jax.make_jaxpr(fn)(params, X))


# -- there and back -------------------------------------------------------------------------------

W1, W2, KERNEL = drawn(6, 8), drawn(8, 3), drawn(4, 3, 3, 3)
WRITTEN: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "perceptron": (lambda x: jax.nn.softmax(jax.nn.gelu(x @ W1) @ W2), [(4, 6)]),
    "convolution": (
        lambda x: jax.nn.relu(jax.lax.conv(x, KERNEL, (1, 1), "SAME")).mean((2, 3)),
        [(2, 3, 8, 8)],
    ),
    "attention": (lambda q, k: jax.nn.softmax(q @ k.T / 2) @ k, [(4, 6), (5, 6)]),
    "recurrence": (
        lambda x: jax.lax.scan(lambda c, v: (jnp.tanh(c @ W1 @ W1.T + v), c), jnp.zeros(6), x)[0],
        [(5, 6)],
    ),
    "order": (lambda x: jnp.sort(x, -1)[..., -2:] * jnp.argmax(x, -1, keepdims=True), [(4, 6)]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITTEN)
def test_from_jax_to_onnx_and_back(name: str) -> None:
    reason = "jax2onnx, of the test extra, is not installed"
    jax2onnx = pytest.importorskip("jax2onnx", reason=reason)
    written, shapes = WRITTEN[name]
    fn, params = sardonyx.to_jax(jax2onnx.to_onnx(written, shapes))
    xs = [jnp.asarray(drawn(*shape)) for shape in shapes]
    np.testing.assert_allclose(jax.jit(fn)(params, *xs), written(*xs), rtol=1e-5, atol=1e-6)
    one, other = (
        jax.grad(lambda *x, f=f: jnp.sum(f(*x) ** 2), range(len(xs)))(*xs)
        for f in (lambda *x: fn(params, *x), written)
    )
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_what_it_says_of_itself() -> None:
    fn, _ = sardonyx.to_jax(mixed())
    assert re.match(
        r"<pure function \(params, x: tensor\(float\)\[n, 5\]\) -> \(y.*place", repr(fn)
    )
    assert fn.trainable == {"w", "b", "table"}
