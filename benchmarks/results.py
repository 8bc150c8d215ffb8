"""What was measured: kept in a file, compared with onnxruntime's, and shown as one table."""

from __future__ import annotations

import json
import math
import platform
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.models import NETWORKS
from benchmarks.peers import PEERS

BASE = "onnxruntime"
# What a GPU could do at best, beside the runtimes.
ROOFLINE = "roofline"
PACKAGES = ("jax", "numpy", "onnx", "onnxruntime", "openvino", "torch", "transformers")
PACKAGES += ("jaxonnxruntime", "onednn-cpu-gomp")
# Of the tables where no terminal says how wide it is.
WIDTH = 150


@dataclass(frozen=True)
class Record:
    """One number of one runtime, and of another in the same run, to compare it with."""

    measure: str
    unit: str
    network: str
    batch: int
    peer: str
    # The least, and the median; None where the runtime cannot, for the reason in `note`.
    value: float | None = None
    median: float | None = None
    base: float | None = None
    base_median: float | None = None
    note: str = ""
    # The runtime that `base` is of.
    over: str = BASE

    @property
    def key(self) -> tuple[str, str, int, str]:
        return self.measure, self.network, self.batch, self.peer

    @property
    def ratio(self) -> float | None:
        return self.value / self.base if self.value and self.base else None

    @property
    def ratio_of_medians(self) -> float | None:
        return self.median / self.base_median if self.median and self.base_median else None


@dataclass
class Results:
    records: list[Record] = field(default_factory=list)
    machine: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Results:
        saved = json.loads(path.read_text())
        return cls([Record(**each) for each in saved["records"]], saved["machine"])

    def write(self, path: Path) -> None:
        """Add to what the file holds; what was measured anew replaces what is there."""
        before = Results.read(path).records if path.exists() else []
        kept = {record.key: record for record in (*before, *self.records)}
        saved = {"machine": self.machine, "records": [asdict(r) for r in kept.values()]}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(saved, indent=1) + "\n")


def console() -> Console:
    return Console() if sys.stdout.isatty() else Console(width=WIDTH)


def this_machine() -> dict[str, str]:
    """What the numbers were measured with."""
    told = {"python": platform.python_version(), "system": platform.system()}
    cpu = Path("/proc/cpuinfo")
    if cpu.exists():
        told["cpu"] = processor_of(cpu.read_text())
    for package in PACKAGES:
        try:
            told[package] = version(package)
        except PackageNotFoundError:
            continue
    return told


def processor_of(cpuinfo: str) -> str:
    """Return the name of the first processor that Linux describes, with its family and model.

    Virtual machines call several generations by one name, of which some are twice as fast.
    """
    first, _, _ = cpuinfo.partition("\n\n")
    pairs = (line.partition(":") for line in first.splitlines())
    told = {key.strip(): value.strip() for key, _, value in pairs}
    found = [told.get("model name") or platform.machine()]
    for key, short in (("cpu family", "family"), ("model", "model")):
        if told.get(key):
            found.append(f"{short} {told[key]}")
    return ", ".join(found)


def table(records: Sequence[Record]) -> Table:
    """A section for each measure; in the cells ratios of the least values, (of the medians)."""
    peers = peers_of(records)
    shown = Table(title="Ratios of the least values (of the medians); below 1.00 is better")
    shown.add_column("")
    shown.add_column("batch", justify="right")
    for name in peers:
        shown.add_column(title_of(name), justify="right")
    for measure in dict.fromkeys(record.measure for record in records):
        section = [r for r in records if r.measure == measure]
        shown.add_section()
        shown.add_row(f"[bold]{measure}")
        shown.add_row(f"over {title_of(section[0].over)}")
        for line in lines(section, peers):
            shown.add_row(*line)
    return shown


def lines(section: Sequence[Record], peers: Sequence[str]) -> Iterator[list[str]]:
    """The cells of one measure: its networks and batches, then the geometric means."""
    found = {(r.network, r.batch, r.peer): r for r in section}
    for network, batch in _rows(section):
        cells = [_cell(found.get((network, batch, peer))) for peer in peers]
        yield [NETWORKS[network].title, str(batch), *cells]
    yield ["geometric mean", "", *(_number(geometric_mean(section, peer)) for peer in peers)]


def peers_of(records: Sequence[Record]) -> list[str]:
    return [p for p in (*PEERS, ROOFLINE) if any(r.peer == p for r in records)]


def plot_of(measure: str) -> str:
    """The name of the file of a measure's plot."""
    return f"benchmarks-{re.sub('[^a-z0-9]+', '-', measure.lower())}.svg"


def title_of(peer: str) -> str:
    return PEERS[peer].title if peer in PEERS else peer


def geometric_mean(records: Iterable[Record], peer: str) -> float | None:
    """Of the ratios, over the networks that the runtime runs."""
    ratios = [r.ratio for r in records if r.peer == peer and r.ratio is not None]
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None


def _rows(records: Iterable[Record]) -> list[tuple[str, int]]:
    order = list(NETWORKS)
    rows = {(record.network, record.batch) for record in records}
    return sorted(rows, key=lambda row: (order.index(row[0]), row[1]))


def _cell(record: Record | None) -> str:
    if record is None:
        return "-"
    if record.value is None:
        return "cannot"
    if record.peer == record.over or record.ratio is None:
        return f"{record.value:,.4g} {record.unit}"
    medians = record.ratio_of_medians
    return _number(record.ratio) + (f" ({medians:.2f})" if medians else "")


def _number(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def notes(records: Iterable[Record]) -> list[str]:
    """Why a runtime cannot, once for each network."""
    told: dict[tuple[Any, ...], str] = {}
    for r in records:
        if r.value is None:
            what = f"{title_of(r.peer)}, {NETWORKS[r.network].title}"
            told[r.peer, r.network, r.note] = f"{what}: {r.note}"
    return list(told.values())
