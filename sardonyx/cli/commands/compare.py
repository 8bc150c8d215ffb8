"""`sardonyx compare`: two computations of a model, value by value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from sardonyx.cli.command import command as as_command
from sardonyx.cli.exported import require_onnx
from sardonyx.cli.inputs.feeds import feeds_of
from sardonyx.cli.inputs.options import InputOptions, input_options
from sardonyx.cli.json_output import put_json
from sardonyx.cli.options import (
    BACKENDS,
    RUNTIME,
    ModelFile,
    backend_option,
    device_option,
    json_option,
    model_argument,
    precision_option,
    quiet_option,
    tolerance_option,
)
from sardonyx.cli.runners import Place, loaded
from sardonyx.cli.tables import grid, put, screen
from sardonyx.comparing.api import compare
from sardonyx.comparing.comparison import Comparison, Row
from sardonyx.graph.model.model import Model
from sardonyx.printable import printable
from sardonyx.progress import working

MOST_ROWS = 10
LONGEST_NAME = 30


@as_command("compare")
@model_argument
@click.argument("other", metavar="[OTHER]", type=ModelFile(), required=False)
@input_options(draws=True)
@backend_option()
@device_option
@precision_option()
@click.option(
    "--with",
    "beside",
    type=click.Choice([*BACKENDS, RUNTIME]),
    help="Where the other side runs (default: onnxruntime, or --backend if the sides differ "
    "otherwise).",
)
@precision_option(
    None,
    "--with-precision",
    "other_precision",
    help_text="That of the other side (default: the same).",
)
@click.option(
    "--values",
    multiple=True,
    metavar="NAME",
    help="Compare these values alone: names or patterns; repeat it for others.",
)
@click.option(
    "--optimized", is_flag=True, help="Let onnxruntime fuse nodes, as it does by default."
)
@click.option(
    "--rows",
    type=click.IntRange(0),
    default=MOST_ROWS,
    metavar="N",
    help=f"How many values to print, those that differ most first (default: {MOST_ROWS}).",
)
@tolerance_option
@json_option
@quiet_option
def command(
    model: str,
    other: str | None,
    inputs: InputOptions,
    backend: str | None,
    device: str | None,
    precision: str,
    beside: str | None,
    other_precision: str | None,
    values: Sequence[str],
    optimized: bool,
    rows: int,
    tolerance: float | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Compare two computations of a model, value by value.

    One side is MODEL; the other is the same model in onnxruntime, on another backend or with
    another precision, or the model OTHER, whose values are matched by name. Inputs that no file has
    are drawn. The status is 1 if values differ by more than the tolerance.
    """
    if optimized and beside not in (None, RUNTIME):
        raise click.UsageError("--optimized has an effect only with onnxruntime.")
    with working("loading"):
        first = _model(model, Place(backend, device, precision, "now"))
        place = Place(beside or backend, device if beside is None else None,
                      other_precision or precision, "now")  # fmt: skip
        second = _other(model, other, place, is_plain=not (other or beside or other_precision))
    feeds = feeds_of(first, inputs).inputs
    with working("comparing"):
        comparison = compare(
            first,
            second,
            feeds,
            values=list(values) or None,
            tolerance=tolerance,
            optimized=optimized,
        )
    if as_json:
        put_json(_as_dict(comparison))
    elif not quiet:
        _put(comparison, rows)
    return int(not comparison.agrees)


def _model(path: str, place: Place) -> Model:
    require_onnx(path)
    model: Model = loaded(path, place)
    return model


def _other(path: str, other: str | None, place: Place, *, is_plain: bool) -> Any:
    """Return the other side as `sardonyx.compare` takes it."""
    if is_plain or (place.backend == RUNTIME and other is None):
        return RUNTIME
    if place.backend == RUNTIME:
        return (RUNTIME, other)
    return _model(other or path, place)


def _put(comparison: Comparison, most: int) -> None:
    console = screen()
    # Not wrapped, so that other programs find its lines.
    click.echo(repr(comparison))
    worst = sorted(comparison.rows, key=_badness, reverse=True)[:most]
    if not worst:
        return
    console.print("\nThe values that differ most", style="bold")
    header = ("value", "operator", "type", "error", "absolute", "ulp", "")
    put(console, grid([header, *map(_cells, worst)], "cyan", *["none"] * 2, *["number"] * 3, "red"))


def _badness(row: Row) -> tuple[bool, float]:
    return row.parts, row.difference.error


def _cells(row: Row) -> tuple[str, ...]:
    difference = row.difference
    return (
        printable(row.name, LONGEST_NAME),
        printable(row.operator, LONGEST_NAME),
        f"{difference.dtype}{str(list(difference.shape)).replace(' ', '')}",
        f"{difference.error:.2g}",
        f"{difference.max_abs:.2g}",
        f"{difference.ulps:.2g}",
        "differs" if row.parts else "",
    )


def _as_dict(comparison: Comparison) -> dict[str, Any]:
    return {
        "a": comparison.a,
        "b": comparison.b,
        "agrees": comparison.agrees,
        "first": None if comparison.first is None else comparison.first.name,
        "values": comparison.table,
        "only_in_a": comparison.only_in_a,
        "only_in_b": comparison.only_in_b,
        "left_out": dict(comparison.left_out),
    }
