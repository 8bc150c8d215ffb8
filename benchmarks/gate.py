"""Compare a new run with the last one on this kind of processor, and name what lost.

Run it: `python -m benchmarks.gate`; `--keep` makes the new run the one to compare with. It measures
one thread by CPU time and the peak of memory, each over onnxruntime's in the same run, so that a
slower machine of the kind changes nothing. The last runs are in `benchmarks/last`.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.table import Table

from benchmarks import networks
from benchmarks.models import NETWORKS
from benchmarks.results import Results, console, this_machine, title_of

LAST = Path(__file__).parent / "last"
# What a ratio may lose: the machines that measure it are noisy.
TOLERANCE = 0.10
ARGUMENTS = ["--peers", "sardonyx", "--batches", "1", "--threads", "1", "--starts", "3"]


class Change(NamedTuple):
    """A ratio to onnxruntime, in the last run and now."""

    measure: str
    network: str
    batch: int
    peer: str
    before: float
    now: float

    @property
    def is_loss(self) -> bool:
        return self.now > self.before * (1 + TOLERANCE)


def file_of(machine: Mapping[str, str]) -> Path:
    """Return the file of the last results on such a processor."""
    name = re.sub("[^a-z0-9]+", "-", machine.get("cpu", "unknown").lower()).strip("-")
    return LAST / f"{name}.json"


def changes(before: Results, now: Results) -> Iterator[Change]:
    """Yield the ratios that both runs have."""
    old = {record.key: record.ratio for record in before.records}
    for record in now.records:
        ratio = old.get(record.key)
        if record.peer != record.over and ratio is not None and record.ratio is not None:
            yield Change(*record.key, ratio, record.ratio)


def table_of(found: Sequence[Change]) -> Table:
    table = Table(title="Over onnxruntime's in the same run")
    for column in ("measure", "network", "batch", "runtime", "before", "now", ""):
        table.add_column(column)
    for change in found:
        table.add_row(
            change.measure,
            NETWORKS[change.network].title,
            str(change.batch),
            title_of(change.peer),
            f"{change.before:.2f}",
            f"{change.now:.2f}",
            "lost" if change.is_loss else "",
        )
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, compare and print; return 1 if anything lost more than the tolerance."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gate", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="compare the next run with this one")
    options, rest = parser.parse_known_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder) / "results.json"
        networks.main([*ARGUMENTS, *rest, "--json", str(fresh)])
        now = Results.read(fresh)
    last = file_of(this_machine())
    found = list(changes(Results.read(last), now)) if last.exists() else []
    out = console()
    out.print(table_of(found) if found else "There is no earlier run on this kind of processor.")
    if options.keep:
        now.write(last)
        out.print(f"wrote {last}")
    return int(any(change.is_loss for change in found))


if __name__ == "__main__":
    sys.exit(main())
