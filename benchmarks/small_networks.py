"""Small networks and the recorded models of the tests: repeated calls, load with a first call.

Run it: `python -m benchmarks.small_networks`; some of them: `--networks resnet unique`. Each pair
of an install (without oneDNN, as by default, and with it) and a number of threads has processes of
its own, in which both runtimes take turns. One thread is measured by CPU time, which other work on
the machine disturbs less, several by wall time. Load and first call are the first of that model in
the process, after both runtimes have run a tiny graph. Nothing comes from a cache. `--starts` says
how many processes there are: each has one first call of a network. They take turns, and each begins
with another network, so that what a process does now and then, such as collecting garbage, does not
always fall on the same one.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table

from benchmarks.measure import PAUSE, all_threads, minimum_and_median
from benchmarks.results import BASE, Record, Results, console, geometric_mean, this_machine
from benchmarks.settling import settle

RECORDED = Path(__file__).parent.parent / "tests" / "models"
INSTALLS = ("default", "onednn")
FIRST = "load + first call"
# Of the largest magnitude of each output.
TOLERANCE = 1e-4
# Quantized networks round sums of another order to another step.
STEPS = {
    "resnet_qdq": 0.05,
    "mobile_qdq": 0.05,
    "mobile_qoperator": 0.05,
    "bert_dynamic_int8": 0.05,
}
# Ratios above this are named.
MOST = 4.0

Feeds = dict[str, np.ndarray[Any, Any]]
Run = Callable[[], Sequence[Any]]


class Part(NamedTuple):
    """What one process measures."""

    install: str
    threads: int
    names: Sequence[str]
    folder: str
    seconds: float

    @property
    def clock(self) -> Callable[[], float]:
        return time.process_time if self.threads == 1 else time.perf_counter

    @property
    def title(self) -> str:
        kind = "one thread, CPU time" if self.threads == 1 else f"{self.threads} threads, wall time"
        return f"{self.install}, {kind}"


# -- models ----------------------------------------------------------------------------------------


def recorded() -> list[str]:
    """The names of the models in `tests/models`."""
    return sorted(path.stem for path in RECORDED.glob("*.onnx"))


def case(name: str, folder: Path) -> tuple[Path, Feeds]:
    """Return the file of a network and the inputs of a call."""
    if (RECORDED / f"{name}.onnx").exists():
        with np.load(RECORDED / f"{name}.npz") as arrays:
            inputs = {key: arrays[key] for key in arrays.files if key.startswith("0/in/")}
        return RECORDED / f"{name}.onnx", {key.split("/", 2)[2]: a for key, a in inputs.items()}
    # Some inputs are strings.
    with np.load(folder / f"{name}.npz", allow_pickle=True) as arrays:
        return folder / f"{name}.onnx", {key: arrays[key] for key in arrays.files}


# -- one process -----------------------------------------------------------------------------------


def measured(part: Part) -> Iterator[Record]:
    """Yield the records of each network: calls and first calls, checked against onnxruntime."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-part.threads :])
    _warm_up(part.threads)
    for name in part.names:
        blank = Record(f"{part.title}: call", "ms", name, 1, "sardonyx")
        try:
            yield from _of_network(part, blank)
        except Exception as error:  # Whatever a runtime raises is what it cannot do.
            yield replace(blank, note=f"{type(error).__name__}: {error}"[:300])


def _of_network(part: Part, blank: Record) -> Iterator[Record]:
    path, feeds = case(blank.network, Path(part.folder))
    runs: dict[str, Run] = {}
    firsts: dict[str, float] = {}
    for runtime, opener in ((BASE, _open_session), ("sardonyx", _open_model)):
        time.sleep(PAUSE)
        start = part.clock()
        runs[runtime], settle = opener(str(path), feeds, part.threads)
        runs[runtime]()
        firsts[runtime] = 1e3 * (part.clock() - start)
        settle()
    # Without VNNI, the products of int8 that onnxruntime fuses saturate.
    exact, _ = _open_session(str(path), feeds, part.threads, fuses=False)
    require_equal(runs["sardonyx"](), exact(), STEPS.get(blank.network, TOLERANCE))
    times = {
        name: 1e3 * seconds for name, seconds in shortest(runs, part.clock, part.seconds).items()
    }
    yield replace(blank, value=times["sardonyx"], base=times[BASE])
    first = replace(blank, measure=f"{part.title}: {FIRST}")
    yield replace(first, value=firsts["sardonyx"], base=firsts[BASE])


