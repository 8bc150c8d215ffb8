"""Tables for terminals: columns of plain text, in lines of bounded length."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sardonyx.display.units import more_text
from sardonyx.printable import printable, shortened

# What a terminal shows without scrolling.
WIDTH = 100
MOST_LINES = 20
LONGEST_CELL = 60


def aligned(
    rows: Iterable[Sequence[object]], *, numbers: Sequence[int] = (), indent: str = "  "
) -> list[str]:
    """Return the rows as lines with aligned columns; those in `numbers` are aligned to the right.

    >>> aligned([("a", 5), ("long", 12)], numbers=[1])
    ['  a      5', '  long  12']
    """
    cells = [[printable(str(cell), LONGEST_CELL) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        fitted = [
            cell.rjust(width) if i in numbers else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(shortened(f"{indent}{'  '.join(fitted)}".rstrip(), WIDTH))
    return lines


def on_screen(text: str) -> str:
    """Return the beginning of a text: as many lines, as long, as a terminal shows.

    >>> on_screen("a\\nb") == "a\\nb", on_screen("line\\n" * 30).splitlines()[-1]
    (True, '… 11 more lines, which print() shows')
    """
    lines = text.splitlines()
    if len(lines) > MOST_LINES:
        rest = f"{more_text(len(lines) - MOST_LINES + 1)} lines, which print() shows"
        lines = [*lines[: MOST_LINES - 1], rest]
    return "\n".join(shortened(line, WIDTH) for line in lines)


def at_most(items: Sequence[str], most: int) -> str:
    """Return names in one line, and how many are left out.

    >>> at_most(["a", "b", "c", "d"], 2)
    'a, b, … 2 more'
    """
    names = [printable(item, LONGEST_CELL) for item in items[:most]]
    rest = [more_text(len(items) - most)] if len(items) > most else []
    return ", ".join([*names, *rest])
