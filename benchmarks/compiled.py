"""The six networks, compiled for TPUs and GPUs that are not here, beside hand-written JAX.

Run it: `python -m benchmarks.compiled --targets h100 v5e`. The figures are the compilers' own: the
kernels of a program, the bytes that they read and write, and for TPUs the cycles that XLA expects.
Nothing is measured on a device.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.hand_written import NETWORKS as HAND_WRITTEN
from benchmarks.models import NETWORKS
from benchmarks.results import console
from sardonyx.backends.executable import Spec
from sardonyx.targets.jobs import FunctionJob, Job, ModelJob
from sardonyx.targets.names import Target, named
from sardonyx.targets.records import Facts
from sardonyx.targets.worker import Worker


def jobs(network: str, batch: int, target: Target, folder: Path) -> dict[str, Job]:
    """Return what compiles the network as sardonyx runs it, and as it is written by hand."""
    from benchmarks.exports import export, module  # noqa: PLC0415

    feeds = NETWORKS[network].feeds(batch)
    state = {name: tensor.numpy() for name, tensor in module(network).state_dict().items()}
    written = HAND_WRITTEN[network]
    arguments = (_specs(written.weights(state)), *map(_specs, feeds.values()))
    shapes = {name: array.shape for name, array in feeds.items()}
    return {
        "sardonyx": ModelJob(str(export(network, folder)), target, shapes=shapes),
        "hand-written": FunctionJob(written.forward, arguments, target, wide=False),
    }


def _specs(arrays: Any) -> Any:
    """Return a tree of arrays as shapes and types."""
    if isinstance(arrays, Mapping):
        return {name: _specs(each) for name, each in arrays.items()}
    if isinstance(arrays, (list, tuple)):
        return [_specs(each) for each in arrays]
    array = np.asarray(arrays)
    narrow = np.dtype(np.int32) if array.dtype == np.int64 else array.dtype
    return Spec(array.shape, narrow)


def row(network: str, batch: int, target: Target, found: Mapping[str, Facts]) -> list[str]:
    """Return one line of the table: the figures of both, and the ratio of their bytes."""
    ours, theirs = found["sardonyx"], found["hand-written"]
    cells = [NETWORKS[network].title, str(batch), str(target)]
    for figure in (lambda f: f.kernels, lambda f: round(f.accessed / 1e6)):
        cells += [f"{figure(ours):,}", f"{figure(theirs):,}"]
    cells.append(f"{ours.accessed / theirs.accessed:.2f}")
    cells.append(f"{ours.cycles / theirs.cycles:.2f}" if theirs.cycles else "")
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compiled", description=__doc__)
    parser.add_argument("--targets", nargs="+", default=["h100", "v5e"])
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8])
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "sardonyx-benchmarks"
    )
    given = parser.parse_args()
    # As sardonyx multiplies by default; the process that compiles reads it.
    os.environ["JAX_DEFAULT_MATMUL_PRECISION"] = "highest"
    table = Table(title="Compiled, not run: sardonyx | hand-written JAX")
    for column in ("", "batch", "target", "kernels", "by hand", "MB", "by hand", "ratio", "cycles"):
        table.add_column(column, justify="right" if column else "left")
    with Worker(1200) as worker:
        for target in map(named, given.targets):
            for network in given.networks:
                for batch in given.batches:
                    chosen = jobs(network, batch, target, given.folder)
                    found = {peer: facts_of(worker, job) for peer, job in chosen.items()}
                    cells = row(network, batch, target, found)
                    print(" | ".join(cells), flush=True)
                    table.add_row(*cells)
    console().print(table)


def facts_of(worker: Worker, job: Job) -> Facts:
    """Compile a job of one program; the benchmark ends where that fails."""
    record = worker.run(job)
    if not record.is_compiled:
        raise SystemExit(f"{record.target}: {record.outcome}: {record.reason}")
    (program,) = record.programs
    assert program.facts is not None
    return program.facts


if __name__ == "__main__":
    main()
