"""`sardonyx ops`: all operators, or one of them in detail."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from sardonyx.cli.command import command as as_command
from sardonyx.cli.json_output import put_json
from sardonyx.cli.operator_list import OperatorRow, details, names, rows
from sardonyx.cli.operator_page import page
from sardonyx.cli.options import json_option, quiet_option
from sardonyx.cli.tables import grid, put, screen


class OperatorName(click.ParamType):
    """The name of an operator; shells complete it."""

    name = "operator"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        start = incomplete.lower()
        return [CompletionItem(name) for name in names() if name.lower().startswith(start)]


@as_command("ops")
@click.argument("operator", metavar="[OPERATOR]", type=OperatorName(), required=False)
@click.option("--markdown", is_flag=True, help="Print the page docs/operators.md.")
@json_option
@quiet_option
def command(operator: str | None, markdown: bool, as_json: bool, quiet: bool) -> None:
    """Print all operators, or the details of one.

    The columns JAX and CuPy say where an operator runs if its inputs are not known while tracing.
    OPERATOR is a name such as Softmax, with its domain if it is not ONNX's own
    (com.microsoft::Gelu) or if several have it; the letters may be small.
    """
    if markdown and (operator or as_json):
        raise click.UsageError("--markdown prints the whole page: leave out all else.")
    if markdown:
        click.echo(page(), nl=False)
        return
    if operator is not None:
        facts = details(operator)
        if quiet:
            return
        if as_json:
            put_json(facts)
        else:
            _put_details(facts)
        return
    if quiet:
        return
    listed = list(rows())
    if as_json:
        put_json([row._asdict() for row in listed])
    else:
        _put_rows(listed)


def _put_rows(listed: list[OperatorRow]) -> None:
    console = screen()
    cells = [(row.operator, _span(row.versions), row.jax, row.cupy) for row in listed]
    header = ("operator", "opsets", "JAX", "CuPy")
    put(console, grid([header, *cells], "cyan", "none", "none", "none"))
    console.print(f"\n{len(listed)} operators. `sardonyx ops NAME` has the details of one.")


def _span(versions: tuple[int, ...]) -> str:
    """Return the first and the last opset, and how many changed the operator between them."""
    if len(versions) < 2:
        return "".join(map(str, versions))
    return f"{versions[0]} to {versions[-1]}"


def _put_details(facts: dict[str, object]) -> None:
    console = screen()
    for i, (title, content) in enumerate(facts.items()):
        if isinstance(content, list):
            console.print(f"\n{title}", style="bold")
            put(console, grid([tuple(map(str, row)) for row in content], "cyan", "none", "dim"))
        else:
            console.print(f"{content}" if not i else f"{title}: {content}", style="bold" * (not i))
