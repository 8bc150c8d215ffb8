"""Segments that are not captured, and what graphs hold: few, in memory that is given back."""

from __future__ import annotations

import gc
from collections.abc import Callable
from threading import Event, Thread
from time import sleep
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from sardonyx.backends.captures import MOST_GRAPHS, RECENT, Captures
from tests.gpu.bound_segments import (
    WEIGHT,
    Bound,
    assert_right,
    drawn,
    expected,
    has_graph,
    several_kernels,
)

if TYPE_CHECKING:
    from sardonyx.backends.cupy.backend import CupyBackend

pytestmark = pytest.mark.gpu

cupy = pytest.importorskip("cupy", reason="no CuPy; pip install 'sardonyx[cuda]'")


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
def test_a_capture_that_fails(device: CupyBackend, call: Callable[[Any], Any], reason: str) -> None:
    """The calls go on without a graph, and nothing is left of the attempt."""

    class Sorting(type(device)):  # type: ignore[misc]
        def sort(self, x: Any, **options: Any) -> Any:
            return call(x)

    def function(xp: Any, x: Any, weight: Any) -> Any:
        (y,) = several_kernels(xp, x, weight)
        return [xp.sort(y, axis=0) * 2]

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


class SmallPool(cupy.cuda.MemoryPool):  # type: ignore[misc]  # CuPy has no types
    """A pool whose next allocations fail."""

    failing = 0

    def malloc(self, size: int) -> Any:
        if self.failing and size:
            self.failing -= 1
            raise cupy.cuda.memory.OutOfMemoryError(size, 0, 0)
        return super().malloc(size)


@pytest.mark.parametrize("captures", [1, 5])
def test_a_capture_that_runs_out_of_memory(device: CupyBackend, captures: int) -> None:
    """A few are tried again, since others may free memory."""
    pool = SmallPool()
    with cupy.cuda.using_allocator(pool.malloc):
        bound = Bound(device, several_kernels, drawn(0), WEIGHT, inputs=1)
        for call in range(6):
            pool.failing = 1 if 0 < call <= captures else 0
            assert_right(bound.run(*bound.placed)[0], drawn(0))
        pool.failing = 0
    assert len(bound.graphs) == (captures == 1)
    assert len(bound.captures.refused) == (captures == 5)


def test_the_option(device: CupyBackend, monkeypatch: Any) -> None:
    monkeypatch.setattr(device, "captures_segments", False)
    bound = Bound(device, several_kernels, drawn(0), WEIGHT, inputs=1)
    for _ in range(3):
        assert_right(bound.run(*bound.placed)[0], drawn(0))
    assert bound.segment.graphs is None


# -- memory ---------------------------------------------------------------------------------------


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


def test_memory_that_no_graph_uses_is_freed(device: CupyBackend) -> None:
    pool, captures = cupy.get_default_memory_pool(), Captures()
    runs, used = [], []
    for rows in (100, 900, 9000):
        x = drawn(0, (rows, 64))
        placed = [device.put(x), device.put(np.ones_like(x))]
        run: Any = device.bind(several_kernels, placed, print, inputs=1, captures=captures).run
        runs.append((run, placed))
        for _ in range(2):
            run(*placed)
        used.append(pool.used_bytes())
    (run, _) = runs[-1]
    run.graphs.drop(0)
    gc.collect()
    assert pool.used_bytes() - used[1] < 3 * runs[-1][1][0].nbytes
    for run, placed in runs:
        assert_right(run(*placed)[0], placed[0].get(), placed[1].get())


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


def test_memory_is_released_while_threads_call(device: CupyBackend) -> None:
    bound = Bound(device, several_kernels, drawn(0), WEIGHT, inputs=1)
    ends, wrong, errors = Event(), [], []

    def work(number: int) -> None:
        x = drawn(number)
        want = expected(x, WEIGHT)
        try:
            with device.scope(), cupy.cuda.Stream(non_blocking=True):
                array = cupy.asarray(x)
                while not ends.is_set():
                    (result,) = bound.run(array, bound.placed[1])
                    if not np.allclose(result.get(), want, rtol=1e-5):
                        wrong.append(number)
        except Exception as error:
            errors.append(error)

    threads = [Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(60):
        bound.captures.release()
        cupy.get_default_memory_pool().free_all_blocks()
        sleep(0.01)
    ends.set()
    for thread in threads:
        thread.join()
    assert (wrong, errors, bound.unfused) == ([], [], [])
