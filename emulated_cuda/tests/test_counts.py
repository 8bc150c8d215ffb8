"""The counters of the emulated device."""

from __future__ import annotations

import cupy
import numpy as np
import pytest

from emulated_cuda.counts import Counts, counted


def test_nothing_is_counted_where_nothing_runs() -> None:
    with counted() as counts:
        pass
    assert counts == Counts()


def test_kernels_and_copies() -> None:
    x = np.ones(10, np.float32)
    y = cupy.asarray(x)
    y + y  # its kernel is compiled, and its memory is in the pool
    with counted() as counts:
        y = cupy.asarray(x)
        z = y + y
    assert (counts.kernels, counts.synchronizations, counts.allocations) == (1, 0, 0)
    assert (counts.copies_to_device, counts.bytes_to_device) == (1, 40)
    with counted() as counts:
        z.get()
    assert (counts.copies_to_host, counts.bytes_to_host, counts.kernels) == (1, 40, 0)
    assert counts.synchronizations == 1


def test_calls_of_libraries() -> None:
    x = cupy.ones((3, 3), "f")
    x @ x
    with counted() as counts:
        x @ x
    assert (counts.library_calls, counts.kernels) == (1, 0)


def test_allocations() -> None:
    with cupy.cuda.using_allocator(None), counted() as counts:
        x = cupy.empty(10, "f")
        del x
    assert (counts.allocations, counts.bytes_allocated, counts.frees) == (1, 40, 1)


@pytest.mark.parametrize("launches", [1, 3])
def test_a_graph_counts_its_kernels_when_it_runs(launches: int) -> None:
    x = cupy.zeros(3)
    x += 1
    with cupy.cuda.Stream(non_blocking=True) as stream:
        with counted() as counts:
            stream.begin_capture()
            x += 1
            x += 1
            graph = stream.end_capture()
        assert counts.kernels == 0
        with counted() as counts:
            for _ in range(launches):
                graph.launch()
        assert (counts.graph_launches, counts.kernels) == (launches, 2 * launches)
