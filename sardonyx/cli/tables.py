"""Text for people: tables with colour in a terminal, plain lines in a pipe."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

WIDTH_OF_PIPES = 100


def screen() -> Console:
    """Where commands print. Text is taken as it is: names in models may well look like markup."""
    width = None if sys.stdout.isatty() else WIDTH_OF_PIPES
    return Console(width=width, markup=False, highlight=False, emoji=False)


def grid(*styles: str) -> Table:
    """An empty table without lines; one style for each column, and numbers to the right."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for style in styles:
        right = style == "number"
        table.add_column(
            style="bold" if right else style,
            justify="right" if right else "left",
            overflow="fold",
        )
    return table


def put(console: Console, table: Table) -> None:
    """Print a table, in a pipe without the blanks that fill its lines up."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    console.out("\n".join(line.rstrip() for line in captured.get().splitlines()))
