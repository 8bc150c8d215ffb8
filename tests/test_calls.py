"""Arrays come back as they went in; outputs by order and by name; weights replaced."""

from __future__ import annotations

import pickle
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import array_api_strict
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sardonyx
from sardonyx.backends.base import Backend
from tests.support.counting_backends import CountingJax
from tests.support.onnx_builders import INT64, model, node, value, weight

RNG = np.random.default_rng(0)
W = RNG.normal(size=(40, 40)).astype(np.float32)
C = RNG.normal(size=(40, 40)).astype(np.float32)
X = RNG.normal(size=(5, 40)).astype(np.float32)

LINEAR = model(
    [
        node("MatMul", ["x", "w"], ["h"]),
        node("Relu", ["h"], ["logits"]),
        node("Shape", ["h"], ["sizes"]),
        node("Identity", ["w"], ["weight"]),
        node("Constant", [], ["c"], value=weight("c", C)),
        node("Identity", ["c"], ["constant"]),
    ],
    [value("x", ["batch", 40])],
    ["logits", value("sizes", None, INT64), "weight", "constant"],
    [weight("w", W)],
)


def expected(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.maximum(x @ W, 0)


@pytest.mark.parametrize("library", [np, jnp, array_api_strict], ids=["numpy", "jax", "strict"])
def test_arrays_come_back_in_the_library_they_came_in(library: Any, xp: Backend) -> None:
    x = library.asarray(X)
    out = sardonyx.load(LINEAR, backend=xp)(x)
    for name in ("logits", "sizes", "weight", "constant"):
        assert isinstance(out[name], type(x)), name
    np.testing.assert_allclose(np.asarray(out["logits"]), expected(X), rtol=1e-4, atol=1e-5)
    assert np.asarray(out["sizes"]).tolist() == [5, 40]


def test_run_gives_numpy_arrays_in_the_order_asked_for(xp: Backend) -> None:
    loaded = sardonyx.load(LINEAR, backend=xp)
    sizes, logits = loaded.run(["sizes", "logits"], {"x": jnp.asarray(X)})
    assert type(sizes) is type(logits) is np.ndarray
    assert len(loaded.run(None, {"x": X})) == 4


def test_outputs_are_read_by_order_and_by_name(xp: Backend) -> None:
    out = sardonyx.load(LINEAR, backend=xp)(x=X)
    logits, sizes, *_ = out
    assert out["logits"] is out[0] is logits
    assert out["sizes"] is sizes
    assert set(dict(out)) == {"logits", "sizes", "weight", "constant"}
    with pytest.raises(KeyError, match="no output is named 'scores'"):
        out["scores"]
    assert pickle.loads(pickle.dumps(sardonyx.load(LINEAR, backend="numpy")(X)))["sizes"][0] == 5


def test_nobody_can_write_to_weights_or_constants_through_an_output(xp: Backend) -> None:
    loaded = sardonyx.load(LINEAR, backend=xp)
    for name, content in (("weight", W), ("constant", C), ("sizes", None)):
        for _ in range(2):
            found = np.asarray(loaded(X)[name])
            if found.flags.writeable:
                found[...] = 7
            again = np.asarray(loaded(X)[name])
            np.testing.assert_array_equal(again, [5, 40] if content is None else content)


def test_numbers_and_lists_become_arrays_of_the_declared_type(xp: Backend) -> None:
    proto = model([node("Add", ["a", "b"], ["y"])], [value("a", []), value("b", [2])], ["y"])
    found = sardonyx.load(proto, backend=xp)(1, [2, 3.5])
    assert found.dtype == np.float32
    assert found.tolist() == [3.0, 4.5]


@pytest.mark.parametrize(
    "view",
    [
        np.asfortranarray,
        lambda x: np.repeat(x, 2, axis=0)[::2],
        lambda x: x[::-1][::-1],
        lambda x: x.astype(">f4"),
    ],
    ids=["fortran", "strided", "negative", "byteswapped"],
)
def test_arrays_of_any_layout_are_taken(view: Any, xp: Backend) -> None:
    out = sardonyx.load(LINEAR, backend=xp)(view(X))
    np.testing.assert_allclose(np.asarray(out["logits"]), expected(X), rtol=1e-4, atol=1e-5)


def test_what_the_caller_writes_later_changes_no_result(xp: Backend) -> None:
    loaded = sardonyx.load(LINEAR, backend=xp)
    x = X.copy()
    out = loaded(x)
    x[...] = 0
    np.testing.assert_allclose(np.asarray(out["logits"]), expected(X), rtol=1e-4, atol=1e-5)


def test_params_are_replaced_without_a_new_program() -> None:
    counting = CountingJax()
    loaded = sardonyx.load(LINEAR, backend=counting)
    loaded(X)
    before = (counting.compilations, counting.looks)
    loaded.params["w"] = W * 2
    out = loaded(X)
    assert (counting.compilations, counting.looks) == before
    np.testing.assert_allclose(out["logits"], expected(X) * 2, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(out["weight"], W * 2)
    assert set(loaded.params) == {"w"}
    with pytest.raises(sardonyx.InvalidInput, match=r"'w' is float32\[40, 40\]"):
        loaded.params["w"] = W[:3]


def test_a_static_param_is_replaced_too(xp: Backend) -> None:
    proto = model(
        [node("Reshape", ["x", "shape"], ["y"])], ["x"], ["y"], [weight("shape", np.array([4, 6]))]
    )
    loaded = sardonyx.load(proto, backend=xp)
    x = np.zeros((2, 12), np.float32)
    assert loaded(x).shape == (4, 6)
    loaded.params["shape"] = np.array([3, 8])
    assert loaded(x).shape == (3, 8)


def test_a_model_says_what_it_is() -> None:
    loaded = sardonyx.load(LINEAR, backend="jax")
    assert loaded.backend == "jax"
    assert [(i.name, i.dtype, i.shape) for i in loaded.inputs] == [
        ("x", np.dtype(np.float32), ("batch", 40))
    ]
    assert [o.name for o in loaded.outputs] == ["logits", "sizes", "weight", "constant"]
    assert loaded.opsets == {"": 18}
    assert "x: tensor(float)[batch, 40]" in repr(loaded)


def test_many_threads_may_call_one_model(xp: Backend) -> None:
    loaded = sardonyx.load(LINEAR, backend=xp)
    batches = [RNG.normal(size=(1 + i % 4, 40)).astype(np.float32) for i in range(32)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda x: np.asarray(loaded(x)["logits"]), batches))
    for x, y in zip(batches, found, strict=True):
        np.testing.assert_allclose(y, expected(x), rtol=1e-4, atol=1e-5)


def test_an_eager_recording_lets_go_of_what_nobody_reads_any_more() -> None:
    chain = [node("Neg", [f"v{i}"], [f"v{i + 1}"]) for i in range(40)]
    loaded = sardonyx.load(model(chain, ["v0"], ["v40"]), backend="numpy")
    x = np.zeros(250_000, np.float32)
    tracemalloc.start()
    loaded(x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * x.nbytes


@pytest.mark.parametrize("x64", [False, True])
def test_a_model_is_a_function_under_jaxs_transformations(x64: bool) -> None:
    loaded = sardonyx.load(LINEAR, backend="jax")
    with jax.enable_x64(x64):
        x = jnp.asarray(X)
        inside = jax.jit(loaded)(x)  # The first call ever is a traced one.
        np.testing.assert_allclose(inside["logits"], expected(X), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(loaded(x)["logits"], inside["logits"], rtol=1e-4, atol=1e-5)
        several = jax.vmap(loaded)(jnp.stack([x, 2 * x]))
        np.testing.assert_allclose(several["logits"][1], expected(2 * X), rtol=1e-4, atol=1e-4)
        slope = jax.grad(lambda x: loaded(x)["logits"].sum())(x)
        np.testing.assert_allclose(slope, (X @ W > 0) @ W.T, rtol=1e-4, atol=1e-4)
        assert inside["sizes"].tolist() == [5, 40]


def test_without_64_bits_jax_may_pass_the_narrow_types() -> None:
    proto = model(
        [node("Gather", ["x", "i"], ["y"]), node("Identity", ["i"], ["same"])],
        [value("x", None), value("i", None, INT64)],
        ["y", value("same", None, INT64)],
    )
    loaded = sardonyx.load(proto, backend="jax")
    out = loaded(jnp.asarray(X), jnp.asarray(np.array([2, 0], np.int32)))
    np.testing.assert_array_equal(out["y"], X[[2, 0]])
    assert jax.jit(loaded)(jnp.asarray(X), jnp.array([2, 0]))["y"].shape == (2, 40)
    with pytest.raises(sardonyx.InvalidInput, match="must be int64"):
        loaded(X, np.array([2, 0], np.int32))  # NumPy has int64.


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin", "Hardmax", "NegativeLogLikelihoodLoss"])
def test_64_bits_within_a_model_are_its_own_affair(op: str) -> None:
    """What JAX lowers only after the trace, it lowers as the caller has set it up."""
    labels = [node("ArgMax", ["x"], ["labels"], axis=1, keepdims=0)]
    nodes = {"NegativeLogLikelihoodLoss": [*labels, node(op, ["x", "labels"], ["y"])]}
    proto = model(nodes.get(op, [node(op, ["x"], ["y"])]), [value("x", None)], [value("y", None)])
    loaded = sardonyx.load(proto, backend="jax")
    with jax.enable_x64(False):
        np.testing.assert_allclose(jax.jit(loaded)(jnp.asarray(X)), loaded(X), rtol=1e-6)


@pytest.mark.parametrize(
    ("op", "indices"),
    [("Gather", [2, -3]), ("GatherElements", [[2, -3], [0, 0]]), ("GatherND", [[2, -3], [-1, 2]])],
)
def test_gradients_through_indices_need_no_64_bits(op: str, indices: Any) -> None:
    inputs = [value("x", None), value("i", None, INT64)]
    loaded = sardonyx.load(model([node(op, ["x", "i"], ["y"])], inputs, ["y"]), backend="jax")
    slope = jax.grad(lambda x: (loaded(x, np.asarray(indices)) ** 2).sum())
    with jax.enable_x64(True):
        expected = np.asarray(slope(jnp.asarray(X)))
    with jax.enable_x64(False):
        np.testing.assert_array_equal(slope(jnp.asarray(X)), expected)
    assert np.count_nonzero(expected) == np.unique(loaded(X, np.asarray(indices))).size


def test_a_size_from_data_cannot_be_known_under_jit() -> None:
    proto = model(
        [node("Reshape", ["x", "shape"], ["y"])], ["x", value("shape", None, INT64)], ["y"]
    )
    loaded = sardonyx.load(proto, backend="jax")
    with pytest.raises(sardonyx.InvalidInput, match=r"Reshape.*under a transformation"):
        jax.jit(loaded)(jnp.zeros(6), jnp.array([2, 3]))
    assert jax.jit(lambda x: loaded(x, np.array([2, 3])))(jnp.zeros(6)).shape == (2, 3)


def test_an_input_may_have_any_name(xp: Backend) -> None:
    names = ["self", "inputs", "donate", "options"]
    proto = model([node("Sum", names, ["y"])], [value(name, [2]) for name in names], ["y"])
    loaded = sardonyx.load(proto, backend=xp)
    given = {name: np.full(2, 10**i, np.float32) for i, name in enumerate(names)}
    for _ in range(2):
        np.testing.assert_array_equal(np.asarray(loaded(**given)), [1111, 1111])
    assert loaded.trace(**given).kind("y") == "device"
    assert loaded.memory(**dict.fromkeys(names, (2,))).inputs == 32


def test_a_name_to_donate_is_no_list_of_letters() -> None:
    proto = model([node("Add", ["a", "b"], ["y"])], [value("a", [2]), value("b", [2])], ["y"])
    loaded = sardonyx.load(proto, backend="jax")
    for wrong in ("ab", 5, None, [5], b"a"):
        with pytest.raises(sardonyx.InvalidInput):
            loaded.bind(donate=wrong)
    a, b = jnp.ones(2), jnp.ones(2)
    loaded.bind(donate="a")(a, b)
    assert (a.is_deleted(), b.is_deleted()) == (True, False)


@pytest.mark.parametrize("wrong", [..., "text", [[1], [1, 2]], np.ones(3), None, X[0, 0]])
def test_a_param_is_replaced_by_an_array_that_fits(xp: Backend, wrong: Any) -> None:
    loaded = sardonyx.load(LINEAR, backend=xp)
    with pytest.raises(sardonyx.InvalidInput, match="'w'"):
        loaded.params["w"] = wrong
    with pytest.raises(KeyError, match="no initializer named 'v'"):
        loaded.params["v"] = W


def test_strings_may_be_those_of_numpy() -> None:
    words = np.array([np.str_("a"), "b"], object)
    joined = sardonyx.run_op("StringConcat", words, words.astype(str))
    assert joined.tolist() == ["aa", "bb"]
    assert sardonyx.run_op("StringConcat", words[:0], words[:1]).tolist() == []
    assert sardonyx.run_op("StringConcat", words[0].item(), words[::-1]).tolist() == ["ab", "aa"]
