"""Fused segments as CUDA graphs: the same results, in arrays that are the caller's alone."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import Barrier, Thread
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from onnx import parser

import sardonyx
from sardonyx.backends.captures import MOST_GRAPHS, RECENT, Captures

if TYPE_CHECKING:
    from sardonyx.backends.cupy.backend import CupyBackend

pytestmark = pytest.mark.gpu

cupy = pytest.importorskip("cupy", reason="no CuPy; pip install 'sardonyx[cuda]'")

Function = Callable[..., Sequence[Any]]


def several_kernels(xp: Any, x: Any, weight: Any) -> Any:
    """Sums over columns, which each are a kernel of their own."""
    for _ in range(3):
        x = xp.exp(x - xp.max(x, axis=0, keepdims=True)) * weight
        x = x / xp.sum(x, axis=0, keepdims=True)
    return [x]


def expected(x: np.ndarray[Any, Any], weight: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    (result,) = several_kernels(np, x.astype(np.float64), weight.astype(np.float64))
    return np.asarray(result)


WEIGHT = np.linspace(0.5, 2, 12, dtype=np.float32).reshape(3, 4)


def drawn(seed: int, shape: tuple[int, ...] = (3, 4), dtype: Any = np.float32) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


class Bound:
    """A function that is bound as a segment, and what became of it."""

    def __init__(
        self, backend: CupyBackend, function: Function, *arrays: Any, inputs: int | None = None
    ) -> None:
        self.captures = Captures()
        self.unfused: list[str] = []
        self.placed = [backend.put(array) for array in arrays]
        self.run = backend.bind(
            function, self.placed, self.unfused.append, inputs=inputs, captures=self.captures
        ).run
        self.segment: Any = self.run

    @property
    def graphs(self) -> list[Any]:
        return [known.graph for known in self.segment.graphs._on.values() if known.graph]


@pytest.fixture
def device(cupy_backend: CupyBackend) -> Iterator[CupyBackend]:
    with cupy_backend.scope():
        yield cupy_backend


@pytest.fixture
def bound(device: CupyBackend) -> Bound:
    """The function above, its second argument a weight, captured."""
    found = Bound(device, several_kernels, drawn(0), WEIGHT, inputs=1)
    for _ in range(2):
        found.run(*found.placed)
    assert found.captures.refused == {}
    assert len(found.graphs) == 1
    return found


def assert_right(found: Any, x: Any, weight: Any = WEIGHT) -> None:
    np.testing.assert_allclose(cupy.asnumpy(found), expected(x, weight), rtol=1e-5)


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


def test_the_stream_of_each_thread_has_no_graph(bound: Bound) -> None:
    with cupy.cuda.Stream.ptds:
        for seed in range(3):
            x = cupy.asarray(drawn(seed))
            assert_right(bound.run(x, bound.placed[1])[0], drawn(seed))
    assert len(bound.graphs) == 1


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


# -- what is not captured -------------------------------------------------------------------------


def uncaptured(bound: Bound, *arrays: Any) -> list[Any]:
    """Run some calls; return the last results. No graph may come of it."""
    results: list[Any] = []
    for _ in range(4):
        results = list(bound.run(*arrays))
    assert bound.graphs == []
    return results


def waiting(x: Any) -> Any:
    cupy.cuda.get_current_stream().synchronize()
    return x.copy()


def fetching(x: Any) -> Any:
    return cupy.asarray(x.get())


def solving(x: Any) -> Any:
    """Call cuSOLVER, which CuPy refuses in a capture."""
    return cupy.linalg.solve(cupy.eye(len(x), dtype=x.dtype), x)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (solving, "calling cuSOLVER API"),
        (fetching, "D2H transfers are disallowed"),
        (waiting, "cudaErrorStreamCapture"),
    ],
    ids=["refused", "fetching", "invalid"],
)
def test_a_capture_that_fails(
    device: CupyBackend, monkeypatch: Any, call: Callable[[Any], Any], reason: str
) -> None:
    """The calls go on without a graph, and nothing is left of the attempt."""
    from sardonyx.backends.cupy import segment_graphs  # noqa: PLC0415

    class Sorting(type(device)):  # type: ignore[misc]
        def sort(self, x: Any, **options: Any) -> Any:
            return call(x)

    def function(xp: Any, x: Any, weight: Any) -> Any:
        (y,) = several_kernels(xp, x, weight)
        return [xp.sort(y, axis=0) * 2]

    monkeypatch.setattr(segment_graphs, "LAUNCHING", {"sort"})
    bound = Bound(Sorting(), function, drawn(0), WEIGHT, inputs=1)
    pool = cupy.get_default_memory_pool()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        bound.run(*bound.placed)
        bound.captures.release()
        gc.collect()
        used = pool.used_bytes()
        (result,) = uncaptured(bound, *bound.placed)
        assert_right(result / 2, drawn(0))
        assert not stream.is_capturing()
        (found,) = bound.captures.refused
        assert reason in found
        assert bound.unfused == []
        del result
        bound.captures.release()
        gc.collect()
        assert pool.used_bytes() == used


def test_products_are_captured_and_write_to_the_arena(device: CupyBackend) -> None:
    def function(xp: Any, x: Any, weight: Any) -> Any:
        for _ in range(3):
            x = xp.tanh(xp.matmul(x, weight))
        return [x, xp.matmul(x, xp.matrix_transpose(x))]

    x, weight = drawn(0, (5, 6)), drawn(1, (6, 6))
    bound = Bound(device, function, x, weight, inputs=1)
    for seed in range(5):
        x = drawn(seed, (5, 6))
        for found, want in zip(
            bound.run(cupy.asarray(x), bound.placed[1]),
            function(np, x.astype(np.float64), weight.astype(np.float64)),
            strict=True,
        ):
            np.testing.assert_allclose(found.get(), want, rtol=1e-4, atol=1e-5)
    assert len(bound.graphs) == 1
    assert bound.captures.refused == {}
    # Three products and two of their functions.
    assert len(bound.segment.program.placement.lifetimes) == 5


def test_calls_that_may_wait_are_not_captured(device: CupyBackend) -> None:
    def function(xp: Any, x: Any, weight: Any) -> Any:
        (y,) = several_kernels(xp, x, weight)
        return [xp.sort(y, axis=0)]

    bound = Bound(device, function, drawn(0), WEIGHT, inputs=1)
    (result,) = uncaptured(bound, *bound.placed)
    np.testing.assert_allclose(result.get(), np.sort(expected(drawn(0), WEIGHT), 0), rtol=1e-5)
    assert bound.captures.refused == {"sort runs as calls of CuPy that may wait for the device": 1}


def test_a_single_kernel_is_cheaper_than_a_graph(device: CupyBackend) -> None:
    bound = Bound(device, lambda xp, x: [xp.exp(x) + 1], drawn(0))
    uncaptured(bound, *bound.placed)
    assert list(bound.captures.refused) == ["1 launches are no more than the 2 copies of a graph"]


def test_views_alone_are_not_captured(device: CupyBackend) -> None:
    bound = Bound(device, lambda xp, x: [x, xp.permute_dims(x, (1, 0))], drawn(0))
    x, turned = bound.run(*bound.placed)
    assert x is bound.placed[0]
    assert turned.data.ptr == x.data.ptr
    assert bound.segment.graphs is None
    assert bound.captures.refused == {}


def test_memory_in_the_order_of_streams_is_not_captured(device: CupyBackend) -> None:
    bound = Bound(device, several_kernels, drawn(0), WEIGHT, inputs=1)
    with cupy.cuda.using_allocator(cupy.cuda.MemoryAsyncPool().malloc):
        (result,) = uncaptured(bound, *bound.placed)
        assert_right(result, drawn(0))
    assert bound.captures.refused == {"CuPy's allocator is not a MemoryPool": 1}


def test_the_option(device: CupyBackend, monkeypatch: Any) -> None:
    monkeypatch.setattr(device, "captures_segments", False)
    bound = Bound(device, several_kernels, drawn(0), WEIGHT, inputs=1)
    for _ in range(3):
        assert_right(bound.run(*bound.placed)[0], drawn(0))
    assert bound.segment.graphs is None


# -- memory ---------------------------------------------------------------------------------------


def has_graph(run: Any) -> bool:
    return any(known.graph is not None for known in run.graphs._on.values())


def test_a_model_has_a_bounded_number_of_graphs(device: CupyBackend) -> None:
    captures = Captures()
    placed = [device.put(drawn(0)), device.put(WEIGHT)]
    segments: list[Any] = [
        device.bind(several_kernels, placed, print, inputs=1, captures=captures).run
        for _ in range(MOST_GRAPHS + 3)
    ]
    for _ in range(3):
        for segment in segments:
            assert_right(segment(*placed)[0], drawn(0))
    # Those in use stay, whatever else is called.
    assert [has_graph(one) for one in segments] == [True] * MOST_GRAPHS + [False] * 3
    for _ in range(RECENT):
        segments[1](*placed)
    for _ in range(3):
        assert_right(segments[-1](*placed)[0], drawn(0))
    assert [i for i, one in enumerate(segments) if not has_graph(one)] == [0, 16, 17]
    assert captures.refused == {}


def test_the_graphs_of_a_model_share_memory(device: CupyBackend) -> None:
    pool, captures = cupy.get_default_memory_pool(), Captures()
    big = drawn(0, (512, 700))
    placed = [device.put(big), device.put(np.ones_like(big))]
    runs = [
        device.bind(several_kernels, placed, print, inputs=1, captures=captures).run
        for _ in range(3)
    ]
    used = []
    for run in runs:
        for _ in range(2):
            run(*placed)
        used.append(pool.used_bytes())
    assert used[0] == used[1] == used[2]
    for seed in range(6):
        x = drawn(seed, big.shape)
        assert_right(runs[seed % 3](cupy.asarray(x), placed[1])[0], x, np.ones_like(big))


def test_a_dropped_graph_leaves_the_memory_of_others_alone(device: CupyBackend) -> None:
    captures = Captures()
    placed = [device.put(drawn(0)), device.put(WEIGHT)]

    def bound() -> Any:
        run = device.bind(several_kernels, placed, print, inputs=1, captures=captures).run
        for _ in range(2):
            run(*placed)
        return run

    first, second = bound(), bound()
    for _ in range(3):
        first = bound()
        gc.collect()
        cupy.get_default_memory_pool().free_all_blocks()
        for seed in range(2):
            x = cupy.asarray(drawn(seed))
            for run in (first, second):
                assert_right(run(x, placed[1])[0], drawn(seed))


def test_memory_is_given_back(device: CupyBackend) -> None:
    pool = cupy.get_default_memory_pool()
    big = drawn(0, (512, 700))
    bound = Bound(device, several_kernels, big, np.ones_like(big), inputs=1)
    gc.collect()
    used = pool.used_bytes()
    for _ in range(3):
        bound.run(*bound.placed)
    assert pool.used_bytes() > used
    bound.captures.release()
    assert pool.used_bytes() == used
    for _ in range(3):
        assert_right(bound.run(*bound.placed)[0], big, np.ones_like(big))
    del bound
    gc.collect()
    assert pool.used_bytes() < used
