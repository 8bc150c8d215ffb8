"""Functions of NumPy between kernels run in the kernels' call, with the same results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import sardonyx
from sardonyx.backends.jax.onednn import loaded
from sardonyx.backends.jax.onednn.loaded import Kind
from sardonyx.backends.jax.onednn.one_call import OneCall
from sardonyx.backends.jax.xla_cpu import small_programs
from tests.support.background import wait_for_background
from tests.support.kernels import NEEDS_ONEDNN
from tests.support.onnx_builders import model, node, value, weight
from tests.test_one_call import KERNELS, library, ran
from tests.test_onednn import drawn

__all__ = ["library", "ran"]
pytestmark = NEEDS_ONEDNN

FUNCTIONS = (np.add, np.subtract, np.multiply, np.divide, np.sqrt, np.square)


def planned(function: Callable[..., Sequence[Any]], *arrays: Any) -> Sequence[Any]:
    """The results of a function whose kernels run in one call, which is what it must be."""
    kinds: list[Kind] = []
    run = loaded.run

    def noted(kind: Kind, *rest: Any) -> None:
        kinds.append(kind)
        run(kind, *rest)

    # The fixture of the same kind lasts for all examples of a property.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loaded, "run", noted)
        results = OneCall(function, 0)(*arrays)
    assert kinds == [Kind.SEQUENCE]
    return results


@st.composite
def laid_out(draw: Any, shape: tuple[int, ...]) -> Any:
    """An array of this shape: with its axes in any order, with gaps, and backwards."""
    order = draw(st.permutations(range(len(shape))))
    steps = [draw(st.sampled_from((1, 1, 1, 2, -1))) for _ in shape]
    in_memory = [shape[axis] * abs(steps[axis]) for axis in order]
    x = drawn(*in_memory, seed=draw(st.integers(0, 99))) if in_memory else np.float32(3)[...]
    turned = np.asarray(x).transpose(np.argsort(order)) if shape else np.asarray(x)
    found = turned[(..., *(slice(None, None, step) for step in steps))]
    assert found.shape == shape
    return found


@st.composite
def operands(draw: Any) -> tuple[Any, Any]:
    """Arrays that broadcast, of which one may be a number."""
    shape = tuple(draw(st.lists(st.integers(1, 19), min_size=1, max_size=5)))
    narrow = tuple(1 if draw(st.booleans()) else size for size in shape)
    narrow = narrow[draw(st.integers(0, len(shape))) :]
    x = draw(laid_out(shape))
    other = draw(st.one_of(laid_out(narrow), laid_out(shape), st.sampled_from((0.0, -1.5, 3e38))))
    return (x, other) if draw(st.booleans()) else (other, x)


@settings(max_examples=150, deadline=None)
@given(operands(), st.sampled_from(FUNCTIONS))
def test_elements_have_the_bits_of_numpy(arrays: tuple[Any, Any], function: Any) -> None:
    taken = [x for x in arrays if not isinstance(x, float)]
    used = arrays if function.nin == 2 else taken[:1]
    places = [None if isinstance(x, float) else x for x in used]

    def joined(*given: Any) -> Sequence[Any]:
        rest = iter(given)
        passed = [used[i] if x is None else next(rest) for i, x in enumerate(places)]
        return [KERNELS.of_elements(function, *passed)]

    (found,) = planned(joined, *[x for x in places if x is not None])
    with np.errstate(all="ignore"):
        wanted = function(*[np.float32(x) if isinstance(x, float) else x for x in used])
    assert found.dtype == np.float32
    assert_array_equal(found, wanted)


def test_special_numbers() -> None:
    numbers = np.array([0, -0.0, 1, np.inf, -np.inf, np.nan, 1e-45, 3.4e38, 2, -2] * 3, np.float32)
    a, b = np.repeat(numbers, numbers.size), np.tile(numbers, numbers.size)
    for function in FUNCTIONS:
        used = (a, b)[: function.nin]
        (found,) = planned(lambda *x, f=function: [KERNELS.of_elements(f, *x)], *used)
        with np.errstate(all="ignore"):
            wanted = function(*used)
        assert_array_equal(found, wanted)
        assert_array_equal(
            np.signbit(found) | np.isnan(found), np.signbit(wanted) | np.isnan(wanted)
        )


def test_scalars_of_numpy_are_inputs_too() -> None:
    x, scalar = drawn(5, 6), np.sqrt(np.float32(2))
    (found,) = planned(lambda x, y: [KERNELS.of_elements(np.divide, x, y)], x, scalar)
    assert_array_equal(found, x / scalar)


@st.composite
def summed_arrays(draw: Any) -> tuple[Any, tuple[int, ...]]:
    rank = draw(st.integers(1, 5))
    shape = tuple(draw(st.integers(1, 23)) for _ in range(rank))
    start = draw(st.integers(0, rank - 1))
    axes = tuple(range(start, draw(st.integers(start + 1, rank))))
    return draw(laid_out(shape)), tuple(draw(st.permutations(axes)))


@settings(max_examples=150, deadline=None)
@given(summed_arrays(), st.booleans())
def test_sums_and_means(array: tuple[Any, tuple[int, ...]], keepdims: bool) -> None:
    x, axes = array

    def joined(x: Any) -> Sequence[Any]:
        options = {"keepdims": keepdims}
        return [KERNELS.summed(x, axes, **options), KERNELS.averaged(x, axes, **options)]

    total, mean = planned(joined, x)
    exact = x.astype(np.float64)
    size = np.abs(exact).sum(axes, keepdims=keepdims)
    assert total.dtype == mean.dtype == np.float32
    assert total.shape == mean.shape == size.shape
    assert (np.abs(total - exact.sum(axes, keepdims=keepdims)) <= 1e-6 * size).all()
    assert_allclose(mean, exact.mean(axes, keepdims=keepdims), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("order", ["rows", "channels"])
def test_long_sums_lose_few_digits(order: str) -> None:
    x = np.full((1, 9, 300, 400), 1.1, np.float32)
    x = (
        x
        if order == "rows"
        else np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    )
    (found,) = planned(lambda x: [KERNELS.summed(x, (2, 3), keepdims=False)], x)
    assert_allclose(found, 120_000 * np.float64(np.float32(1.1)), rtol=2e-5)


def test_elsewhere_they_are_numpys(ran: list[Kind]) -> None:
    x = drawn(2, 3, 4, 5)
    assert_array_equal(KERNELS.of_elements(np.add, x, 1.5), x + np.float32(1.5))
    assert_array_equal(KERNELS.summed(x, (2, 3), keepdims=True), x.sum((2, 3), keepdims=True))
    assert_array_equal(KERNELS.averaged(x, (1,), keepdims=False), x.mean(1))
    assert ran == []


CHANNELS, SIZE = 32, 14


def network(*, activation: str = "HardSigmoid") -> onnx.ModelProto:
    """Convolutions with a squeeze-and-excitation block, normalization, pooling and a classifier."""
    wide, pair = (CHANNELS, CHANNELS, 3, 3), (CHANNELS, CHANNELS)
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("ReduceMean", ["r", "axes"], ["m"]),
        node("Conv", ["m", "w1", "b0"], ["s"]),
        node(activation, ["s"], ["h"]),
        node("Mul", ["r", "h"], ["e"]),
        node("BatchNormalization", ["e", "scale", "b0", "mean", "variance"], ["n"]),
        node("InstanceNormalization", ["n", "scale", "b0"], ["i"]),
        node("Conv", ["i", "w2", "b0"], ["d"], pads=[1, 1, 1, 1]),
        node("Add", ["d", "e"], ["a"]),
        node("AveragePool", ["a"], ["p"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("GlobalAveragePool", ["p"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", "w3", "b3"], ["y"], transB=1),
    ]
    tables = {
        "w0": drawn(*wide, seed=1) / 17, "w1": drawn(*pair, 1, 1, seed=2) / 6,
        "w2": drawn(*wide, seed=3) / 17, "w3": drawn(7, CHANNELS, seed=4),
        "b0": drawn(CHANNELS, seed=5), "b3": drawn(7, seed=6),
        "scale": drawn(CHANNELS, seed=7), "mean": drawn(CHANNELS, seed=8),
        "variance": np.square(drawn(CHANNELS, seed=9)) + 1,
        "axes": np.array([2, 3]),
    }  # fmt: skip
    inputs = [value("x", ["n", CHANNELS, SIZE, SIZE])]
    weights = [weight(name, array) for name, array in tables.items()]
    return model(nodes, inputs, [value("y", ["n", 7])], weights)


@pytest.fixture
def no_small_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels run also where NumPy's functions alone take less time."""
    monkeypatch.setattr(small_programs, "CALL", -1e6)


