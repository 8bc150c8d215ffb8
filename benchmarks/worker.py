"""One runtime, one network, one process: opened, checked, and then run whenever the parent asks.

`python -m benchmarks.worker '<a Job as JSON>' reference.npz` answers in lines of JSON: first what
opening took, then for each line of input the seconds of its calls.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.models import NETWORKS
from benchmarks.peers import PEERS, Job, Opened

# Of the largest magnitude in each output. Sums in another order differ by about 1e-5.
TOLERANCE = 1e-4
# Calls that are longer than this need no call before them to fill the processor's caches.
LONG = 0.5


def main(job: Job, reference: Path) -> None:
    say = _private_stdout()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-job.threads :])
    try:
        facts, opened = _open(job)
        facts["error"] = _check(opened, reference, job)
    except Exception as error:  # Whatever a runtime raises is what it cannot do.
        say({"cannot": _sentence(error)})
        raise
    say(facts)
    clock = time.process_time if job.threads == 1 and not job.gpu else time.perf_counter
    for line in sys.stdin:
        say(_turn(opened.call, clock, float(line)))


def _open(job: Job) -> tuple[dict[str, Any], Opened]:
    """Seconds to import, to load and to the first result, and the bytes held then."""
    peer = PEERS[job.peer]
    feeds = NETWORKS[job.network].feeds(job.batch)
    started = time.perf_counter()
    for name in (*peer.modules, *(peer.gpu_modules if job.gpu else ())):
        importlib.import_module(name)
    imported = time.perf_counter()
    held = peak_bytes()
    opened = peer.open(job, feeds)
    loaded = time.perf_counter()
    opened.call()
    first, first_peak = time.perf_counter(), peak_bytes()
    opened.settle()
    facts = {
        "import": imported - started,
        "load": loaded - imported,
        "first": first - loaded,
        "imports_bytes": held,
        "first_peak_bytes": first_peak,
        "peak_bytes": peak_bytes(),
    }
    if job.gpu and opened.work is not None:
        facts["work"] = astuple(opened.work())
    return facts, opened


def _check(opened: Opened, reference: Path, job: Job) -> float:
    """The largest difference from onnxruntime's outputs, relative to the largest in each."""
    made = [opened.fetch(value) for value in opened.call()]
    if job.peer == "onnxruntime" and not job.gpu and not reference.exists():
        np.savez(reference, *made)
        return 0.0
    with np.load(reference) as saved:
        if len(made) != len(saved.files):
            raise ValueError(f"it makes {len(made)} outputs, and onnxruntime {len(saved.files)}")
        error = max(_error(a, saved[b]) for a, b in zip(made, saved.files, strict=True))
    if not error <= TOLERANCE:
        raise ValueError(f"its results are off by {error:.1e} of the largest")
    return error


def _error(made: Any, expected: Any) -> float:
    if made.shape != expected.shape:
        raise ValueError(f"its output has the shape {made.shape}, not {expected.shape}")
    return float(np.abs(made - expected).max() / np.abs(expected).max())


def _turn(call: Callable[[], Sequence[Any]], clock: Callable[[], float], budget: float) -> Any:
    """Seconds of each call, until the budget is spent; a first short one is not counted."""

    def timed() -> float:
        start = clock()
        call()
        return clock() - start

    seconds = [timed()]
    if seconds[0] < LONG:
        seconds = [timed()]
    while sum(seconds) < budget:
        seconds.append(timed())
    return seconds


def peak_bytes() -> int:
    """The most bytes of memory that this process has had."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(each for each in status.read_text().splitlines() if each.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _private_stdout() -> Callable[[Any], None]:
    """A way to answer; what libraries print goes to stderr instead."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(what: Any) -> None:
        print(json.dumps(what), file=channel, flush=True)

    return say


def _sentence(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:200]


if __name__ == "__main__":
    main(Job(**json.loads(sys.argv[1])), Path(sys.argv[2]))
