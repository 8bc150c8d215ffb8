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
    OutputFile,
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
    type=OutputFile(),
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
        loaded_model: Model = loaded(model, Place(backend, device, precision))
    feeds = feeds_of(loaded_model, inputs).inputs
    with working("measuring"):
        times = profile(loaded_model, feeds, calls=calls)
    if trace is not None:
        _save(times, trace)
    if as_json:
        put_json(times.as_dict())
        return
    console = screen()
    console.print(f"{printable(model)} on {loaded_model.backend}", style="bold")
    console.print(f"{printable(described(feeds)) or 'without inputs'}\n")
    console.print(
        f"{duration(times.total)} per call (fastest of {times.calls}), "
        f"{duration(times.accounted)} in the rows; {times.tier}."
    )
    console.print(f"{times.method}; {scaling_text(times)}\n", style="dim")
    put(console, grid(_parts(times), "cyan", "number", "number"))
    console.print()
    put(console, grid(_rows(times, by, rows), "cyan", *["number"] * 5))
    if trace is not None:
        console.print(f"\nThe trace is in {printable(trace)}.")


def _save(times: Profile, path: str) -> None:
    try:
        times.save(path)
    except OSError as error:
        raise InvalidInput(f"The trace '{path}' cannot be written: {error.strerror}.") from None


def _parts(times: Profile) -> Iterator[tuple[str, str, str]]:
    """Yield the segments and the rest of a call."""
    for segment in times.segments:
        title = f"segment {segment.number}, {segment.tier}, {segment.steps} steps"
        yield title, duration(segment.seconds), _share(times, segment.seconds)
    for name, seconds in times.rest.items():
        yield name, signed(seconds), _share(times, seconds)
    yield REMAINDER, signed(times.remainder), _share(times, times.remainder)


def _rows(times: Profile, by: str, most: int) -> Iterator[Sequence[str]]:
    yield "node" if by == "name" else by, "time", "share", "bytes", "operations", "nodes"
    groups = times.by(by)
    for group in groups[:most]:
        yield (
            printable(group.name, LONGEST_NAME) or "without a name",
            duration(group.seconds),
            _share(times, group.seconds),
            bytes_text(group.bytes),
            short(group.operations),
            f"{group.nodes:,}",
        )
    if len(groups) > most:
        seconds = sum(group.seconds for group in groups[most:])
        rest = f"{len(groups) - most:,} more"
        yield rest, duration(seconds), _share(times, seconds), "", "", ""


def _share(times: Profile, seconds: float) -> str:
    return f"{100 * seconds / times.total if times.total else 0:.1f}%"
