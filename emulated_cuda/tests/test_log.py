"""The log of the emulated device, and which order it proves."""

from __future__ import annotations

from collections.abc import Callable

import cupy
import pytest
from cupy.cuda import Stream, runtime

from emulated_cuda.log import WORK, Entry, is_ordered, logged, streams_of_work


def positions_of_work(entries: list[Entry]) -> list[int]:
    return [i for i, entry in enumerate(entries) if entry.kind == WORK]


def filled(stream: Stream) -> None:
    with stream:
        cupy.empty(3, "f").fill(1)


@pytest.fixture
def two() -> tuple[Stream, Stream]:
    streams = Stream(non_blocking=True), Stream(non_blocking=True)
    for stream in streams:
        filled(stream)
    return streams


def test_work_is_logged_with_its_stream(two: tuple[Stream, Stream]) -> None:
    with logged() as entries:
        filled(two[1])
        filled(two[0])
    assert [entry.stream for entry in entries] == [two[1].ptr, two[0].ptr]
    assert streams_of_work(entries) == {two[0].ptr, two[1].ptr}


def test_a_synchronous_copy_is_work_of_the_default_stream() -> None:
    x = cupy.zeros(3, "f")
    with logged() as entries:
        runtime.memcpy(x.data.ptr, x.data.ptr, 4, runtime.memcpyDeviceToDevice)
    assert streams_of_work(entries) == {0}


def test_nothing_is_logged_outside() -> None:
    filled(Stream.null)
    with logged() as entries:
        pass
    assert entries == []


@pytest.mark.parametrize(
    ("between", "ordered"),
    [
        (lambda first, second: None, False),
        (lambda first, second: second.synchronize(), False),
        (lambda first, second: second.wait_event(second.record()), False),
        (lambda first, second: first.wait_event(second.record()), False),
        (lambda first, second: second.wait_event(first.record()), True),
        (lambda first, second: first.synchronize(), True),
        (lambda first, second: first.record().synchronize(), True),
        (lambda first, second: runtime.deviceSynchronize(), True),
    ],
)
def test_order_between_streams(
    two: tuple[Stream, Stream], between: Callable[[Stream, Stream], object], ordered: bool
) -> None:
    with logged() as entries:
        filled(two[0])
        between(*two)
        filled(two[1])
    first, second = positions_of_work(entries)
    assert is_ordered(entries, first, second) == ordered
    assert not is_ordered(entries, second, first)


def test_an_event_that_was_recorded_before_proves_nothing(two: tuple[Stream, Stream]) -> None:
    event = two[0].record()
    with logged() as entries:
        filled(two[0])
        two[1].wait_event(event)
        filled(two[1])
    assert not is_ordered(entries, *positions_of_work(entries))


def test_order_within_a_stream(two: tuple[Stream, Stream]) -> None:
    with logged() as entries:
        filled(two[0])
        filled(two[0])
    assert is_ordered(entries, *positions_of_work(entries))
