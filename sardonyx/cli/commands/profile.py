"""`sardonyx profile`: where the time of a call goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from sardonyx.cli.command import command as as_command
from sardonyx.cli.exported import require_onnx
from sardonyx.cli.inputs.feeds import described, feeds_of
from sardonyx.cli.inputs.options import InputOptions, input_options
from sardonyx.cli.json_output import put_json
from sardonyx.cli.options import (
    AnyFile,
    backend_option,
    device_option,
    json_option,
    model_argument,
    precision_option,
)
from sardonyx.cli.runners import Place, loaded
from sardonyx.cli.tables import grid, put, screen
from sardonyx.display.units import bytes_text, duration, short
from sardonyx.errors import InvalidInput
from sardonyx.graph.model.model import Model
from sardonyx.graph.profiling.profile import Profile
from sardonyx.graph.profiling.tables import REMAINDER, scaling_text, signed
from sardonyx.printable import printable
from sardonyx.profiling import MOST_CALLS, profile
from sardonyx.progress import working

GROUPS = ("name", "operator", "scope", "segment")
MOST_ROWS = 20
LONGEST_NAME = 32


@as_command("profile")
@model_argument
@input_options(draws=True)
@backend_option()
@device_option
@precision_option()
@click.option(
    "--by",
    type=click.Choice(GROUPS),
    default="name",
    help="What the rows are: nodes by name, operators, scopes or segments (default: name).",
)
@click.option(
    "--rows",
    type=click.IntRange(1),
    default=MOST_ROWS,
    metavar="N",
    help=f"How many rows to print, the slowest first (default: {MOST_ROWS}).",
)
@click.option(
    "--calls",
    type=click.IntRange(1, MOST_CALLS),
    metavar="N",
    help="How many calls to measure (default: until the fastest of them agree).",
)
@click.option(
    "--trace",
    type=AnyFile(),
    metavar="FILE",
    help="Write a trace for chrome://tracing and Perfetto.",
)
@json_option
def command(
    model: str,
    inputs: InputOptions,
    backend: str | None,
    device: str | None,
    precision: str,
    by: str,
    rows: int,
    calls: int | None,
    trace: str | None,
    as_json: bool,
) -> None:
    """Measure where the time of a call goes.

    Inputs that no file has are drawn. The rows sum up the nodes of the model, as `model.profile`
    measures them.
    """
    require_onnx(model)
    with working("loading"):
        measured: Model = loaded(model, Place(backend, device, precision))
    feeds = feeds_of(measured, inputs).inputs
    with working("measuring"):
        found = profile(measured, feeds, calls=calls)
    if trace is not None:
        _save(found, trace)
    if as_json:
        put_json(found.as_dict())
        return
    console = screen()
    console.print(f"{printable(model)} on {measured.backend}", style="bold")
    console.print(f"{printable(described(feeds)) or 'without inputs'}\n")
    console.print(
        f"{duration(found.total)} per call (fastest of {found.calls}), "
        f"{duration(found.accounted)} in the rows; {found.tier}."
    )
    console.print(f"{found.method}; {scaling_text(found)}\n", style="dim")
    put(console, grid(_parts(found), "cyan", "number", "number"))
    console.print()
    put(console, grid(_rows(found, by, rows), "cyan", *["number"] * 5))
    if trace is not None:
        console.print(f"\nThe trace is in {printable(trace)}.")


def _save(found: Profile, path: str) -> None:
    try:
        found.save(path)
    except OSError as error:
        raise InvalidInput(f"The trace '{path}' cannot be written: {error.strerror}.") from None


def _parts(found: Profile) -> Iterator[tuple[str, str, str]]:
    """Yield the segments and the rest of a call."""
    for segment in found.segments:
        title = f"segment {segment.number}, {segment.tier}, {segment.steps} steps"
        yield title, duration(segment.seconds), _share(found, segment.seconds)
    for name, seconds in found.rest.items():
        yield name, signed(seconds), _share(found, seconds)
    yield REMAINDER, signed(found.remainder), _share(found, found.remainder)


def _rows(found: Profile, by: str, most: int) -> Iterator[Sequence[str]]:
    yield "node" if by == "name" else by, "time", "share", "bytes", "operations", "nodes"
    groups = found.by(by)
    for group in groups[:most]:
        yield (
            printable(group.name, LONGEST_NAME) or "without a name",
            duration(group.seconds),
            _share(found, group.seconds),
            bytes_text(group.bytes),
            short(group.operations),
            f"{group.nodes:,}",
        )
    if len(groups) > most:
        seconds = sum(group.seconds for group in groups[most:])
        rest = f"{len(groups) - most:,} more"
        yield rest, duration(seconds), _share(found, seconds), "", "", ""


def _share(found: Profile, seconds: float) -> str:
    return f"{100 * seconds / found.total if found.total else 0:.1f}%"
