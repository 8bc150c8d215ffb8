"""Peaks of memory until the first result, and until programs are compiled.

Run it: `python -m benchmarks.memory`; one network: add `--networks resnet50`. Weights are beside
the model file, and then inside it. Each figure is the least of several processes, at batch 1, with
all threads. The memory after the imports, before a model is loaded, is shown apart.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import onnx
from rich.table import Table

from benchmarks.measure import Worker, all_threads
from benchmarks.models import NETWORKS
from benchmarks.peers import Job
from benchmarks.results import BASE, console

PEERS = (BASE, "sardonyx")
COLUMNS = (
    "network", "weights", "MB",
    *(f"{peer}, {when}" for when in ("first result", "compiled") for peer in (*PEERS, "ratio")),
    *(f"{peer}, imports" for peer in PEERS),
)  # fmt: skip


class Peak(NamedTuple):
    """Megabytes of a process: at its peaks until the first result and later, and of its imports."""

    first: float
    compiled: float
    imports: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print a table."""
    options = _parser().parse_args(arguments)
    table = Table(*COLUMNS)
    for name in options.networks:
        for row in _rows(name, options.folder, options.starts):
            table.add_row(*row)
    console().print(table)


def _rows(name: str, folder: Path, starts: int) -> Iterator[list[str]]:
    """The rows of a network: its weights beside the model, and inside its file."""
    path = folder / f"{name}.onnx"
    size = sum(file.stat().st_size for file in folder.glob(f"{path.name}*")) / 1e6
    with tempfile.TemporaryDirectory() as inside:
        onnx.save(onnx.load(path), Path(inside) / path.name)
        for title, place in (("beside", folder), ("inside", Path(inside))):
            reference = folder / "results" / f"{name}-1.npz"
            reference.parent.mkdir(exist_ok=True)
            theirs, ours = [_peak(peer, name, place, reference, starts) for peer in PEERS]
            yield [
                NETWORKS[name].title,
                title,
                f"{size:.0f}",
                *_compared(theirs.first, ours.first),
                *_compared(theirs.compiled, ours.compiled),
                *(f"{peak.imports:.0f}" for peak in (theirs, ours)),
            ]


def _compared(theirs: float, ours: float) -> list[str]:
    return [f"{theirs:.0f}", f"{ours:.0f}", f"{ours / theirs:.2f}"]


def _peak(peer: str, name: str, folder: Path, reference: Path, starts: int) -> Peak:
    job = Job(peer, name, 1, all_threads(), str(folder))
    with tempfile.TemporaryDirectory() as logs:
        facts = []
        for _ in range(starts):
            worker = Worker(job, reference, Path(logs) / "log.txt")
            worker.close()
            facts.append(worker.facts)
    names = "first_peak_bytes", "peak_bytes", "imports_bytes"
    return Peak(*(min(each[name] for each in facts) / 1e6 for name in names))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    names = list(NETWORKS)
    parser.add_argument("--networks", choices=names, default=names, nargs="+", metavar="NAME")
    parser.add_argument("--starts", type=int, default=3, help="processes for each figure")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(tempfile.gettempdir()) / "sardonyx-benchmarks",
        help="where `benchmarks.networks` keeps the exported networks",
    )
    return parser


if __name__ == "__main__":
    main()
