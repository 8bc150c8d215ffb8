"""Tables for the command line: with colour in a terminal, as plain lines in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

WIDTH_OF_PIPES = 100


class Screen(Console):
    """The console for commands: without markup, since names in models can look like it."""

    def __init__(self) -> None:
        is_terminal = sys.stdout is not None and sys.stdout.isatty()
        width = None if is_terminal else WIDTH_OF_PIPES
        super().__init__(width=width, markup=False, highlight=False, emoji=False)

    def on_broken_pipe(self) -> None:
        """Leave it to the command, which ends as others do whose reader is gone."""
        raise BrokenPipeError


def screen() -> Screen:
    """Return the console for commands."""
    return Screen()


def grid(rows: Iterable[Sequence[str]], *styles: str) -> Table:
    """Return a table without lines, with one style per column; "number" aligns right."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for style in styles:
        right = style == "number"
        table.add_column(
            style="bold" if right else style,
            justify="right" if right else "left",
            overflow="fold",
        )
    for row in rows:
        table.add_row(*row)
    return table


def put(console: Console, table: Table) -> None:
    """Print a table; in a pipe without trailing blanks."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    console.out("\n".join(line.rstrip() for line in captured.get().splitlines()))
