"""Runs many graphs in processes that come and go: a crash ends one graph and not the run."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import sardonyx
from tests.fuzz.building import built
from tests.fuzz.comparing import Finding, Loading, Reference
from tests.fuzz.disagreements import is_settled
from tests.fuzz.graph import Graph
from tests.fuzz.report import covered, described, line
from tests.fuzz.running import JAX, NUMPY, ONNXRUNTIME, OPTIMIZED, STEPS, WRITTEN, loaded
from tests.fuzz.shrinking import shrunk
from tests.fuzz.values import COPIES, Unstable

# The compiled code of a process is never freed; so one process runs no more graphs than this.
CHUNK = 500
# A process that is silent for longer is taken for one that hangs.
SILENCE = 240.0
EVERY = {NUMPY: 1, ONNXRUNTIME: 1, OPTIMIZED: 3, JAX: 10, STEPS: 97, WRITTEN: 7}
# More copies show whether a difference lies within rounding after all.
SURE = 24


@dataclass(frozen=True)
class Plan:
    """Which graphs run where: each runtime's number says on one in how many."""

    seed: int
    every: Mapping[str, int] = field(default_factory=lambda: EVERY)
    shrink: float = 60

    def runtimes(self, index: int) -> list[str]:
        return [name for name, every in self.every.items() if every and index % every == 0]


def run_one(
    plan: Plan, index: int, counts: Counter[str], begin: Callable[[str], object] = lambda name: None
) -> Iterator[dict[str, Any]]:
    """Build a graph, compare its runtimes, and yield what they disagree on, shrunk.

    `begin` is called with the name of each runtime before it runs.
    """
    graph, values = built(plan.seed, index)
    if not graph.nodes:
        counts["empty graphs"] += 1
        return
    reference = Reference(graph, values=values)
    counts["graphs"] += 1
    counts.update(covered(graph, reference.dtypes))
    for runtime in plan.runtimes(index):
        begin(runtime)
        finding = reference.finding(runtime, counts)
        if finding is None or not holds(graph, finding, copies=SURE):
            continue
        small = shrunk(graph, partial(holds, finding=finding), plan.shrink)
        if not holds(small, finding, copies=SURE):
            small = graph
        again = Reference(small, SURE).finding(runtime) or finding
        if is_settled(small, again):
            counts[f"{runtime}: settled on the page"] += 1
            continue
        yield described(plan.seed, index, again, small)


def holds(graph: Graph, finding: Finding, load: Loading = loaded, copies: int = COPIES) -> bool:
    """Whether the same happens again, and lies beyond what the noisy copies allow for."""
    try:
        reference = Reference(graph, copies)
    except (sardonyx.SardonyxError, Unstable):
        return False
    return finding.is_like(reference.finding(finding.runtime, load=load))


# -- in a process of its own ------------------------------------------------------------------


def work(plan: Plan, first: int, last: int, path: Path) -> None:
    """Run the graphs from `first` to before `last`; a line for each goes to the file."""
    with path.open("a", buffering=1) as out:
        for index in range(first, last):
            out.write(line(begin=index))
            counts: Counter[str] = Counter()
            try:
                for found in run_one(plan, index, counts, lambda name: out.write(line(at=name))):
                    out.write(line(found=found))
            except Exception as error:
                out.write(line(broken=f"{index}: {type(error).__name__}: {error}"[:300]))
            out.write(line(end=index, counts=counts))


@dataclass
class Outcome:
    """What a run has come to so far."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: list[dict[str, Any]] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def read(self, path: Path) -> tuple[int, str] | None:
        """Add a file of progress; return the graph and the runtime at which it breaks off."""
        begun, runtime = None, ""
        for text in path.read_text("utf-8").splitlines() if path.exists() else []:
            entry = json.loads(text)
            begun = entry.get("begin", begun)
            runtime = entry.get("at", runtime)
            if "found" in entry:
                self.findings.append(entry["found"])
            if "broken" in entry:
                self.broken.append(entry["broken"])
            if "end" in entry:
                self.counts.update(entry["counts"])
                begun = None
        return None if begun is None else (begun, runtime)

    def note_crash(self, index: int, runtime: str, status: str) -> None:
        """Count a process that ended early; that onnxruntime ends it is no fault of ours."""
        if runtime in (ONNXRUNTIME, OPTIMIZED):
            self.counts[f"{runtime}: crashed"] += 1
        else:
            self.broken.append(f"{index}: the process ended with {status} in {runtime}")


def supervise(plan: Plan, graphs: int, seconds: float, folder: Path, start: int = 0) -> Outcome:
    """Run graphs in one process after another, until there are enough or time is up."""
    folder.mkdir(parents=True, exist_ok=True)
    outcome, index, end = Outcome(), start, time.monotonic() + seconds
    while index < start + graphs and time.monotonic() < end:
        last = min(index + CHUNK, start + graphs)
        path = folder / f"{plan.seed}-{index}.jsonl"
        path.unlink(missing_ok=True)
        status = _processed(plan, index, last, path, end)
        broke_off = outcome.read(path)
        if broke_off is not None and time.monotonic() < end:
            outcome.note_crash(*broke_off, status)
            last = broke_off[0] + 1
        index = last
    return outcome


def _processed(plan: Plan, first: int, last: int, path: Path, end: float) -> str:
    arguments = json.dumps([plan.seed, plan.every, plan.shrink, first, last, str(path)])
    process = subprocess.Popen([sys.executable, "-m", "tests.fuzz.working", arguments])
    try:
        size, changed = -1, time.monotonic()
        while process.poll() is None:
            time.sleep(0.2)
            now = path.stat().st_size if path.exists() else 0
            if now != size:
                size, changed = now, time.monotonic()
            if time.monotonic() - changed > SILENCE:
                return "no sign of life"
            if time.monotonic() > end:
                return "time is up"
        return f"status {process.returncode}"
    finally:
        process.kill()
        process.wait()


def main(argument: str) -> None:
    seed, every, shrink, first, last, path = json.loads(argument)
    work(Plan(seed, every, shrink), first, last, Path(path))


if __name__ == "__main__":
    main(sys.argv[1])
