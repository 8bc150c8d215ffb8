"""What the emulated device did on which stream, and what it had to wait for.

Work runs in the order in which it is called, so a forgotten wait changes no result here. The log
shows it: `is_ordered` says whether CUDA's rules alone put one entry before another.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

# In the order of driver/log.h.
WORK, RECORD, WAIT, STREAM_AWAITED, EVENT_AWAITED, DEVICE_AWAITED = range(6)


class Entry(NamedTuple):
    kind: int
    # CUDA's handle: 0 and 1 are the legacy default stream, 2 that of the thread.
    stream: int
    event: int


@contextmanager
def logged() -> Iterator[list[Entry]]:
    """Yield a list that at the end of the block holds what happened in it."""
    driver = ctypes.CDLL("libcuda.so.1")
    entries: list[Entry] = []
    driver.emulated_cuda_start_log()
    try:
        yield entries
    finally:
        count = driver.emulated_cuda_stop_log()
        numbers = (ctypes.c_int64 * (3 * count))()
        driver.emulated_cuda_read_log(numbers, count)
        entries += [Entry(*numbers[3 * i : 3 * i + 3]) for i in range(count)]


def streams_of_work(entries: Sequence[Entry]) -> set[int]:
    return {entry.stream for entry in entries if entry.kind == WORK}


def is_ordered(entries: Sequence[Entry], first: int, second: int) -> bool:
    """Whether the entry at `second` runs after that at `first`, whatever the device does.

    Streams are taken for ones that do not wait for the default stream. The host's calls are taken
    for ordered, also those of several threads.
    """
    # The streams, and the records of events, that come after `first`.
    streams = {entries[first].stream}
    events: set[int] = set()
    for kind, stream, event in entries[first + 1 : second]:
        if kind == RECORD:
            (events.add if stream in streams else events.discard)(event)
        elif kind == WAIT and event in events:
            streams.add(stream)
        elif (
            kind == DEVICE_AWAITED
            or (kind == STREAM_AWAITED and stream in streams)
            or (kind == EVENT_AWAITED and event in events)
        ):
            return True
    return entries[second].stream in streams
