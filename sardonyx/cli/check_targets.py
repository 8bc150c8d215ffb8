"""`sardonyx check --target`: what XLA's compilers say of a model on hardware that is not here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import click

from sardonyx.cli.json_output import put_json
from sardonyx.cli.shapes import Shapes
from sardonyx.cli.tables import grid, put, screen
from sardonyx.printable import printable
from sardonyx.targets.api import check
from sardonyx.targets.report import TargetReport, described

_AXIS = re.compile(r"(?P<name>\w+)=(?P<size>[1-9]\d{0,5})", re.ASCII)


def check_targets(
    path: str,
    targets: Sequence[str],
    shapes: Shapes,
    *,
    precision: str | None,
    rules: str | None,
    mesh: Mapping[str, int],
    limit: float,
    as_json: bool = False,
) -> int:
    """Print a table with a column for each target; return 0 if the model compiles for all."""
    reports = check(
        path,
        targets,
        shapes=shapes,
        precision=precision,
        rules=rules,
        mesh=mesh,
        limit=limit,
    )
    if as_json:
        put_json([report.as_dict() for report in reports])
    else:
        _show(path, precision, reports)
    return 0 if all(map(_is_good, reports)) else 1


def _show(path: str, precision: str | None, reports: Sequence[TargetReport]) -> None:
    console = screen()
    of_precision = "" if precision is None else f", precision {precision}"
    console.print(f"{printable(path)}{of_precision}, by the compilers' own counts:\n", style="bold")
    columns = [dict(report.rows()) for report in reports]
    labels = _labels(columns)
    head = ("", *(str(report.target) for report in reports))
    rows = [(label, *(column.get(label, "") for column in columns)) for label in labels]
    put(console, grid([head, *rows], "none", *("number" for _ in reports)))
    for report in reports:
        for remark in report.remarks():
            console.print(f"\n{described(report.target)}. {remark}")


def _is_good(report: TargetReport) -> bool:
    return report.is_compiled and report.fits is not False


def _labels(columns: Sequence[dict[str, str]]) -> list[str]:
    """Return the labels of all columns; one that not all have stands behind that before it."""
    labels: list[str] = []
    for column in columns:
        place = 0
        for label in column:
            if label in labels:
                place = labels.index(label) + 1
            else:
                labels.insert(place, label)
                place += 1
    return labels


def parsed_axis(text: str) -> tuple[str, int]:
    """Return the name and the size of an axis of a mesh, as in "data=2"."""
    match = _AXIS.fullmatch(text)
    if match is None:
        raise click.UsageError(
            f"The axis {text!r} is not NAME=SIZE: write it as in --mesh data=2 model=4."
        )
    return match["name"], int(match["size"])
