"""Fused segments as CUDA graphs: the same results, in arrays that are the caller's alone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from threading import Barrier, Thread
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from onnx import parser

import sardonyx
from tests.gpu.bound_segments import (
    WEIGHT,
    Bound,
    assert_right,
    drawn,
    expected,
    several_kernels,
)

if TYPE_CHECKING:
    from sardonyx.backends.cupy.backend import CupyBackend

pytestmark = pytest.mark.gpu

cupy = pytest.importorskip("cupy", reason="no CuPy; pip install 'sardonyx[cuda]'")


@pytest.fixture
def bound(device: CupyBackend) -> Bound:
    """The function above, its second argument a weight, captured."""
    found = Bound(device, several_kernels, drawn(0), WEIGHT, inputs=1)
    for _ in range(2):
        found.run(*found.placed)
    assert found.captures.refused == {}
    assert len(found.graphs) == 1
    return found


# -- what enters, and what leaves -----------------------------------------------------------------


def test_a_graph_computes_each_call_anew(bound: Bound) -> None:
    for seed in range(4):
        x = drawn(seed)
        assert_right(bound.run(cupy.asarray(x), bound.placed[1])[0], x)


def test_results_are_not_written_to_by_later_calls(bound: Bound) -> None:
    found = [bound.run(cupy.asarray(drawn(seed)), bound.placed[1])[0] for seed in range(3)]
    for seed, result in enumerate(found):
        assert_right(result, drawn(seed))
        result[...] = 7
    assert_right(bound.run(bound.placed[0], bound.placed[1])[0], drawn(0))


def test_inputs_are_not_written_to_and_may_be_freed(bound: Bound) -> None:
    x = cupy.asarray(drawn(5))
    result = bound.run(x, bound.placed[1])[0]
    np.testing.assert_array_equal(cupy.asnumpy(x), drawn(5))
    x[...] = np.nan
    del x
    cupy.full((3, 4), np.nan, np.float32)
    assert_right(result, drawn(5))


@pytest.mark.parametrize(
    "view",
    [
        lambda x: cupy.asarray(x.T.copy()).T,
        lambda x: cupy.asarray(np.repeat(x, 2, axis=1))[:, ::2],
        lambda x: cupy.asarray(x[::-1].copy())[::-1],
        lambda x: cupy.asarray(np.concatenate([x[:1], x]))[1:],
    ],
    ids=["transposed", "every other", "backwards", "not at the start"],
)
def test_inputs_that_are_views(bound: Bound, view: Callable[[Any], Any]) -> None:
    assert_right(bound.run(view(drawn(3)), bound.placed[1])[0], drawn(3))


def test_a_broadcast_input(bound: Bound) -> None:
    x = np.broadcast_to(drawn(3, (1, 4)), (3, 4))
    array = cupy.broadcast_to(cupy.asarray(drawn(3, (1, 4))), (3, 4))
    assert_right(bound.run(array, bound.placed[1])[0], x)


def test_an_input_of_another_shape_runs_step_by_step(bound: Bound) -> None:
    x = drawn(3, (3, 1))
    found = bound.run(cupy.asarray(x), bound.placed[1])[0]
    np.testing.assert_allclose(cupy.asnumpy(found), expected(x, WEIGHT), rtol=1e-5)
    assert bound.unfused == ["float32[3, 1], not float32[3, 4]"]


def test_results_that_are_arguments_constants_or_views_of_them(device: CupyBackend) -> None:
    def function(xp: Any, x: Any, weight: Any) -> Any:
        (y,) = several_kernels(xp, x, weight)
        constant = xp.put(np.arange(3))
        return [y, x, xp.permute_dims(x, (1, 0)), constant, y, xp.reshape(weight, (-1,)), y[:, 1:]]

    bound = Bound(device, function, drawn(0), WEIGHT, inputs=1)
    weight = bound.placed[1]
    for seed in range(4):
        array = cupy.asarray(drawn(seed))
        y, x, turned, constant, again, flat, part = bound.run(array, weight)
        assert x is array
        assert turned.data.ptr == array.data.ptr
        assert flat.data.ptr == weight.data.ptr
        np.testing.assert_array_equal(cupy.asnumpy(constant), [0, 1, 2])
        constant[...] = 9
        for one in (y, again):
            assert_right(one, drawn(seed))
        np.testing.assert_array_equal(cupy.asnumpy(part), cupy.asnumpy(y)[:, 1:])
    assert len(bound.graphs) == 1


@pytest.mark.parametrize("dtype", ["float16", "float64", ml_dtypes.bfloat16, "int32", "uint8"])
def test_dtypes(device: CupyBackend, dtype: Any) -> None:
    def function(xp: Any, x: Any) -> Any:
        for _ in range(4):
            x = xp.maximum(x, xp.max(x, axis=0, keepdims=True) - x)
        return [x]

    x = np.random.default_rng(0).integers(0, 9, (5, 3)).astype(dtype)
    bound = Bound(device, function, x)
    (want,) = function(np, x.astype(np.float64))
    for _ in range(3):
        (found,) = bound.run(*bound.placed)
        np.testing.assert_array_equal(cupy.asnumpy(found).astype(np.float64), want)
    assert len(bound.graphs) == 1


def test_scalars_and_empty_arrays(device: CupyBackend) -> None:
    def function(xp: Any, x: Any, scale: Any, empty: Any) -> Any:
        (y,) = several_kernels(xp, x * scale, x * 0 + 1)
        return [y, xp.sum(y), empty * 2, xp.sum(empty)]

    arrays = drawn(0), np.array(2, np.float32), np.zeros((0, 2), np.float32)
    bound = Bound(device, function, *arrays)
    for _ in range(3):
        y, total, empty, zero = bound.run(*bound.placed)
        assert_right(y, arrays[0] * 2, np.ones((3, 4)))
        np.testing.assert_allclose(total.get(), y.get().sum(), rtol=1e-5)
        assert (empty.shape, zero.get()) == ((0, 2), 0)
    assert len(bound.graphs) == 1


def chains(xp: Any, x: Any) -> Any:
    """Kernels that could write over what others, or other threads, still read."""
    y = xp.matmul(x, x)
    turned = xp.exp(y * 0.1) + xp.permute_dims(y, (1, 0))
    back = xp.matmul(turned, x)
    back = back[::-1] - back
    z = xp.tanh(xp.matmul(back, y))
    for _ in range(150):
        z = z * 0.99 + 0.01
    rows = xp.matmul(z, z)
    rows = rows / (1 + xp.sum(xp.abs(rows), axis=1, keepdims=True))
    return [xp.matmul(rows, x), xp.matmul(rows, rows) + rows]


@pytest.mark.parametrize("size", [5, 64, 300])
def test_kernels_that_write_over_their_inputs(device: CupyBackend, size: int) -> None:
    x = drawn(0, (size, size)) / np.float32(size**0.5)
    bound = Bound(device, chains, x)
    assert len(bound.segment.program.placement.places) >= 3
    with np.errstate(over="ignore"):
        want = chains(np, x.astype(np.float64))
    for _ in range(4):
        for found, right in zip(bound.run(*bound.placed), want, strict=True):
            np.testing.assert_allclose(found.get(), right, rtol=1e-3, atol=1e-3)
    assert len(bound.graphs) == 1


# -- weights --------------------------------------------------------------------------------------


def test_other_weights_are_captured_anew(bound: Bound) -> None:
    first, x = bound.graphs[0], cupy.asarray(drawn(0))
    other = cupy.asarray(WEIGHT * 3)
    for _ in range(3):
        assert_right(bound.run(x, other)[0], drawn(0), WEIGHT * 3)
    assert len(bound.graphs) == 1
    assert bound.graphs[0] is not first


def test_weights_that_alternate_are_not_captured_at_each_call(bound: Bound) -> None:
    x, other = cupy.asarray(drawn(0)), cupy.asarray(WEIGHT * 3)
    for _ in range(3):
        assert_right(bound.run(x, other)[0], drawn(0), WEIGHT * 3)
        assert_right(bound.run(x, bound.placed[1])[0], drawn(0))
        assert bound.graphs == []


def test_replaced_weights_of_a_model(cupy_backend: CupyBackend) -> None:
    text = """<ir_version: 10, opset_import: ["": 22]>
    g (float[3, 4] x) => (float[3, 4] y) <float[3, 4] w = {1,2,3,4,5,6,7,8,9,10,11,12}> {
        a = Mul(x, w) m = ReduceMax<keepdims=1>(a, zero) b = Sub(a, m) e = Exp(b)
        s = ReduceSum<keepdims=1>(e, zero) y = Div(e, s) zero = Constant<value_ints=[0]>() }"""
    text = text.replace("a = Mul(x, w)", "zero = Constant<value_ints=[0]>() a = Mul(x, w)")
    text = text.replace("y = Div(e, s) zero = Constant<value_ints=[0]>() }", "y = Div(e, s) }")
    model = sardonyx.load(parser.parse_model(text), backend=cupy_backend)
    x = drawn(0)
    weight = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    for scale in (1, 2):
        model.params["w"] = weight * scale
        wide = np.exp(x * weight * scale - (x * weight * scale).max(axis=0))
        for _ in range(4):
            np.testing.assert_allclose(np.asarray(model(x)), wide / wide.sum(axis=0), rtol=1e-5)
    assert model.stats().uncaptured == {}


# -- streams and threads --------------------------------------------------------------------------


def test_a_graph_for_each_stream(bound: Bound) -> None:
    for _ in range(2):
        streams = [cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream()]
        for seed in range(6):
            with streams[seed % 2]:
                x = cupy.asarray(drawn(seed))
                result = bound.run(x, bound.placed[1])[0]
                assert_right(result, drawn(seed))
    assert 3 <= len(bound.graphs) <= 5


def test_streams_beyond_the_bound(bound: Bound) -> None:
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(12)]
    for stream in streams * 2:
        with stream:
            assert_right(bound.run(cupy.asarray(drawn(0)), bound.placed[1])[0], drawn(0))
    assert len(bound.segment.graphs._on) <= 8


@pytest.mark.parametrize("own_streams", [False, True])
def test_threads(device: CupyBackend, own_streams: bool) -> None:
    bound = Bound(device, several_kernels, drawn(0), WEIGHT, inputs=1)
    start, wrong = Barrier(4), []

    def work(number: int) -> None:
        stream: AbstractContextManager[Any] = nullcontext()
        with device.scope():
            if own_streams:
                stream = cupy.cuda.Stream(non_blocking=True)
            with stream:
                x = drawn(number)
                want, array = expected(x, WEIGHT), cupy.asarray(x)
                start.wait()
                results = [bound.run(array, bound.placed[1])[0] for _ in range(25)]
                wrong.extend(r for r in results if not np.allclose(r.get(), want, rtol=1e-5))

    threads = [Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert bound.captures.refused == {}


def test_a_second_thread_does_not_wait_for_a_replay(bound: Bound) -> None:
    (known,) = bound.segment.graphs._on.values()
    x = drawn(4)
    with known.memory.lock:
        assert_right(bound.run(cupy.asarray(x), bound.placed[1])[0], x)


def test_a_callers_own_capture_holds_the_kernels(bound: Bound) -> None:
    x = cupy.asarray(drawn(0))
    with cupy.cuda.Stream(non_blocking=True) as stream:
        for _ in range(3):
            bound.run(x, bound.placed[1])
        stream.begin_capture()
        (result,) = bound.run(x, bound.placed[1])
        graph = stream.end_capture()
        x[...] = cupy.asarray(drawn(8))
        graph.launch()
        assert_right(result, drawn(8))