def _open_session(
    path: str, feeds: Feeds, threads: int, *, fuses: bool = True
) -> tuple[Run, Callable[[], object]]:
    import onnxruntime  # noqa: PLC0415

    options = onnxruntime.SessionOptions()
    if not fuses:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
    return lambda: session.run(None, feeds), lambda: None


def _open_model(path: str, feeds: Feeds, threads: int) -> tuple[Run, Callable[[], object]]:
    import sardonyx  # noqa: PLC0415

    model = sardonyx.load(path, backend="jax")
    return lambda: model.run(None, feeds), lambda: settle(model, feeds)


def _warm_up(threads: int) -> None:
    """Import both runtimes, and let them run and compile a graph of one node."""
    from benchmarks.small_written import tiny  # noqa: PLC0415

    model, feeds = tiny()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tiny.onnx"
        path.write_bytes(model.SerializeToString())
        for opener in (_open_session, _open_model):
            run, settle = opener(str(path), feeds, threads)
            run()
            settle()


def require_equal(actual: Sequence[Any], expected: Sequence[Any], tolerance: float) -> None:
    """Raise `ValueError` unless results agree within the tolerance times the largest magnitude."""
    for i, (one, other) in enumerate(zip(actual, expected, strict=True)):
        a, b = np.asarray(one), np.asarray(other)
        if a.shape != b.shape:
            raise ValueError(f"output {i} has shape {a.shape}, but must have {b.shape}")
        if b.dtype.kind not in "fc":
            if not np.array_equal(a, b):
                raise ValueError(f"output {i} differs in {np.mean(a != b):.1%} of its elements")
            continue
        is_finite = np.isfinite(b)
        np.testing.assert_array_equal(a[~is_finite], b[~is_finite])
        error = np.abs(a - b)[is_finite].max(initial=0)
        largest = np.abs(b)[is_finite].max(initial=0)
        if not error <= tolerance * largest:
            raise ValueError(f"output {i} is off by {error / largest:.1e} of the largest")


def shortest(
    runs: Mapping[str, Run], clock: Callable[[], float], budget: float
) -> dict[str, float]:
    """Return the shortest seconds of a call of each runtime; they take turns."""
    found = {name: min(_seconds(run, clock, 1) for _ in range(2)) for name, run in runs.items()}
    end = time.perf_counter() + budget
    while time.perf_counter() < end:
        for name, run in runs.items():
            time.sleep(0 if clock is time.process_time else PAUSE)
            run()
            times = max(1, int(5e-3 / max(found[name], 1e-6)))
            found[name] = min(found[name], _seconds(run, clock, times))
    return found


def _seconds(run: Run, clock: Callable[[], float], times: int) -> float:
    start = clock()
    for _ in range(times):
        run()
    return (clock() - start) / times


# -- several processes -----------------------------------------------------------------------------


def _measured_in_turns(parts: Sequence[Part], starts: int) -> list[Record]:
    """Measure each part in several processes."""
    found: list[list[list[Record]]] = [[] for _ in parts]
    for start in range(starts):
        for part, records in zip(parts, found, strict=True):
            names = turned(part.names, start / starts)
            seconds = part.seconds / starts
            records.append(_in_its_own_process(part._replace(names=names, seconds=seconds)))
    return [record for records in found for record in of_starts(records)]


def turned(names: Sequence[str], part: float) -> list[str]:
    """Return the names in the same order, but beginning after this part of them."""
    begin = int(part * len(names))
    return [*names[begin:], *names[:begin]]


def of_starts(starts: Sequence[Sequence[Record]]) -> list[Record]:
    """Return the records of the first start, with the least and the median of all starts."""
    found: dict[Any, list[Record]] = {record.key: [] for record in starts[0]}
    for record in itertools.chain.from_iterable(starts):
        found.setdefault(record.key, []).append(record)
    return [_of_starts(records) for records in found.values()]


