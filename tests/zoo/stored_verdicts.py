"""Verdicts in the repository: a file for each family, one line per model, sorted by name.

The first line says when the family last ran and with which versions, and how many models it has.
A line leaves out what is as in most: no problem, no results of the source, an error of 0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tests.zoo.entry import Entry
from tests.zoo.judge import Verdict

FOLDER = Path(__file__).parent / "verdicts"


@dataclass
class Family:
    """The verdicts of a family's models; `models` counts those without a verdict, too."""

    models: int = 0
    date: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    verdicts: dict[tuple[str, str], Verdict] = field(default_factory=dict)

    def add(self, verdict: Verdict) -> None:
        self.verdicts[verdict.name, verdict.exporter] = verdict

    @property
    def ordered(self) -> list[Verdict]:
        return [self.verdicts[key] for key in sorted(self.verdicts)]

    def keep(self, entries: Sequence[Entry]) -> None:
        """Drop the verdicts of all other models."""
        keys = {each.key for each in entries}
        self.verdicts = {key: each for key, each in self.verdicts.items() if key in keys}

    def date_today(self) -> None:
        """Note the day and the versions of a run."""
        self.date = datetime.now(UTC).date().isoformat()
        # An exporter's name begins with its distribution's: "torch dynamo".
        exporters = {exporter.split()[0] for _, exporter in self.verdicts}
        names = sorted({*exporters, "onnx", "onnxruntime"})
        self.versions = {name: _version(name) for name in names}


def path_of(family: str) -> Path:
    return FOLDER / f"{family.replace(' ', '_')}.jsonl"


def read(family: str) -> Family:
    path = path_of(family)
    if not path.exists():
        return Family()
    header, *lines = map(json.loads, path.read_text().splitlines())
    found = Family(**header)
    for line in lines:
        found.add(Verdict(**line))
    return found


def write(family: str, found: Family) -> None:
    """Replace the family's file at once, so that a run that is ended leaves a whole one."""
    header = {"models": found.models, "date": found.date, "versions": found.versions}
    path = path_of(family)
    path.parent.mkdir(exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(
        "".join(f"{json.dumps(each)}\n" for each in (header, *map(_row, found.ordered)))
    )
    unfinished.replace(path)


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "unknown"


def _row(verdict: Verdict) -> dict[str, Any]:
    defaults = {each.name: each.default for each in fields(Verdict) if each.default is not MISSING}
    row = asdict(verdict)
    for name in ("worst", "worst_of_source"):
        if row[name] is not None:
            row[name] = float(f"{row[name]:.1g}")
    return {name: value for name, value in row.items() if value != defaults.get(name, MISSING)}