def assert_runs_in_one_call(
    proto: onnx.ModelProto, x: Any, ran: list[Kind], tolerance: float
) -> None:
    """Whether a model does so from some call on, with the results of NumPy."""
    right = sardonyx.load(proto, backend="numpy")(x)
    found = sardonyx.load(proto, backend="jax", compile="never", cache=None)
    for _ in range(6):
        ran.clear()
        assert_allclose(found(x), right, rtol=tolerance, atol=tolerance)
        wait_for_background()
    assert ran == [Kind.SEQUENCE]


@pytest.mark.parametrize("batch", [1, 3])
def test_a_network_runs_in_one_call(batch: int, ran: list[Kind]) -> None:
    assert_runs_in_one_call(network(), drawn(batch, CHANNELS, SIZE, SIZE), ran, 1e-2)


@pytest.mark.parametrize("index", [0, -1, 4])
@pytest.mark.parametrize("is_list", [False, True])
@pytest.mark.usefixtures("no_small_programs")
def test_one_place_of_an_axis_is_taken_as_a_view(
    index: int, is_list: bool, ran: list[Kind]
) -> None:
    """As a classifier reads the first token."""
    nodes = [
        node("LayerNormalization", ["x", "scale"], ["n"], axis=-1),
        node("Gather", ["n", "index"], ["t"], axis=1),
        node("Reshape", ["t", "shape"], ["f"]),
        node("MatMul", ["f", "w"], ["y"]),
    ]
    tables = {
        "scale": drawn(64, seed=1),
        "index": np.array([index] if is_list else index),
        "shape": np.array([2, 64]),
        "w": drawn(64, 7, seed=2),
    }
    inputs = [value("x", [2, 5, 64])]
    weights = [weight(name, array) for name, array in tables.items()]
    proto = model(nodes, inputs, [value("y", [2, 7])], weights)
    assert_runs_in_one_call(proto, drawn(2, 5, 64), ran, 1e-4)
