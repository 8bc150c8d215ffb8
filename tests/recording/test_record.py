"""Python functions as models: what is recorded, what the model computes, and what is refused."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest

import sardonyx
from sardonyx.types import Array, Backend

O = sardonyx.opset(20)  # noqa: E741
NEW = sardonyx.opset(23)
RNG = np.random.default_rng(0)
D, HEADS = 8, 2


def normal(*shape: int) -> Any:
    return RNG.normal(0, 0.5, shape).astype(np.float32)


WEIGHTS = {
    "query": normal(D, D),
    "key": normal(D, D),
    "value": normal(D, D),
    "out": normal(D, D),
    "up": normal(D, 4 * D),
    "bias": normal(4 * D),
    "down": normal(4 * D, D),
    "scale": np.ones(D, np.float32),
}


def block(x: Any, p: Any) -> Any:
    """A small transformer block, with O.* and with methods that all arrays here share."""

    def heads(each: Any) -> Any:
        return O.Transpose(O.Reshape(each, [0, 0, HEADS, D // HEADS]), perm=[0, 2, 1, 3])

    normed = O.LayerNormalization(x, p["scale"])
    q, k, v = (heads(normed @ p[name]) for name in ("query", "key", "value"))
    scores = O.MatMul(q, O.Transpose(k, perm=[0, 1, 3, 2])) / (D // HEADS) ** 0.5
    mixed = O.Transpose(O.MatMul(O.Softmax(scores, axis=-1), v), perm=[0, 2, 1, 3])
    x = x + O.Reshape(mixed, [0, 0, D]) @ p["out"]
    hidden = O.Gelu(O.LayerNormalization(x, p["scale"]) @ p["up"] + p["bias"])
    return x + hidden @ p["down"]


def recorded_block(**options: Any) -> Any:
    return sardonyx.record(
        lambda x: {"y": block(x, WEIGHTS)},
        {"x": ("float32", ["batch", "time", D])},
        weights=WEIGHTS,
        name="block",
        **options,
    )


def test_a_transformer_block_is_the_same_in_python_recorded_and_in_onnxruntime(
    tmp_path: Path,
) -> None:
    x = normal(2, 5, D)
    expected = block(x, WEIGHTS)
    model = recorded_block(backend="numpy")
    assert set(WEIGHTS) < set(model.params)
    assert model.outputs[0].shape == ("batch", "time", D)
    path = tmp_path / "block.onnx"
    sardonyx.save(model, path)
    onnx.checker.check_model(path, full_check=True)
    (theirs,) = onnxruntime.InferenceSession(path).run(None, {"x": x})
    assert theirs.shape == (2, 5, D)
    for found in (model(x), theirs, sardonyx.load(path)(x)):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
    assert onnx.load(path).graph.name == "block"


@pytest.mark.slow
def test_its_gradient_is_that_of_the_python_function() -> None:
    x = jnp.asarray(normal(2, 5, D))
    weights = {name: jnp.asarray(array) for name, array in WEIGHTS.items()}
    fn, params = sardonyx.to_jax(recorded_block())
    assert set(weights) <= set(params)

    def loss(weights: Any, x: Any) -> Any:
        return (block(x, weights) ** 2).sum()

    by_weights, by_x = jax.jit(jax.grad(loss, (0, 1)))(weights, x)
    found, found_x = jax.jit(jax.grad(lambda p, x: (fn(p, x) ** 2).sum(), (0, 1)))(params, x)
    np.testing.assert_allclose(found_x, by_x, rtol=1e-4, atol=1e-4)
    for name, expected in by_weights.items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-4)


KEYS = [
    np.s_[0], np.s_[-1], np.s_[1:], np.s_[..., 0], np.s_[:, None], np.s_[::-1], np.s_[::2, 1:3],
    np.s_[..., None], np.s_[None, 1, :, -1], np.s_[-2:, ..., ::-1], np.s_[1, 2, 3], np.s_[...],
    np.s_[:, np.array([2, 0])], np.s_[np.array([[0, 1], [1, 0]])], np.s_[:0], np.s_[3:1:-1],
    np.s_[0, None, None, :, 1:-1],
]  # fmt: skip


@pytest.mark.parametrize("shape", [(2, 3, 4), ("a", "b", "c")])
def test_indexing_is_numpys(shape: Any) -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    model = sardonyx.record(
        lambda x: {f"y{i}": x[key] for i, key in enumerate(KEYS)},
        {"x": ("float32", shape)},
        backend="numpy",
    )
    for found, key in zip(model(x), KEYS, strict=True):
        np.testing.assert_array_equal(found, x[key])


FLOATS: dict[str, Any] = {
    "arithmetic": lambda x, y: (x + 1) * y - x / y + 2 - -y,
    "reversed": lambda x, y: (1 - x) / (3 / y) * (2 + x),
    "floor": lambda x, y: x // y,
    "powers": lambda x, y: x**2 + abs(y) ** 0.5 + 2**x,
    "comparisons": lambda x, y: ((x < y) | (x >= y * 2)) & ~(x == y) ^ (x != 2),
    "matrices": lambda x, y: x @ y.T,
    "shapes": lambda x, y: x.reshape(x.shape[0], -1).transpose(1, 0) * y.shape[1],
    "arrays": lambda x, y: np.float32([1, 2, 3]) + x * np.float32(2),
    "types": lambda x, y: x.astype("int32") + y.astype(np.int32),
}
INTEGERS: dict[str, Any] = {
    "floor": lambda x, y: x // y,
    "rest": lambda x, y: x % y,
    "numbers": lambda x, y: 7 // y + 7 % y + x // 2 - x % -3,
    "bits": lambda x, y: (x & y) | (x ^ 3) | ~y,
}


@pytest.mark.parametrize("name", FLOATS)
def test_operators_are_those_of_numpy(name: str) -> None:
    x, y = np.float32([[1, -2, 3], [0.5, 2, -7]]), np.float32([[2, 3, 4], [5, -2, 0.25]])
    kinds = {"x": ("float32", ["n", 3]), "y": ("float32", ["n", 3])}
    model = sardonyx.record(FLOATS[name], kinds, backend="numpy")
    expected = FLOATS[name](x, y)
    np.testing.assert_allclose(model(x, y), expected, rtol=1e-6)
    assert model(x, y).dtype == expected.dtype


@pytest.mark.parametrize("name", INTEGERS)
def test_operators_of_integers_are_those_of_numpy(name: str) -> None:
    x, y = np.meshgrid(np.arange(-7, 8), [-3, -1, 2, 5])
    model = sardonyx.record(INTEGERS[name], {"x": x, "y": y}, backend="numpy")
    np.testing.assert_array_equal(model(x, y), INTEGERS[name](x, y))


def test_weights_are_recorded_once_and_named() -> None:
    w = normal(3, 3)
    held = {"bias": jnp.ones(3)}

    def layer(x: Any) -> Any:
        return (x @ w + held["bias"]) @ w

    model = sardonyx.record(layer, {"x": ("float32", ["n", 3])}, backend="numpy")
    assert set(model.params) == {"w", "held.bias"}
    before = w.copy()
    w[:] = 0  # The model has a copy.
    np.testing.assert_array_equal(model.params["w"], before)


def test_large_weights_are_not_copied_into_the_proto() -> None:
    big = np.ones((512, 128), np.float32)
    model = sardonyx.record(lambda x: x @ big, {"x": ("float32", [1, 512])}, backend="numpy")
    assert len(model._source.written) < 2000
    np.testing.assert_array_equal(model(np.ones((1, 512), np.float32)), np.full((1, 128), 512))


def test_names_do_not_collide(tmp_path: Path) -> None:
    def odd(**inputs: Any) -> Any:
        x, other = inputs.values()
        return {"Add": x + other, "Add_1": x + other, "größe/ö": other, "constant": x + 1.0}

    kinds = {"Mul": ("float32", [2]), "名前": ("float32", [2])}
    model = sardonyx.record(odd, kinds, backend="numpy")
    path = tmp_path / "ö.onnx"
    sardonyx.save(model, path)
    onnx.checker.check_model(path, full_check=True)
    assert [info.name for info in model.outputs] == ["Add", "Add_1", "größe/ö", "constant"]
    one = np.ones(2, np.float32)
    names = {"Mul": one, "名前": one}
    for found, expected in zip(onnxruntime.InferenceSession(path).run(None, names), (2, 2, 1, 2),
                               strict=True):  # fmt: skip
        np.testing.assert_array_equal(found, np.full(2, expected))


def test_what_f_may_return() -> None:
    x = np.float32([1, 2])
    kinds = {"x": ("float32", [2])}
    record = sardonyx.record
    np.testing.assert_array_equal(record(lambda x: x, kinds)(x), x)
    np.testing.assert_array_equal(record(lambda x: np.float32(3), kinds)(x), 3)
    assert record(lambda x: (x, x, 5), kinds)(x)[2] == 5
    for nothing in (None, (), {}, (x, None), {1: x}):
        with pytest.raises(sardonyx.InvalidInput, match="returned"):
            record(lambda x, nothing=nothing: nothing, {"x": ("float32", [2])})


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (np.exp, r"numpy.exp needs the data.*O\.Exp"),
        (lambda x: np.concatenate([x, x]), r"numpy.concatenate.*O\.Concat"),
        (np.asarray, "An array of NumPy needs the data"),
        (lambda x: x + 1 if x[0] else x, r"O\.Where"),
        (lambda x: float(x[0]), r"float\(\)"),
        (lambda x: [1, 2][x], "O.Gather"),
        (lambda x: x[x > 0], "O.Compress"),
        (lambda x: x[7], "out of range"),
        (lambda x: x[0, 0], "cannot be indexed"),
        (lambda x: x + np.int64([1, 2]), "one type"),
        (lambda x: x.astype("int32") / 2, "//"),
        (lambda x: x % 2, "fmod=1"),
        (lambda x: x.astype("int32") + 1.5, "without loss"),
        (lambda x: O.MatMul(x, np.ones((3, 2), np.float32)), "MatMul"),
        (lambda x: O.Softmax(x, axis=4), "Softmax"),
        (lambda x: O.Relu(x) + sardonyx.opset(12).Softmax(x), "opset 12 of ai.onnx after opset 20"),
    ],
)
def test_what_needs_data_or_does_not_fit_is_refused_where_it_is(function: Any, text: str) -> None:
    with pytest.raises(sardonyx.InvalidInput, match=text):
        sardonyx.record(function, {"x": ("float32", [2])})


def test_an_error_of_the_function_passes_and_ends_the_recording() -> None:
    def failing(x: Any) -> Any:
        raise ZeroDivisionError("of the user")

    with pytest.raises(ZeroDivisionError, match="of the user"):
        sardonyx.record(failing, {"x": ("float32", [2])})
    assert isinstance(O.Relu(np.float32([1])), np.ndarray)


def test_symbolic_arrays_end_with_their_recording() -> None:
    kept: list[Any] = []
    sardonyx.record(lambda x: kept.append(x) or x, {"x": ("float32", [2])})
    with pytest.raises(sardonyx.InvalidInput, match="belongs to another recording"):
        sardonyx.record(lambda x: x + kept[0], {"x": ("float32", [2])})


def test_a_recording_within_a_recording_is_a_model_of_its_own() -> None:
    def outer(x: Any) -> Any:
        inner = sardonyx.record(lambda a: O.Mul(a, 3.0), {"a": ("float32", [2])})
        return inner(x) + 1

    model = sardonyx.record(outer, {"x": ("float32", [2])}, backend="numpy")
    np.testing.assert_array_equal(model(np.float32([1, 2])), [4, 7])


def test_a_loaded_model_is_inlined_twice(tmp_path: Path) -> None:
    opset = sardonyx.load("examples/encoder.onnx").opsets[""]
    encoder = sardonyx.load("examples/encoder.onnx", backend="numpy")
    later = sardonyx.opset(opset)
    model = sardonyx.record(
        lambda x: later.Add(encoder(encoder(x)), 1.0), {"x": ("float32", ["b", "t", 48])},
        backend="numpy",
    )  # fmt: skip
    x = normal(1, 4, 48)
    np.testing.assert_allclose(model(x), encoder(encoder(x)) + 1, rtol=1e-5, atol=1e-5)
    sardonyx.save(model, tmp_path / "twice.onnx")
    onnx.checker.check_model(tmp_path / "twice.onnx")
    (theirs,) = onnxruntime.InferenceSession(tmp_path / "twice.onnx").run(None, {"x": x})
    np.testing.assert_allclose(theirs, model(x), rtol=1e-4, atol=1e-4)


def test_a_model_with_subgraphs_is_inlined() -> None:
    def clipped(x: Any) -> Any:
        return O.If(O.Less(O.ReduceSum(x, keepdims=0), 0.0), then_branch=lambda: x * 0.0,
                    else_branch=lambda: O.Add(x, 1.0))  # fmt: skip

    inner = sardonyx.record(clipped, {"x": ("float32", ["n"])}, backend="numpy")
    model = sardonyx.record(lambda x: inner(inner(x) - 3), {"x": ("float32", ["n"])})
    np.testing.assert_array_equal(model(np.float32([1, 2])), [0, 0])
    np.testing.assert_array_equal(model(np.float32([5, 2])), [4, 1])


def test_an_operator_of_ones_own_becomes_a_node() -> None:
    @sardonyx.op(domain="my.domain")
    def Tripled(xp: Backend, x: Array, *, times: int = 1) -> Array:
        return x * 3**times

    model = sardonyx.record(lambda x: Tripled(x, times=2) + 1.0, {"x": ("float32", [2])})
    np.testing.assert_array_equal(model(np.float32([1, 2])), [10, 19])
    assert model.opsets["my.domain"] == 1


def test_threads_record_and_run_apart() -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(5):
                model = sardonyx.record(
                    lambda x: O.Mul(x, float(number)), {"x": ("float32", [2])}, backend="numpy"
                )
                np.testing.assert_array_equal(model(np.float32([1, 2])), [number, 2 * number])
                np.testing.assert_array_equal(O.Add(np.float32([1]), number), [1 + number])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.parametrize(
    "dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4, np.bool_, np.complex64]
)
def test_odd_dtypes(dtype: Any, tmp_path: Path) -> None:
    w = np.array([1, 0, 1], dtype)
    model = sardonyx.record(lambda x: {"y": NEW.Identity(x), "w": w}, {"x": w}, backend="numpy")
    sardonyx.save(model, tmp_path / "m.onnx")
    for each in sardonyx.load(tmp_path / "m.onnx", backend="numpy")(w):
        assert each.dtype == w.dtype
        assert each.tobytes() == w.tobytes()


def test_strings_sequences_and_empty_arrays() -> None:
    model = sardonyx.record(
        lambda s, x: (O.StringConcat(s, "!"), O.SequenceAt(O.SequenceConstruct(x, x[:0]), 1)),
        {"s": ("string", [None]), "x": ("float32", [2, 3])},
        backend="numpy",
    )
    strings, empty = model(np.array(["a", "b"]), np.zeros((2, 3), np.float32))
    assert strings.tolist() == ["a!", "b!"]
    assert empty.shape == (0, 3)


def test_draws_are_recorded_not_baked() -> None:
    model = sardonyx.record(lambda x: x + O.RandomNormal(shape=[2]), {"x": ("float32", [2])})
    x = np.zeros(2, np.float32)
    assert not np.array_equal(model(x), model(x))


def test_arguments_of_record_are_checked() -> None:
    record = sardonyx.record
    for function, inputs in (
        (3, {}), (abs, "x"), (abs, {"x": "float32"}), (abs, {"x": ("float33", [1])}),
        (abs, {"x": ("float32", [-1])}), (abs, {"": ("float32", [1])}), (abs, {"x": 3}),
    ):  # fmt: skip
        with pytest.raises(sardonyx.InvalidInput):
            record(function, inputs)
    with pytest.raises(sardonyx.UnsupportedModel):
        record(abs, [np.ones(1)], opset=999)


def test_a_model_that_is_traced_refuses_weights_of_jit() -> None:
    def outer(w: Any) -> Any:
        return sardonyx.record(lambda x: x @ w, {"x": ("float32", [1, 2])})

    with pytest.raises(sardonyx.InvalidInput, match=r"outside of jax\.jit"):
        jax.jit(outer)(jnp.ones((2, 2)))


def test_opsets_mix_where_the_operators_are_the_same() -> None:
    old, new = sardonyx.opset(14), sardonyx.opset(20)
    # Relu is of opset 14, Exp of 13, Gelu of 20.
    x = np.linspace(-1, 1, 4, dtype=np.float32)
    mixed = sardonyx.record(lambda x: old.Relu(new.Gelu(old.Exp(new.Neg(x)))), {"x": x})
    plain = sardonyx.record(lambda x: new.Relu(new.Gelu(new.Exp(new.Neg(x)))), {"x": x})
    assert mixed.opsets == plain.opsets
    assert mixed.opsets[""] == 20
    np.testing.assert_array_equal(mixed(x), plain(x))


def test_other_versions_of_an_operator_do_not_mix() -> None:
    old, new = sardonyx.opset(12), sardonyx.opset(20)
    match = "opset 12 of ai.onnx after opset 20, in which Softmax is another version"
    with pytest.raises(sardonyx.InvalidInput, match=match):
        sardonyx.record(lambda x: old.Softmax(new.Exp(x)), {"x": ("float32", [2, 3])})
    with pytest.raises(sardonyx.InvalidInput, match=r"opset 20 of ai.onnx after opset 12, in"):
        sardonyx.record(lambda x: new.Gelu(old.Exp(x)), {"x": ("float32", [2, 3])})
