"""Kernels that follow one another run in one call of the library, with the same results."""

from __future__ import annotations

import gc
import math
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import sardonyx
from sardonyx.backends.executable import Spec
from sardonyx.backends.jax import onednn
from sardonyx.backends.jax.onednn import HostKernels, copies, loaded
from sardonyx.backends.jax.onednn.loaded import Kind
from sardonyx.backends.jax.onednn.one_call import OneCall
from sardonyx.backends.operations.products import Link
from sardonyx.backends.windows import WindowLayout
from sardonyx.stopping import Stopped, stoppable
from tests.support.background import wait_for_background
from tests.support.kernels import NEEDS_ONEDNN
from tests.support.onnx_builders import model, node, value, weight
from tests.test_onednn import drawn

pytestmark = NEEDS_ONEDNN

ROWS, WIDTH = 96, 64
KERNELS = HostKernels()


@pytest.fixture(autouse=True)
def library() -> None:
    assert loaded.shared_library() is not None


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Kind]:
    """The kinds of the kernels that the library was called for."""
    kinds: list[Kind] = []
    run = loaded.run

    def noted(kind: Kind, *arguments: Any) -> None:
        kinds.append(kind)
        run(kind, *arguments)

    monkeypatch.setattr(loaded, "run", noted)
    return kinds


def product(outputs: int = WIDTH, inputs: int = WIDTH, seed: int = 0) -> tuple[Any, Any]:
    """A product of the library, and its packed weight."""
    matrix = drawn(inputs, outputs, seed=seed) / inputs**0.5
    kernel = onednn.matrix_product(
        Spec((ROWS, inputs), matrix.dtype), Spec(matrix.shape, matrix.dtype)
    )
    assert kernel is not None
    return kernel, kernel.form.pack(matrix)


