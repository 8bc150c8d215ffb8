"""The report on how a model's arrays are divided on a mesh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sardonyx.display.markup import Html, code, displayed, element
from sardonyx.display.tables import table
from sardonyx.display.text import on_screen
from sardonyx.display.units import bytes_text
from sardonyx.printable import LONGEST_NAME, printable
from sardonyx.sharding.layout import Divided, MeshAxes, parts, shown


@dataclass(frozen=True)
class Row:
    """One weight or input: its shape, how it is divided, and why."""

    name: str
    shape: str
    divided: Divided
    nbytes: int
    reason: str


@dataclass(frozen=True)
class Report:
    """The layouts of all weights and inputs, and notes on requests that could not be met."""

    mesh: MeshAxes
    rows: tuple[Row, ...]
    inputs: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]

    @property
    def total_bytes(self) -> int:
        """The bytes of all weights."""
        return sum(row.nbytes for row in self.rows)

    @property
    def bytes_per_device(self) -> int:
        """The bytes of weights that each device holds."""
        return sum(row.nbytes // parts(row.divided, self.mesh) for row in self.rows)

    def __repr__(self) -> str:
        return on_screen(str(self))

    def _repr_html_(self) -> str:
        notes = [element("p", note) for note in self.notes[:20]]
        return displayed(str(self).splitlines()[0], *notes, report_table(self))

    def __str__(self) -> str:
        mesh = " x ".join(f"{name} {size}" for name, size in self.mesh.items())
        head = f"mesh: {mesh}; {self.bytes_per_device:,} of {self.total_bytes:,} bytes per device"
        weights = [(r.name, r.shape, shown(r.divided), r.reason) for r in self.rows]
        inputs = [(name, "input", layout, "") for name, layout in self.inputs]
        return "\n".join([head, *_columns([*inputs, *weights]), *map(printable, self.notes)])


def report_table(report: Report) -> Html:
    """Return the inputs and weights as a table for notebooks."""
    inputs = [(code(name), "input", layout, "", "") for name, layout in report.inputs]
    weights = [
        (code(r.name), r.shape, shown(r.divided), bytes_text(r.nbytes), r.reason)
        for r in report.rows[:200]
    ]
    titles = ("name", "shape", "divided", "bytes", "reason")
    total = len(report.inputs) + len(report.rows)
    return table(titles, iter([*inputs, *weights]), total=total, numbers=[3], most=120)


def _columns(cells: Sequence[tuple[str, ...]]) -> list[str]:
    rows = [[printable(text, LONGEST_NAME) for text in row] for row in cells]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
