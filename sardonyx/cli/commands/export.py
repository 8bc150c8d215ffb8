"""`sardonyx export`: a portable program for platforms that need not be here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import click

from sardonyx.cli.command import PairsOption, flattened
from sardonyx.cli.command import command as as_command
from sardonyx.cli.exported import require_onnx
from sardonyx.cli.options import (
    model_argument,
    output_option,
    precision_option,
    quiet_option,
    shape_option,
)
from sardonyx.cli.shapes import free_shape
from sardonyx.display.units import bytes_text
from sardonyx.errors import InvalidInput
from sardonyx.exporting.api import export
from sardonyx.printable import printable
from sardonyx.progress import working

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
_LARGEST = re.compile(r"(?:(?P<name>[^=]+)=)?(?P<size>[1-9]\d{0,8})", re.ASCII)


@as_command("export")
@model_argument
@output_option("Where to write the program, with its weights.", required=True)
@click.option(
    "--platform",
    "platforms",
    multiple=True,
    type=click.Choice(PLATFORMS),
    help="Where it runs; repeat it for others (default: cpu, cuda and tpu).",
)
@shape_option(
    "The shapes of inputs, whose sizes are numbers or names of free sizes, as in x=batch,3,224,224 "
    "(default: as the model declares)."
)
@click.option(
    "--largest",
    cls=PairsOption,
    metavar="[NAME=]SIZE",
    help="The largest free size, for all names or for one.",
)
@precision_option()
@quiet_option
def command(
    model: str,
    output: str,
    platforms: Sequence[str],
    shapes: Sequence[Sequence[str]],
    largest: Sequence[Sequence[str]],
    precision: str,
    quiet: bool,
) -> None:
    """Write a portable program for CPUs, GPUs and TPUs.

    sardonyx.load(FILE) runs it wherever JAX has one of the platforms. See docs/export.md.
    """
    pairs = list(map(free_shape, flattened(shapes)))
    signature = dict(pairs)
    if len(signature) < len(pairs):
        raise click.UsageError("An input has two shapes: pass one --shape for it.")
    require_onnx(model)
    options: dict[str, Any] = {"largest": _sizes(flattened(largest)), "precision": precision}
    if platforms:
        options["platforms"] = tuple(dict.fromkeys(platforms))
    with working("exporting"):
        artefact = export(model, signature or None, **options)
    try:
        artefact.save(output)
    except OSError as error:
        raise InvalidInput(f"'{output}' cannot be written: {error.strerror or error}.") from None
    if not quiet:
        _put(output, artefact)


def _sizes(texts: Sequence[str]) -> int | dict[str, int] | None:
    """Return one largest size, or one for each name."""
    matches = [_LARGEST.fullmatch(text) for text in texts]
    sizes = {m["name"]: int(m["size"]) for m in matches if m is not None}
    if len(sizes) < len(texts) or (None in sizes and len(sizes) > 1):
        raise click.UsageError("--largest is a SIZE, or NAME=SIZE as in --largest batch=64.")
    return sizes.get(None) or sizes or None


def _put(output: str, artefact: Any) -> None:
    size = len(artefact.program) + sum(array.nbytes for array in artefact.arrays.values())
    lines = [f"{output}: for {', '.join(artefact.platforms)}, {bytes_text(size)}"]
    lines += [f"input   {info}" for info in artefact.inputs]
    lines += [f"output  {info}" for info in artefact.outputs]
    lines += [f"bound   {bound}" for bound in artefact.bounds]
    for line in lines:
        click.echo(printable(line))
