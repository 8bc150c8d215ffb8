"""How time and memory grow with the size of a model, of its weights, of a loop, and with sizes.

Run it: `python -m benchmarks.growth`. Each point is CPU time of a separate process. The results
are compared with NumPy's. `--draw` writes the plots, `--add` keeps the points of earlier runs.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.growing_models import CASES, Sized
from benchmarks.results import console

NODES, INPUTS = (1_000, 10_000, 100_000), (1, 100, 10_000)
MEGABYTES = (10, 100, 1_000, 10_000)
SIZES: dict[str, Sequence[int]] = {
    "chain": NODES,
    "tree": NODES,
    "layers": NODES,
    "inputs": INPUTS,
    "weights": MEGABYTES,
    "loop": (1_000, 10_000, 100_000, 1_000_000),
    "signatures": (100, 1_000, 10_000),
}
RUNTIMES: dict[str, Sequence[str]] = {
    "chain": ("numpy", "jax", "onnxruntime"),
    "tree": ("numpy", "jax", "onnxruntime"),
    "layers": ("numpy", "jax", "onnxruntime"),
    "inputs": ("numpy", "jax", "onnxruntime"),
    # JAX copies a weight to its device, and NumPy reads the mapped file.
    "weights": ("numpy",),
    "loop": ("jax", "onnxruntime"),
    "signatures": ("numpy",),
}
REPEATS = 5
# A call of fewer seconds is repeated.
SHORT = 1.0
# Seconds that a process may take.
PATIENCE = 300


@dataclass(frozen=True)
class Point:
    """What one process took: CPU seconds by stage, and growth of memory in MB, with the model's."""

    case: str
    runtime: str
    size: int
    seconds: dict[str, float]
    megabytes: float


# -- in a separate process ------------------------------------------------------------------------


def measure(case: str, runtime: str, size: int) -> Point:
    with tempfile.TemporaryDirectory() as folder:
        take = _onnxruntime if runtime == "onnxruntime" else _sardonyx
        # The first model of a process takes imports with it.
        dict(take(CASES["chain"](8, Path()), runtime))
        before = _megabytes("VmRSS")
        sized = CASES[case](size, Path(folder))
        # Building the model took memory that is free again.
        Path("/proc/self/clear_refs").write_text("5")
        seconds = dict(take(sized, runtime))
        return Point(case, runtime, size, seconds, _megabytes("VmHWM") - before)


def _sardonyx(sized: Sized, backend: str) -> Iterator[tuple[str, float]]:
    import sardonyx  # noqa: PLC0415

    model, seconds = _timed(lambda: sardonyx.load(sized.model, backend=backend, **sized.options))
    yield "load", seconds
    yield "trace", _timed(lambda: model.trace(**sized.feeds))[1]
    if backend == "jax":
        yield "compile", _timed(lambda: model.compile(sized.feeds))[1]
    yield from _calls(sized, lambda feeds: model.run(None, feeds))


def _onnxruntime(sized: Sized, _: str) -> Iterator[tuple[str, float]]:
    import onnxruntime  # noqa: PLC0415

    session, seconds = _timed(lambda: onnxruntime.InferenceSession(sized.model))
    yield "load", seconds
    yield from _calls(sized, lambda feeds: session.run(None, feeds))


def _calls(sized: Sized, run: Callable[[Any], Any]) -> Iterator[tuple[str, float]]:
    results, seconds = _timed(lambda: run(sized.feeds))
    yield "first call", seconds
    np.testing.assert_allclose(results[0], sized.expected(), rtol=1e-3, atol=1e-4)
    if sized.more:
        yield "all calls", _timed(lambda: [run(feeds) for feeds in sized.more()])[1]
        return
    repeats = REPEATS if seconds < SHORT else 1
    yield "repeated call", min(_timed(lambda: run(sized.feeds))[1] for _ in range(repeats))


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    # Otherwise one stage may look through the objects of all stages before, and the next does not.
    gc.collect()
    start = time.process_time()
    result = work()
    return result, time.process_time() - start


def _megabytes(name: str) -> float:
    """Return what Linux counts: the memory in use (VmRSS), or its peak (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith(f"{name}:"))
    return int(kilobytes) / 1024


# -- all of them ----------------------------------------------------------------------------------


def exponents(points: Sequence[Point]) -> dict[str, float]:
    """The exponent of growth of each stage, and of memory, between the two largest sizes."""
    if len(points) < 2:
        return {}
    low, high = sorted(points, key=lambda point: point.size)[-2:]
    growth = math.log(high.size / low.size)
    found = {
        stage: math.log(max(seconds, 1e-6) / max(low.seconds[stage], 1e-6)) / growth
        for stage, seconds in high.seconds.items()
        if stage in low.seconds
    }
    return found | {"memory": math.log(max(high.megabytes, 1) / max(low.megabytes, 1)) / growth}


def report(points: Sequence[Point]) -> Iterator[list[str]]:
    """Yield the rows of the table: the largest size of each case, with exponents."""
    for case, runtime in dict.fromkeys((point.case, point.runtime) for point in points):
        line = [p for p in points if (p.case, p.runtime) == (case, runtime)]
        largest = max(line, key=lambda point: point.size)
        grown = exponents(line)
        taken = {**{k: f"{v:.3g} s" for k, v in largest.seconds.items()}}
        taken["memory"] = f"{largest.megabytes:,.0f} MB"
        for stage, value in taken.items():
            exponent = f"{grown[stage]:.2f}" if stage in grown else ""
            yield [case, runtime, f"{largest.size:,}", stage, value, exponent]


def _in_its_own_process(case: str, runtime: str, size: int) -> Point | None:
    command = [sys.executable, "-m", "benchmarks.growth", "measure", case, runtime, str(size)]
    try:
        ended = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=True, timeout=PATIENCE
        )
    except subprocess.SubprocessError as error:
        console().print(f"{case} of {size:,} on {runtime} has no result: {error}")
        return None
    return Point(**json.loads(ended.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--cases", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--runtimes", nargs="+", choices=["numpy", "jax", "onnxruntime"])
    parser.add_argument("--largest", type=int, default=None, help="leave out larger sizes")
    parser.add_argument("--add", type=Path, help="a file of points, which gets the new ones")
    parser.add_argument("--draw", type=Path, help="a folder for the plots")
    options = parser.parse_args()
    saved = json.loads(options.add.read_text()) if options.add and options.add.exists() else []
    kept: dict[tuple[str, str, int], Point | None] = {
        (point.case, point.runtime, point.size): point for point in (Point(**p) for p in saved)
    }
    for case in options.cases:
        for runtime in options.runtimes or RUNTIMES[case]:
            for size in SIZES[case]:
                if runtime in RUNTIMES[case] and (options.largest or math.inf) >= size:
                    point = _in_its_own_process(case, runtime, size)
                    kept[case, runtime, size] = point or kept.get((case, runtime, size))
    points = [point for point in kept.values() if point]
    if options.add:
        options.add.write_text(json.dumps([asdict(point) for point in points], indent=1) + "\n")
    table = Table(*("case", "runtime", "size", "stage", "takes", "exponent"))
    for row in report(points):
        table.add_row(*row)
    console().print(table)
    if options.draw:
        from benchmarks.growth_plots import draw  # noqa: PLC0415

        draw(points, options.draw)


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        found = measure(sys.argv[2], sys.argv[3], int(sys.argv[4]))
        print(json.dumps(asdict(found)))
    else:
        main()