def _of_starts(records: Sequence[Record]) -> Record:
    failed = next((record for record in records if record.value is None), None)
    if failed is not None:
        return failed
    value, median = minimum_and_median([record.value or 0 for record in records])
    base, base_median = minimum_and_median([record.base or 0 for record in records])
    return replace(records[0], value=value, median=median, base=base, base_median=base_median)


def _in_its_own_process(part: Part) -> list[Record]:
    command = [sys.executable, "-m", "benchmarks.small_networks", "run", json.dumps(part)]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": str(part.threads)}
    environment["SARDONYX_ONEDNN"] = str(int(part.install == "onednn"))
    if part.threads == 1:
        flags = environment.get("XLA_FLAGS", "")
        environment["XLA_FLAGS"] = f"--xla_cpu_multi_thread_eigen=false {flags}"
    ended = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    lines = [line for line in ended.stdout.splitlines() if line.startswith("{")]
    return [Record(**json.loads(line)) for line in lines]


# -- tables ----------------------------------------------------------------------------------------


def table(records: Sequence[Record]) -> Table:
    """A row for each network: milliseconds of both runtimes, and the ratio, for each measure."""
    measures = list(dict.fromkeys(record.measure for record in records))
    shown = Table(title="ms of onnxruntime / of sardonyx, ratio")
    shown.add_column("")
    for measure in measures:
        shown.add_column(measure, justify="right")
    cells = {(r.network, r.measure): cell(r) for r in records}
    for network in dict.fromkeys(record.network for record in records):
        shown.add_row(network, *(cells.get((network, measure), "-") for measure in measures))
    shown.add_section()
    sections = [[r for r in records if r.measure == measure] for measure in measures]
    means = (geometric_mean(section, "sardonyx") for section in sections)
    shown.add_row("geometric mean", *("" if mean is None else f"{mean:.2f}" for mean in means))
    above = (sum((r.ratio or 0) > MOST for r in section) for section in sections)
    shown.add_row(f"above {MOST:g}", *map(str, above))
    return shown


def cell(record: Record) -> str:
    """Return both times, their ratio (that of the medians), and a mark if it is too large."""
    if record.value is None or record.base is None:
        return "cannot"
    medians = f" ({record.ratio_of_medians:.2f})" if record.ratio_of_medians else ""
    mark = " !" if (record.ratio or 0) > MOST else ""
    return f"{record.base:.3g} / {record.value:.3g} {record.ratio:6.2f}{medians}{mark}"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.small_networks", description=__doc__
    )
    parser.add_argument("--networks", nargs="+", metavar="NAME", help="some of them")
    parser.add_argument("--installs", nargs="+", choices=INSTALLS, default=INSTALLS)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, all_threads()])
    parser.add_argument("--seconds", type=float, default=1.0, help="for the calls of one network")
    parser.add_argument("--starts", type=int, default=3, help="processes for each install")
    parser.add_argument("--json", type=Path, help="a file to which the results are added")
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "sardonyx-benchmarks" / "small"
    )
    chosen = parser.parse_args()
    if chosen.starts < 1:
        parser.error("--starts must be at least 1, because the calls are measured there too")
    out = console()
    names = chosen.networks or [*recorded(), *_written_ahead(chosen.folder)]
    parts = [
        Part(install, threads, names, str(chosen.folder), chosen.seconds)
        for install in chosen.installs
        for threads in dict.fromkeys(chosen.threads)
    ]
    records = _measured_in_turns(parts, chosen.starts)
    if chosen.json:
        Results(records, this_machine()).write(chosen.json)
    out.print(table(records))
    for record in records:
        if record.note:
            out.print(f"cannot: {record.measure}, {record.network}: {record.note}")


def _written_ahead(folder: Path) -> list[str]:
    """Write what is missing, so that no process that measures imports torch."""
    from benchmarks import small_models  # noqa: PLC0415

    for name in small_models.names():
        small_models.write(name, folder)
    return small_models.names()


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    if sys.argv[1:2] == ["run"]:
        for each in measured(Part(*json.loads(sys.argv[2]))):
            print(json.dumps(asdict(each)), flush=True)
    else:
        main()
