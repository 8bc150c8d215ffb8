"""Calls that nothing compiles, on NumPy and with compile="never", are written out when repeated."""

from __future__ import annotations

import gc
from typing import Any
from weakref import ref

import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.graph.programs import beside_kernels, compiler
from sardonyx.graph.programs.provisional import Runs
from sardonyx.graph.programs.written_segment import WrittenSegment
from tests.support.background import wait_for_background
from tests.support.official import node_tests
from tests.support.onnx_builders import model, node, value, weight
from tests.test_written_out import _array, _fail, tensor_cases

X = np.arange(6, dtype=np.float32).reshape(2, 3)
WEIGHT = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
WAYS = {"numpy": {"backend": "numpy"}, "never": {"backend": "jax", "compile": "never"}}


@pytest.fixture(params=list(WAYS))
def way(request: pytest.FixtureRequest) -> dict[str, Any]:
    return WAYS[request.param]


def layers() -> onnx.ModelProto:
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("Add", ["a", "b"], ["c"]),
        node("Relu", ["c"], ["d"]),
        node("Softmax", ["d"], ["y"], axis=-1),
        node("Transpose", ["w"], ["turned"]),
        node("Reshape", ["x", "flat"], ["z"]),
    ]
    weights = [weight("w", WEIGHT), weight("b", np.ones(4, np.float32)), weight("flat", [-1])]
    return model(nodes, [value("x", ["n", 3])], ["y", "turned", "z"], weights)


# Two runs decide, and busy moments of the machine can make both slow.
ATTEMPTS = 3


def written(proto: onnx.ModelProto, *inputs: Any, **options: Any) -> sardonyx.Model:
    for _ in range(ATTEMPTS):
        loaded = sardonyx.load(proto, **options)
        loaded(*inputs)
        wait_for_background()
        assert not loaded.stats().written_out
        for _ in range(3):
            loaded(*inputs)
            wait_for_background()
        if loaded.stats().written_out:
            break
    assert loaded.stats().written_out
    assert not loaded.stats().compiles
    return loaded


@pytest.mark.parametrize("case", tensor_cases(), ids=lambda case: case.name)
@pytest.mark.sampled(20)
def test_the_same_bits(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WrittenSegment, "_compiled", property(_fail))
    loaded = sardonyx.load(case.model, backend="numpy")
    names = [info.name for info in case.model.graph.input]
    for inputs, _ in case.data_sets:
        feeds = dict(zip(names, map(_array, inputs), strict=True))
        stepped = loaded.run(None, feeds)
        loaded.compile(feeds)
        for one, other in zip(loaded.run(None, feeds), stepped, strict=True):
            assert (one.shape, one.dtype) == (other.shape, other.dtype)
            assert one.tolist() == other.tolist() if one.dtype.hasobject else _bits(one, other)


def _bits(one: Any, other: Any) -> bool:
    return bool(one.tobytes() == other.tobytes())


@pytest.mark.parametrize("beta", [-1.0, 0.5, 0.75, 1.0, 2.0])
def test_the_same_bits_of_powers(beta: float) -> None:
    """NumPy's operator takes roots, squares and quotients for some exponents, its function none."""
    x = np.random.default_rng(0).random((2, 3, 50, 7), np.float32)
    proto = model([node("LRN", ["x"], ["y"], size=3, beta=beta)], [value("x", x.shape)], ["y"])
    loaded = sardonyx.load(proto, backend="numpy")
    stepped = loaded(x)
    loaded.compile({"x": x.shape})
    assert _bits(loaded(x), stepped)


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_same_bits_however_arrays_lie(order: Any) -> None:
    """Sums depend on it: a weight that is broadcast ahead would change how a product lies."""
    rng = np.random.default_rng(0)
    nodes = [
        node("Mul", ["x", "w"], ["a"]),
        node("ReduceMean", ["a"], ["b"], axes=[1, 2], keepdims=0),
        node("Transpose", ["a"], ["c"], perm=[2, 0, 1]),
        node("ReduceL2", ["c"], ["y"], axes=[0], keepdims=0),
    ]
    weights = [weight("w", rng.standard_normal(70).astype(np.float32))]
    proto = model(nodes, [value("x", [None, None, 70])], ["b", "y", "c"], weights, opset=17)
    x = np.array(rng.standard_normal((9, 80, 70)), np.float32, order=order)
    loaded = sardonyx.load(proto, backend="numpy")
    stepped = loaded(x)
    loaded.compile({"x": x.shape})
    assert loaded.stats().written_out
    for one, other in zip(loaded(x), stepped, strict=True):
        assert _bits(one, other)


def test_cases_of_all_operators_are_tried() -> None:
    assert len(tensor_cases()) > 0.5 * len(node_tests())


def test_results_belong_to_the_caller(way: dict[str, Any]) -> None:
    loaded, x = written(layers(), X, **way), X.copy()
    expected = [np.array(result) for result in loaded(x)]
    for _ in range(3):
        results = loaded(x)
        for result, right in zip(results, expected, strict=True):
            np.testing.assert_array_equal(result, right)
            assert not np.shares_memory(result, x)
            if way["backend"] == "numpy":
                result[...] = -1
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(loaded.params["w"], WEIGHT)


