"""Streams, events, and the graphs that streams capture."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import cupy
import numpy as np
import pytest
from cupy.cuda import runtime
from cupy.cuda.runtime import CUDARuntimeError

MODES = [
    runtime.streamCaptureModeGlobal,
    runtime.streamCaptureModeThreadLocal,
    runtime.streamCaptureModeRelaxed,
]


@pytest.fixture
def stream() -> Iterator[cupy.cuda.Stream]:
    with cupy.cuda.Stream(non_blocking=True) as stream:
        yield stream
        if stream.is_capturing():
            stream.end_capture()


def test_work_on_a_stream_and_on_the_default_one(stream: cupy.cuda.Stream) -> None:
    x = cupy.arange(3)
    stream.synchronize()
    with cupy.cuda.Stream.null:
        assert (x + 1).tolist() == [1, 2, 3]
    assert stream.done


def test_events_have_times(stream: cupy.cuda.Stream) -> None:
    start, end = cupy.cuda.Event(), cupy.cuda.Event()
    start.record(stream)
    cupy.arange(100000).sum()
    end.record(stream)
    end.synchronize()
    assert start.done
    assert cupy.cuda.get_elapsed_time(start, end) > 0


def test_an_event_without_a_time_has_none(stream: cupy.cuda.Stream) -> None:
    event = cupy.cuda.Event(disable_timing=True)
    event.record(stream)
    with pytest.raises(CUDARuntimeError, match="cudaErrorInvalidResourceHandle"):
        cupy.cuda.get_elapsed_time(event, event)


def test_a_stream_that_was_destroyed() -> None:
    handle = runtime.streamCreate()
    runtime.streamDestroy(handle)
    with pytest.raises(CUDARuntimeError, match="cudaErrorInvalidResourceHandle"):
        runtime.streamSynchronize(handle)


def test_a_graph_is_recorded_and_replayed(stream: cupy.cuda.Stream) -> None:
    x, y = cupy.arange(3.0), cupy.zeros(3)
    cupy.add(x, 1.0, out=y)  # compiles the kernel
    y.fill(0)
    stream.begin_capture()
    cupy.add(x, 1.0, out=y)
    assert stream.is_capturing()
    graph = stream.end_capture()
    assert y.tolist() == [0, 0, 0]
    for turn in (1, 2):
        x += 1
        graph.launch()
        assert y.tolist() == [1 + turn, 2 + turn, 3 + turn]


def test_two_streams_in_one_graph(stream: cupy.cuda.Stream) -> None:
    other, forked, joined = (
        cupy.cuda.Stream(non_blocking=True),
        cupy.cuda.Event(),
        cupy.cuda.Event(),
    )
    x, y = cupy.zeros(3), cupy.zeros(3)
    cupy.add(x, 1.0, out=x)
    stream.begin_capture()
    forked.record(stream)
    other.wait_event(forked)
    with other:
        cupy.add(y, 1.0, out=y)
        joined.record(other)
    stream.wait_event(joined)
    cupy.add(x, y, out=x)
    stream.end_capture().launch()
    assert x.tolist() == [2, 2, 2]


def test_a_stream_that_is_not_joined(stream: cupy.cuda.Stream) -> None:
    other, forked = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Event()
    stream.begin_capture()
    forked.record(stream)
    other.wait_event(forked)
    with pytest.raises(CUDARuntimeError, match="cudaErrorStreamCaptureUnjoined"):
        stream.end_capture()


def read(address: int) -> None:
    host = np.zeros(1, "u1")
    runtime.memcpy(host.ctypes.data, address, 1, runtime.memcpyDeviceToHost)


# By what they do: calls that wait, which no capture allows, and calls that a relaxed one allows.
WAITING: dict[str, Callable[[cupy.cuda.Stream, int], object]] = {
    "the stream is waited for": lambda stream, _: stream.synchronize(),
    "the device is waited for": lambda *_: runtime.deviceSynchronize(),
}
UNSAFE: dict[str, Callable[[cupy.cuda.Stream, int], object]] = {
    "memory is allocated": lambda *_: runtime.malloc(8),
    "memory is freed": lambda *_: runtime.free(0),
    "a byte is read": lambda _, address: read(address),
}
REFUSED = [(mode, name) for mode in MODES for name in WAITING | UNSAFE]
REFUSED = [(m, n) for m, n in REFUSED if m != runtime.streamCaptureModeRelaxed or n in WAITING]


@pytest.mark.parametrize(("mode", "name"), REFUSED)
def test_what_may_not_be_captured(stream: cupy.cuda.Stream, mode: int, name: str) -> None:
    address = cupy.zeros(3).data.ptr
    stream.begin_capture(mode)
    with pytest.raises(CUDARuntimeError, match="cudaErrorStreamCaptureUnsupported"):
        (WAITING | UNSAFE)[name](stream, address)
    with pytest.raises(CUDARuntimeError, match="cudaErrorStreamCaptureInvalidated"):
        stream.end_capture()
    assert cupy.zeros(3).tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", UNSAFE)
def test_what_a_relaxed_capture_allows(stream: cupy.cuda.Stream, name: str) -> None:
    address = cupy.zeros(3).data.ptr
    stream.begin_capture(runtime.streamCaptureModeRelaxed)
    UNSAFE[name](stream, address)
    stream.end_capture()


def test_cupy_refuses_cublas_while_it_captures(stream: cupy.cuda.Stream) -> None:
    x = cupy.ones((3, 3), "f")
    stream.begin_capture()
    with pytest.raises(NotImplementedError, match="cuBLAS"):
        x @ x
    stream.end_capture()


def test_the_default_stream_may_not_wait_for_a_capture() -> None:
    with cupy.cuda.Stream() as blocking:
        blocking.begin_capture(runtime.streamCaptureModeRelaxed)
        with (
            cupy.cuda.Stream.null,
            pytest.raises(CUDARuntimeError, match="cudaErrorStreamCaptureImplicit"),
        ):
            cupy.cuda.Stream.null.synchronize()
        with pytest.raises(CUDARuntimeError, match="cudaErrorStreamCaptureInvalidated"):
            blocking.end_capture()


def test_an_event_of_a_capture_is_not_waited_for(stream: cupy.cuda.Stream) -> None:
    event = cupy.cuda.Event()
    stream.begin_capture()
    event.record(stream)
    with pytest.raises(CUDARuntimeError, match="cudaErrorCapturedEvent"):
        event.synchronize()
    with pytest.raises(CUDARuntimeError, match="cudaErrorStreamCaptureInvalidated"):
        stream.end_capture()


def test_a_capture_that_has_not_begun(stream: cupy.cuda.Stream) -> None:
    with pytest.raises(CUDARuntimeError, match="cudaErrorIllegalState"):
        runtime.streamEndCapture(stream.ptr)
