"""`sardonyx show`: a model's inputs, outputs and operators, or its graph as a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import click
from rich.table import Table

from sardonyx.backends import find
from sardonyx.cli.command import command as as_command
from sardonyx.cli.exported import require_onnx
from sardonyx.cli.graph_page import write_page
from sardonyx.cli.json_output import put_json
from sardonyx.cli.options import (
    AnyFile,
    backend_option,
    json_option,
    model_argument,
    shape_option,
)
from sardonyx.cli.shapes import call_of
from sardonyx.cli.tables import grid, put, screen
from sardonyx.errors import SardonyxError
from sardonyx.graph.checking.audit import all_nodes, audit
from sardonyx.graph.ir import Source, ValueInfo
from sardonyx.graph.loading.load import load_source
from sardonyx.graph.loading.read import read_model
from sardonyx.printable import LONGEST_NAME, printable

# Maximum characters of a property: exporters write whole configurations into them.
LONGEST_TEXT = 200


@as_command("show")
@model_argument
@backend_option("The backend to check.")
@click.option(
    "--html",
    is_flag=False,
    flag_value="",
    metavar="[OUT]",
    type=AnyFile(),
    help="Write the graph as an interactive page (default: MODEL with .html).",
)
@shape_option("With --html, the shapes of a call, whose kinds and segments the page then shows.")
@json_option
def command(
    model: str,
    backend: str | None,
    html: str | None,
    shapes: Sequence[Sequence[str]],
    as_json: bool,
) -> int:
    """Print the inputs, outputs and operators of a model.

    The status is 1 if the model cannot run; the reason is on the standard error.
    """
    require_onnx(model)
    if html is not None:
        if as_json:
            raise click.UsageError("--html writes a page: leave out --json.")
        click.echo(write_page(model, html, call_of(shapes), backend))
        return 0
    if shapes:
        raise click.UsageError("--shape has an effect only with --html.")
    source = load_source(*read_model(model))
    if as_json:
        return _put_json(source, backend)
    console = screen()
    put(console, _description(source))
    audit(source, strict=True)
    console.print(f"\nThe model can run; the backend is {find(backend).name}.")
    return 0


def _put_json(source: Source, backend: str | None) -> int:
    reason = None
    try:
        audit(source, strict=True)
    except SardonyxError as error:
        reason = str(error)
    graph = source.graph
    put_json(
        {
            "name": graph.name,
            "inputs": list(map(_info, graph.required_inputs)),
            "optional_inputs": list(map(_info, graph.optional_inputs)),
            "outputs": list(map(_info, graph.outputs)),
            "ir_version": source.ir_version,
            "opsets": {name or "ai.onnx": version for name, version in source.opsets.items()},
            "params": {
                "count": len(graph.initializers),
                "bytes": sum(array.nbytes for array in graph.initializers.values()),
            },
            "metadata": dict(source.metadata),
            "functions": ["::".join(filter(None, key)) for key in source.functions],
            "operators": dict(_operators(source).most_common()),
            "backend": find(backend).name,
            "can_run": reason is None,
            "reason": reason,
        }
    )
    return 0 if reason is None else 1


def _info(info: ValueInfo) -> dict[str, Any]:
    return {"name": info.name, "type": info.type, "shape": info.shape}


def _operators(source: Source) -> Counter[str]:
    return Counter(node.operator for node, _ in all_nodes(source))


def _description(source: Source) -> Table:
    graph = source.graph
    operators = _operators(source)
    counts = ", ".join(f"{count} {name}" for name, count in operators.most_common())
    opsets = ", ".join(f"{name or 'ai.onnx'} {v}" for name, v in source.opsets.items())
    sizes = [array.nbytes for array in graph.initializers.values()]
    rows = [
        ("inputs", "\n".join(map(str, graph.required_inputs))),
        ("outputs", "\n".join(map(str, graph.outputs))),
        ("opsets", printable(opsets)),
        ("params", f"{len(sizes)}, {sum(sizes):,} bytes"),
        *((printable(name, LONGEST_NAME), _abridged(t)) for name, t in source.metadata.items()),
        ("nodes", f"{operators.total()}: {printable(counts)}"),
    ]
    return grid(rows, "bold", "none")


def _abridged(text: str) -> str:
    shown = printable(text[:LONGEST_TEXT])
    return f"{shown}... ({len(text):,} characters)" if len(text) > LONGEST_TEXT else shown