def test_weights_that_are_replaced(way: dict[str, Any]) -> None:
    loaded = written(layers(), X, **way)
    loaded.params["b"] = np.zeros(4, np.float32)
    loaded.params["w"] = 0 * WEIGHT
    for _ in range(3):
        np.testing.assert_array_equal(loaded(X)[0], np.full((2, 4), 0.25, np.float32))


def test_an_error_names_the_node(way: dict[str, Any]) -> None:
    proto = model(
        [node("Add", ["i", "one"], ["j"]), node("Gather", ["w", "j"], ["y"], name="look")],
        [value("i", [2], onnx.TensorProto.INT64)],
        ["y"],
        [weight("w", WEIGHT), weight("one", np.int64(1))],
    )
    right = np.array([0, 1])
    loaded = written(proto, right, backend="numpy")
    for _ in range(3):
        with pytest.raises(sardonyx.errors.SardonyxError, match="look"):
            loaded(np.array([0, 7]))
        np.testing.assert_array_equal(loaded(right), WEIGHT[1:])


def test_strings_whose_number_data_decide() -> None:
    text = np.array(["b", "a", "b"], object)
    proto = model(
        [node("Unique", ["s"], ["u"], sorted=1), node("StringConcat", ["u", "u"], ["y"])],
        [value("s", ["n"], onnx.TensorProto.STRING)],
        [value("y", ["m"], onnx.TensorProto.STRING)],
        opset=20,
    )
    loaded = sardonyx.load(proto, backend="numpy")
    for _ in range(5):
        assert loaded(text).tolist() == ["aa", "bb"]
        wait_for_background()


def test_limits_of_threads_and_functions_of_users_run_step_by_step() -> None:
    loaded = sardonyx.load(layers(), backend="numpy", threads=1)
    for _ in range(4):
        loaded(X)
        wait_for_background()
    assert not loaded.stats().written_out


@pytest.mark.parametrize("constant", ["MOST_SECONDS", "SECONDS_OF_STEP"])
def test_what_takes_long_or_gains_little_runs_step_by_step(
    constant: str, way: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, constant, 0.0)
    monkeypatch.setattr(compiler, "MOST_STEPS", 0)
    loaded = sardonyx.load(layers(), **way)
    for _ in range(4):
        expected = loaded(X)
        wait_for_background()
    assert not loaded.stats().written_out
    np.testing.assert_array_equal(loaded(X)[0], expected[0])


@pytest.mark.parametrize("slow_runs", [1, 2])
def test_one_slow_run_does_not_decide(
    slow_runs: int, way: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    and_one = Runs.and_one

    def timed(self: Runs, _: float) -> Runs:
        return and_one(self, 10.0 if self.number < slow_runs else 1e-4)

    monkeypatch.setattr(Runs, "and_one", timed)
    monkeypatch.setattr(compiler, "MOST_STEPS", 0)
    loaded = sardonyx.load(layers(), **way)
    for _ in range(5):
        loaded(X)
        wait_for_background()
    assert bool(loaded.stats().written_out) == (slow_runs == 1)


def test_never_compiles_when_asked_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small segments are written out even then."""
    monkeypatch.setattr(compiler, "MOST_STEPS", 0)
    loaded = written(layers(), X, backend="jax", compile="never")
    other = np.ones((4, 3), np.float32)
    loaded.compile({"x": other.shape})
    assert (loaded.stats().compiles, loaded.stats().written_out) == (1, 1)
    np.testing.assert_allclose(loaded(other)[0].sum(axis=1), 1, rtol=1e-6)


def test_steps_go_on_if_they_cannot_be_written_out(
    way: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no room")

    monkeypatch.setattr(compiler, "MOST_STEPS", 0)
    for module in (beside_kernels, compiler):
        monkeypatch.setattr(module, "written_with_kernels", fail)
    loaded = sardonyx.load(layers(), **way)
    for _ in range(5):
        np.testing.assert_allclose(loaded(X)[0].sum(axis=1), 1, rtol=1e-6)
        wait_for_background()
    assert (loaded.stats().compiles, loaded.stats().written_out) == (0, 0)


@pytest.mark.slow
def test_arrays_of_a_call_are_not_kept(way: dict[str, Any]) -> None:
    loaded = sardonyx.load(layers(), **way)
    for _ in range(2):
        x = X.copy()
        kept = ref(x)
        loaded(x)
        del x
        gc.collect()
        assert kept() is None
        wait_for_background()


@pytest.mark.slow
def test_a_model_may_go_before_it_is_written_out() -> None:
    loaded = sardonyx.load(layers(), backend="numpy")
    for _ in range(3):
        loaded(X)
    gone = ref(loaded)
    del loaded
    gc.collect()
    wait_for_background()
    gc.collect()
    assert gone() is None


def test_a_profile_names_the_way() -> None:
    loaded = written(layers(), X, backend="numpy")
    assert "written out" in str(loaded.profile(X))


def test_random_draws_differ_from_call_to_call(way: dict[str, Any]) -> None:
    proto = model(
        [node("RandomNormalLike", ["x"], ["n"]), node("Add", ["x", "n"], ["y"])],
        [value("x", ["n", 3])],
        ["y"],
    )
    loaded = sardonyx.load(proto, **way)
    drawn = []
    for _ in range(6):
        drawn.append(loaded(X).tobytes())
        wait_for_background()
    assert len(set(drawn)) == 6
