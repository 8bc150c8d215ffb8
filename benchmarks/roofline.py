"""What a device could do at best: its measured rates, and the work that a program has for it.

`python -m benchmarks.roofline` prints JAX's platform and, of a GPU, the rates, as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

ROUNDS = 20


@dataclass(frozen=True)
class Rates:
    """Bytes that are read and written, and operations in float32, in a second."""

    bandwidth: float
    operations: float

    def least_seconds(self, work: Work) -> float:
        return max(work.moved / self.bandwidth, work.operations / self.operations)


@dataclass(frozen=True)
class Work:
    """What the compiler counts in a program: operations, and bytes that are read and written."""

    operations: float
    moved: float


def rates(copied: int = 2**30, rows: int = 8192) -> Rates:
    """Measured: by a copy of so many bytes, and by a product of square matrices with such rows."""
    import jax  # noqa: PLC0415
    import jax.numpy as jnp  # noqa: PLC0415

    numbers = jnp.zeros(copied // 4, jnp.float32)
    matrix = jnp.ones((rows, rows), jnp.float32)
    # A copy alone would be left out, so that something is added to it.
    copy = _seconds(jax.jit(lambda x: x + 1), numbers)
    product = _seconds(jax.jit(lambda x: jnp.matmul(x, x, precision="highest")), matrix)
    return Rates(2 * numbers.nbytes / copy, 2 * rows**3 / product)


def copy_rate(size: int) -> float:
    """Bytes that a copy of so many reads and writes in a second, on all of the CPU's threads."""
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    count = max(size // threads, 1)
    pairs = [(np.ones(count, np.uint8), np.zeros(count, np.uint8)) for _ in range(threads)]
    times = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(ROUNDS):
            start = time.perf_counter()
            list(pool.map(lambda pair: np.copyto(pair[1], pair[0]), pairs))
            times.append(time.perf_counter() - start)
    return 2 * count * threads / min(times)


def rates_of_gpu() -> Rates:
    """The rates, from a process of its own, so that this one holds no memory of the device."""
    command = [sys.executable, "-m", "benchmarks.roofline"]
    ended = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    platform, measured = json.loads(ended.stdout.splitlines()[-1])
    if platform != "gpu":
        raise SystemExit(f"JAX finds no GPU here, only a {platform}: install the cuda extra.")
    return Rates(**measured)


def work_of(model: Any, feeds: Mapping[str, Any]) -> Work:
    """The work of a call of a sardonyx model, of all segments that are compiled."""
    model.compile(feeds)
    stages = model.trace(**feeds).stages
    costs = [s.executable.costs() for s in stages if s.executable and s.executable.costs]
    # A compiler sees nothing of what libraries move for it, but arguments are read in any case.
    moved = sum(max(c.moved, c.arguments + c.outputs) for c in costs)
    return Work(sum(c.operations for c in costs), moved)


def work_of_jitted(function: Any, *arguments: Any) -> Work:
    """The work of a function of `jax.jit`, before products are handed to libraries, and after.

    For a GPU nothing is counted before.
    """
    lowered = function.lower(*arguments)
    compiled = lowered.compile()
    memory, counted = compiled.memory_analysis(), compiled.cost_analysis()
    passed = memory.argument_size_in_bytes + memory.output_size_in_bytes
    written = lowered.cost_analysis() or counted
    return Work(written["flops"], max(counted["bytes accessed"], passed))


def needed(works: Sequence[Work]) -> Work:
    """What programs that compute the same need at least: libraries' operations are not counted."""
    return Work(max(work.operations for work in works), min(work.moved for work in works))


def _seconds(function: Callable[[Any], Any], argument: Any) -> float:
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        function(argument).block_until_ready()
        times.append(time.perf_counter() - start)
    return min(times)


def _told() -> tuple[str, dict[str, float]]:
    import jax  # noqa: PLC0415

    platform = jax.default_backend()
    return platform, asdict(rates()) if platform == "gpu" else {}


if __name__ == "__main__":
    print(json.dumps(_told()))