def assert_same(found: Sequence[Any], wanted: Sequence[Any]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape
        assert_array_equal(one, other)


def everything() -> tuple[Callable[..., Sequence[Any]], list[Any]]:
    """A function that calls a kernel of each kind, and its constants."""
    (first, w1), (second, w2) = product(seed=1), product(seed=2)
    chain = onednn.chain([Link(first, 0), Link(second, 1)], 1)
    assert chain is not None
    scale, bias = drawn(WIDTH, seed=3), drawn(WIDTH, seed=4)
    layout = WindowLayout((3,), (1,), (1,), ((1, 1),))

    def function(w1: Any, w2: Any, scale: Any, bias: Any, x: Any, mask: Any) -> Sequence[Any]:
        y = chain.run(first.run(x, w1), w2, w1)
        y, mean, inverse = KERNELS.standardized(y, scale, bias, epsilon=1e-5)
        heads = y.reshape(ROWS, 4, WIDTH // 4).transpose(1, 0, 2)
        weights = KERNELS.softmax(second.run(y, w2), or_zero=False)
        products = KERNELS.multiplied(heads, heads.swapaxes(1, 2))
        attended = KERNELS.attended(
            heads, heads.swapaxes(1, 2), heads, mask, scale=0.5, or_zero=True
        )
        turned = second.run(weights.swapaxes(0, 1).reshape(WIDTH, ROWS)[:, ::-1].T, w1)
        pooled = KERNELS.reduced_windows(y[None].transpose(0, 2, 1), layout, by="max")
        rooted = KERNELS.by_root_mean_square(weights, scale, epsilon=1e-5)
        return [turned, attended, weights, pooled, products, mean, inverse, y[1::2, :7], rooted]

    return function, [w1, w2, scale, bias]


@pytest.fixture
def small_ones_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (onednn.attention, onednn.stacks):
        monkeypatch.setattr(module, "FEWEST_PAIRS", 0)
    onednn.attention._planned.cache_clear()


@pytest.mark.usefixtures("small_ones_too")
def test_a_kernel_of_each_kind(ran: list[Kind]) -> None:
    function, constants = everything()
    one_call = OneCall(function, len(constants))
    for seed in range(3):
        x, mask = drawn(ROWS, WIDTH, seed=seed), drawn(ROWS, ROWS, seed=seed)
        wanted = function(*constants, x, mask)
        # What NumPy does as well by itself is in `test_joined_functions.py`.
        assert set(ran) == set(Kind) - {Kind.SEQUENCE, Kind.POINTS, Kind.SUMS}
        ran.clear()
        assert_same(one_call(*constants, x, mask), wanted)
        assert ran == [Kind.SEQUENCE]
        ran.clear()
    assert_array_equal(wanted[0], function(*constants, x, mask)[0])


def random_function(seed: int) -> tuple[Callable[..., Sequence[Any]], list[Any]]:
    """Kernels that read results of any earlier ones, of which some are returned."""
    rng = np.random.default_rng(seed)
    kernel, _ = product()
    weights = [product(seed=i)[1] for i in range(3)]
    scale = drawn(WIDTH, seed=9)
    steps = [(rng.integers(4), rng.integers(i + 2), rng.integers(3)) for i in range(14)]
    returned = rng.choice(len(steps), size=rng.integers(1, 5), replace=False) + 2

    def function(scale: Any, *arrays: Any) -> Sequence[Any]:
        weights, values = arrays[:3], list(arrays[3:])
        for kind, source, number in steps:
            x = values[source]
            if kind == 0:
                y = kernel.run(x, weights[number])
            elif kind == 1:
                y, *_ = KERNELS.standardized(x, scale, None, epsilon=1e-3)
            elif kind == 2:
                y = KERNELS.softmax(x[::-1][::-1].reshape(2, -1, WIDTH), or_zero=False)
            else:
                y = KERNELS.by_root_mean_square(x.reshape(ROWS, WIDTH), scale, epsilon=1e-3)
            values.append(y.reshape(ROWS, WIDTH))
        return [values[i] for i in returned]

    return function, [scale, *weights]


@pytest.mark.parametrize("seed", range(12))
def test_memory_between_kernels_is_read_before_it_is_used_again(seed: int, ran: list[Kind]) -> None:
    function, constants = random_function(seed)
    one_call = OneCall(function, len(constants))
    for turn in range(2):
        inputs = drawn(2, ROWS, WIDTH, seed=turn)
        wanted = [np.array(each) for each in function(*constants, *inputs)]
        ran.clear()
        assert_same(one_call(*constants, *inputs), wanted)
        assert ran == [Kind.SEQUENCE]


def test_threads_at_once_get_their_own_results() -> None:
    function, constants = random_function(3)
    one_call, count = OneCall(function, len(constants)), 8
    inputs = drawn(count, 2, ROWS, WIDTH)
    wanted = [function(*constants, *each) for each in inputs]
    barrier = threading.Barrier(count)

    def called(each: Any) -> list[Sequence[Any]]:
        barrier.wait()
        return [one_call(*constants, *each) for _ in range(20)]

    with ThreadPoolExecutor(count) as pool:
        for results, right in zip(pool.map(called, inputs), wanted, strict=True):
            for found in results:
                assert_same(found, right)


def of_two() -> tuple[Callable[..., Sequence[Any]], Any]:
    kernel, packed = product()

    def function(packed: Any, a: Any, b: Any) -> Sequence[Any]:
        return [kernel.run(kernel.run(a, packed), packed), kernel.run(b, packed)]

    return function, packed


def test_inputs_may_be_views_of_one_array_and_of_others_later(ran: list[Kind]) -> None:
    function, packed = of_two()
    one_call, both, apart = OneCall(function, 1), drawn(2, ROWS, WIDTH), drawn(2, ROWS, WIDTH + 9)
    others = (drawn(ROWS, WIDTH, seed=5), drawn(ROWS, WIDTH, seed=6))
    backwards = (both[0][::-1], both[1])
    for a, b in (both, others, both[::-1], apart[..., :WIDTH], backwards, (both[0], both[0])):
        wanted = function(packed, a, b)
        ran.clear()
        assert_same(one_call(packed, a, b), wanted)
    assert ran == [Kind.SEQUENCE]


def test_arrays_are_copied_first_if_need_be(ran: list[Kind]) -> None:
    function, packed = of_two()
    one_call = OneCall(function, 1)
    for seed in range(3):
        a, b = drawn(ROWS, 2 * WIDTH, seed=seed)[:, ::-2], drawn(WIDTH, ROWS, seed=seed).T
        wanted = function(packed, a, b)
        ran.clear()
        assert_same(one_call(packed, a, b), wanted)
        assert ran == [Kind.SEQUENCE]


@pytest.mark.parametrize("dtype", [np.int8, np.float16, ml_dtypes.bfloat16, np.float32, np.int64])
@pytest.mark.parametrize(
    "shape", [(5, 3), (3, 37), (2, 3, 40, 41), (1, 3, 1, 17), (0, 4), (7, 200, 64)]
)
def test_copies(shape: tuple[int, ...], dtype: Any) -> None:
    x = (np.arange(math.prod(shape)) % 127).reshape(shape).astype(dtype)
    for threads in (1, 3):
        for order in permutations(range(x.ndim)):
            for turned in (x.transpose(order), x.transpose(order)[..., ::-1], x[:, 1:].T):
                found = copies.dense(turned, threads)
                assert found.flags.c_contiguous
                assert_same([found], [turned])


def test_weights_may_be_arrays_of_jax() -> None:
    """As those of a compiled program are, whose steps are timed one by one."""
    function, packed = of_two()
    x, y = drawn(ROWS, WIDTH), drawn(WIDTH, ROWS).T
    wanted = function(packed, x, y)
    assert_same(function(jnp.asarray(packed), x, y), wanted)
    assert_same(OneCall(function, 1)(jnp.asarray(packed), x, y), wanted)


def test_what_is_computed_between_kernels_is_not_left_out(ran: list[Kind]) -> None:
    kernel, packed = product()

    def function(packed: Any, x: Any) -> Sequence[Any]:
        return [kernel.run(kernel.run(x, packed) + 1, packed)]

    x = drawn(ROWS, WIDTH)
    assert_same(OneCall(function, 1)(packed, x), function(packed, x))
    assert Kind.SEQUENCE not in ran


@pytest.mark.usefixtures("small_ones_too")
def test_other_constants_are_planned_for_anew(ran: list[Kind]) -> None:
    """Their elements may have decided what the kernels are."""
    kernel, packed = product()

    def function(packed: Any, factor: Any, x: Any) -> Sequence[Any]:
        y = kernel.run(x, packed)
        scale = float(factor[()])
        return [KERNELS.attended(y, y.swapaxes(0, 1), y, None, scale=scale, or_zero=False)]

    one_call, x = OneCall(function, 2), drawn(ROWS, WIDTH)
    for factor in (np.float32(1), np.array(3, np.float32), np.array(0.1, np.float32)):
        for weights in (packed, product(seed=8)[1]):
            wanted = function(weights, factor, x)
            ran.clear()
            assert_same(one_call(weights, factor, x), wanted)
            assert ran == [Kind.SEQUENCE]


def test_constants_are_not_kept() -> None:
    function, packed = of_two()
    one_call, x = OneCall(function, 1), drawn(ROWS, WIDTH)
    one_call(packed, x, x)
    gone = weakref.ref(packed)
    del packed
    gc.collect()
    assert gone() is None


def test_results_are_new_memory_at_each_call() -> None:
    function, packed = of_two()
    one_call, x = OneCall(function, 1), drawn(ROWS, WIDTH)
    first = one_call(packed, x, x)
    kept = [np.array(each) for each in first]
    second = one_call(packed, x + 1, x)
    assert_same(first, kept)
    for one in first:
        assert one.flags.writeable
        assert not any(np.shares_memory(one, other) for other in second)


def test_what_belongs_to_the_caller_is_no_view(ran: list[Kind]) -> None:
    kernel, packed = product()

    def function(packed: Any, x: Any) -> Sequence[Any]:
        y = kernel.run(x, packed)
        other = kernel.run(y, packed).reshape(-1)
        return [y.T, y.reshape(2, -1), y, y[:5], y, other, other[:3]]

    x, own = drawn(ROWS, WIDTH), range(6)
    one_call = OneCall(function, 1, own)
    for _ in range(2):
        found = one_call(packed, x)
        assert_same(found, function(packed, x))
        assert Kind.SEQUENCE in ran
        for i in own:
            assert found[i].base is None
            assert found[i].flags.c_contiguous
            assert not any(np.shares_memory(found[i], found[j]) for j in own if i != j)
        assert np.shares_memory(found[5], found[6])


def test_shapes_of_which_there_is_no_view(ran: list[Kind]) -> None:
    kernel, packed = product()

    def function(packed: Any, x: Any) -> Sequence[Any]:
        y = kernel.run(x, packed).reshape(ROWS // 2, 2, 4, WIDTH // 4).transpose(1, 2, 0, 3)
        return [KERNELS.softmax(KERNELS.reshaped(y, (8, -1)), or_zero=False)]

    x = drawn(ROWS, WIDTH)
    assert_same(OneCall(function, 1)(packed, x), function(packed, x))
    assert ran[0] is Kind.SEQUENCE
    with pytest.raises(ValueError, match="reshape"):
        KERNELS.reshaped(x.T, (7, -1))


def test_a_stopped_call_ends() -> None:
    function, packed = of_two()
    one_call, x, asked = OneCall(function, 1), drawn(ROWS, WIDTH), []
    one_call(packed, x, x)
    with stoppable(lambda: bool(asked)):
        asked.append(True)
        with pytest.raises(Stopped):
            one_call(packed, x, x)


def transformer(layers: int = 2) -> onnx.ModelProto:
    """Layers as exporters write them, with a mask of the keys, which also return the keys."""
    nodes = [
        node("Unsqueeze", ["mask", "one"], ["wide"]),
        node("Where", ["wide", "nothing", "hidden"], ["bias"]),
    ]
    weights = [
        weight("one", np.int64([1, 2])),
        weight("nothing", np.float32(0)),
        weight("hidden", np.float32(-1e9)),
        weight("apart", np.int64([0, 0, 4, 32])),
        weight("joined", np.int64([0, 0, 128])),
        weight("heads", np.int64([8, -1, 32])),
        weight("again", np.int64([2, 4, -1, 32])),
        weight("factor", np.float32(32**-0.5)),
    ]
    last, outputs = "x", []
    for layer in range(layers):
        names = {name: f"{name}{layer}" for name in ("q", "k", "v", "o", "s", "b", "keys", "y")}
        nodes.append(node("LayerNormalization", [last, names["s"], names["b"]], [f"n{layer}"]))
        weights.append(weight(names["s"], drawn(128, seed=layer) / 9 + 1))
        weights.append(weight(names["b"], drawn(128, seed=layer + 1) / 9))
        for name in "qkvo":
            matrix = drawn(128, 128, seed=layer + ord(name)) / 128**0.5
            weights.append(weight(names[name], matrix))
        for name in "qkv":
            nodes.append(node("MatMul", [f"n{layer}", names[name]], [f"flat_{name}{layer}"]))
            nodes.append(node("Reshape", [f"flat_{name}{layer}", "apart"], [f"r_{name}{layer}"]))
            perm = [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
            nodes.append(node("Transpose", [f"r_{name}{layer}"], [f"t_{name}{layer}"], perm=perm))
        # Heads of all images as one axis, of which there is no view.
        nodes.append(node("Reshape", [f"t_v{layer}", "heads"], [f"all_v{layer}"]))
        nodes.append(node("Reshape", [f"all_v{layer}", "again"], [f"v_{layer}"]))
        nodes += [
            node("MatMul", [f"t_q{layer}", f"t_k{layer}"], [f"scores{layer}"]),
            node("Mul", [f"scores{layer}", "factor"], [f"scaled{layer}"]),
            node("Add", [f"scaled{layer}", "bias"], [f"masked{layer}"]),
            node("Softmax", [f"masked{layer}"], [f"weights{layer}"], axis=-1),
            node("MatMul", [f"weights{layer}", f"v_{layer}"], [f"heads{layer}"]),
            node("Transpose", [f"heads{layer}"], [f"rows{layer}"], perm=[0, 2, 1, 3]),
            node("Reshape", [f"rows{layer}", "joined"], [f"all{layer}"]),
            node("MatMul", [f"all{layer}", names["o"]], [f"out{layer}"]),
            node("Add", [last, f"out{layer}"], [names["y"]]),
        ]
        outputs.append(f"t_k{layer}")
        last = names["y"]
    inputs = [
        value("x", ["n", "length", 128]),
        value("mask", ["n", "length"], onnx.TensorProto.BOOL),
    ]
    return model(nodes, inputs, [last, *outputs], weights, opset=18)


def repeated(loaded: sardonyx.Model, *inputs: Any) -> Sequence[Any]:
    for _ in range(5):
        results = loaded(*inputs)
        wait_for_background()
    return [np.array(result) for result in results]


def test_a_transformer_is_one_call(ran: list[Kind]) -> None:
    made = transformer()
    found = sardonyx.load(made, backend="jax", compile="never")
    other = sardonyx.load(made, backend="numpy")
    x, mask = drawn(2, 130, 128), np.random.default_rng(0).random((2, 130)) < 0.7
    repeated(found, x, mask)
    assert found.stats().written_out == 1
    for turn in range(3):
        x = drawn(2, 130, 128, seed=turn)
        if turn == 2:
            for params in (found.params, other.params):
                params["q0"] = drawn(128, 128, seed=77) / 9
                params["factor"] = np.float32(0.5)
        wanted = [np.array(result) for result in other(x, mask)]
        ran.clear()
        for one, right in zip(found(x, mask), wanted, strict=True):
            assert one.flags.c_contiguous
            assert_allclose(one, right, rtol=1e-4, atol=1e-4)
        if turn < 2:
            assert ran == [Kind.SEQUENCE]
    assert_same(repeated(found, x, mask), repeated(found, x, mask))
