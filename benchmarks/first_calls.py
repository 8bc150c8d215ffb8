"""The first calls of a model: how long each takes while a compiler works in the background.

Run it: `python -m benchmarks.first_calls`, on a GPU too. Each network is a process of its own, with
all options at their defaults, and NumPy's arrays in and out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.models import NETWORKS
from benchmarks.processes import measured_apart
from benchmarks.results import console

# Calls go on for so many seconds after the last one that ran step by step.
CALM = 2.0
# Of the largest result; a GPU may multiply otherwise than the CPU.
TOLERANCE = 1e-3


def measure(path: str, name: str, patience: float) -> dict[str, Any]:
    """Call a model until its calls have run alike for a while."""
    import sardonyx  # noqa: PLC0415

    feeds = NETWORKS[name].feeds(1)
    start = time.perf_counter()
    model = sardonyx.load(path, backend="jax")
    loaded = time.perf_counter() - start
    expected = _by_onnxruntime(path, feeds)
    start = calm_since = time.perf_counter()
    ended, seconds, interpreted = start, [], 0
    while ended < min(calm_since + CALM, start + patience):
        begun = time.perf_counter()
        results = model.run(None, feeds)
        ended = time.perf_counter()
        seconds.append((begun - start, ended - begun))
        _check(results[0], expected)
        stats = model.stats()
        if stats.interpreted != interpreted:
            interpreted, calm_since = stats.interpreted, ended
    later = [took for _, took in seconds[1:]]
    waited = max(seconds[1:], key=lambda each: each[1])
    return {
        "load": loaded,
        "first": seconds[0][1],
        "meanwhile": statistics.median(later[: max(interpreted - 1, 1)]),
        "longest": waited[1],
        "longest_at": waited[0],
        "settled": calm_since - start,
        "is_settled": ended >= calm_since + CALM,
        "then": statistics.median(later[interpreted:] or later[-1:]),
        "compiles": stats.compiles,
    }


def _by_onnxruntime(path: str, feeds: Any) -> Any:
    import onnxruntime  # noqa: PLC0415

    return onnxruntime.InferenceSession(path).run(None, feeds)[0]


def _check(result: Any, expected: Any) -> None:
    error = float(np.abs(result - expected).max() / np.abs(expected).max())
    assert error <= TOLERANCE, f"off by {error:.1e} of the largest"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_calls", description=__doc__)
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--patience", type=float, default=120.0, help="seconds for each network")
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "sardonyx-benchmarks"
    )
    given = parser.parse_args()
    from benchmarks.exports import export  # noqa: PLC0415

    table = Table(title="The first calls of a model, batch 1; seconds, and ms a call")
    for column in ("network", "load", "first call", "meanwhile", "longest later", "settled after"):
        table.add_column(column, justify="left" if column == "network" else "right")
    table.add_column("then", justify="right")
    table.add_column("compiles", justify="right")
    for name in given.networks:
        path = str(export(name, given.folder))
        found = measured_apart(__spec__.name, "run", json.dumps([path, name, given.patience]))
        table.add_row(
            NETWORKS[name].title,
            f"{found['load']:.2f}",
            f"{found['first']:.2f}",
            f"{1e3 * found['meanwhile']:.1f} ms",
            f"{1e3 * found['longest']:.0f} ms at {found['longest_at']:.1f}",
            f"{found['settled']:.1f}" if found["is_settled"] else "not yet",
            f"{1e3 * found['then']:.1f} ms",
            str(found["compiles"]),
        )
    console().print(table)


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        print(json.dumps(measure(*json.loads(sys.argv[2]))))
    else:
        main()
