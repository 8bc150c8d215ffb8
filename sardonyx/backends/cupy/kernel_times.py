"""The time that work takes on the device alone, without that of the host that starts it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sardonyx.backends.cupy.compiled_kernels import kernel_of_cupys
from sardonyx.backends.cupy.event_stopwatch import EventStopwatch

RUNS = 3
# The device waits for so many of its cycles, half a millisecond, while the host starts the runs.
CYCLES = 1_000_000
WAIT = """
extern "C" __global__ void wait_for_the_host(long long cycles) {
    const long long start = clock64();
    while (clock64() - start < cycles) {}
}
"""


def shortest_time(work: Callable[[], Any]) -> float:
    """Return the seconds of the shortest of a few runs on the current stream.

    Kernels of a few microseconds are faster than the host starts them. So the device first waits
    until some of them are in its queue.
    """
    watch = EventStopwatch()
    kernel_of_cupys(WAIT, "wait_for_the_host")((1,), (1,), (CYCLES,))
    watch.note(())
    for _ in range(RUNS):
        work()
        watch.note(())
    return min(watch.seconds())
