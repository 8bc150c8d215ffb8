"""`sardonyx check --target`: what XLA's compilers say of a model on hardware that is not here."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from sardonyx.cli.compile_ahead import parsed_shape
from sardonyx.cli.tables import grid, put, screen
from sardonyx.errors import InvalidInput
from sardonyx.printable import printable
from sardonyx.targets.api import check
from sardonyx.targets.report import TargetReport, described

_AXIS = re.compile(r"(?P<name>\w+)=(?P<size>[1-9]\d{0,5})", re.ASCII)


def check_targets(
    path: str,
    targets: Sequence[str],
    shapes: Sequence[str],
    *,
    precision: str | None,
    rules: str | None,
    mesh: Sequence[str],
    limit: float,
    as_json: bool = False,
) -> int:
    """Print a table with a column for each target; return 0 if the model compiles for all."""
    reports = check(
        path,
        targets,
        shapes=dict(map(parsed_shape, shapes)),
        precision=precision,
        rules=rules,
        mesh=dict(map(_axis, mesh)),
        limit=limit,
    )
    if as_json:
        print(json.dumps([report.as_dict() for report in reports], indent=2))
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


def _axis(text: str) -> tuple[str, int]:
    match = _AXIS.fullmatch(text)
    if match is None:
        raise InvalidInput(
            f"The axis {text!r} is not NAME=SIZE: write it as in --mesh data=2 model=4."
        )
    return match["name"], int(match["size"])
