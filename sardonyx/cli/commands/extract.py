"""`sardonyx extract`: a part of a model as a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from sardonyx.cli.command import command as as_command
from sardonyx.cli.exported import require_onnx
from sardonyx.cli.model_files import external_option
from sardonyx.cli.options import model_argument, output_option, quiet_option
from sardonyx.display.units import counted
from sardonyx.printable import printable
from sardonyx.progress import working
from sardonyx.saving.api import LARGEST_INSIDE
from sardonyx.saving.extraction import extracted
from sardonyx.saving.files import write_model


@as_command("extract")
@model_argument
@click.option(
    "--from",
    "starts",
    multiple=True,
    metavar="NAME",
    help="A value that becomes an input; repeat it for others (default: the model's inputs).",
)
@click.option(
    "--to",
    "ends",
    multiple=True,
    metavar="NAME",
    help="A value that becomes an output; repeat it for others (default: the model's outputs).",
)
@output_option("Where to write.", required=True)
@external_option
@quiet_option
def command(
    model: str,
    starts: Sequence[str],
    ends: Sequence[str],
    output: str,
    external: bool | None,
    quiet: bool,
) -> None:
    """Write a part of a model as a model.

    NAME is a value of the graph, a node (its outputs are meant), or a pattern such as 'blocks.0.*'.
    Inputs of the model that the part reads besides remain its inputs. Weights, subgraphs and
    functions that the part needs go with it.
    """
    if not starts and not ends:
        raise click.UsageError("Without --from and --to the part is the whole model: pass one.")
    require_onnx(model)
    with working("extracting"):
        part = extracted(model, starts, ends)
    size = sum(array.nbytes for array in part.weights.values())
    is_external = size >= LARGEST_INSIDE if external is None else external
    graph = part.proto.graph
    report = (
        f"{output}: {counted(len(graph.node), 'node')}, {counted(len(part.weights), 'weight')}, "
        f"{', '.join(each.name for each in graph.input) or 'no inputs'} -> "
        f"{', '.join(each.name for each in graph.output)}"
    )
    with working("writing"):
        write_model(part.proto, part.weights, Path(output), is_external=is_external)
    if not quiet:
        click.echo(printable(report))
