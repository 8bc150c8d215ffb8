"""Initializers as a table: for terminals the first ones, for notebooks as a tree of their names.

Nothing is fetched from a device for it, and no more than a few megabytes are read from a file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sardonyx.backends.dtypes import kind_of
from sardonyx.backends.executable import Spec
from sardonyx.display.markup import Html, code, joined, muted
from sardonyx.display.scopes import grouped, scope_tree
from sardonyx.display.tables import table
from sardonyx.display.text import MOST_LINES, aligned
from sardonyx.display.units import bytes_text, counted, more_text
from sardonyx.graph.standard.types import short_name

# Maximum bytes that are read for the figures of one array, and for all arrays of a display.
MOST_READ = 4 * 2**20
MOST_READ_IN_ALL = 16 * 2**20
_MOST_ROWS = 30


@dataclass(frozen=True, eq=False, slots=True)
class Entry:
    """An initializer: its name, dtype and shape, and how to read it where it is on the host."""

    name: str
    spec: Spec
    at_hand: Callable[[str], np.ndarray[Any, Any] | None] = lambda name: None

    @property
    def nbytes(self) -> int:
        return math.prod(self.spec.shape) * self.spec.dtype.itemsize

    @property
    def dtype(self) -> str:
        return short_name(self.spec.dtype)

    @property
    def shape(self) -> str:
        return str(list(self.spec.shape))


def head_of(entries: Sequence[Entry]) -> str:
    """Return the number and the size of initializers."""
    size = sum(entry.nbytes for entry in entries)
    return f"{counted(len(entries), 'param')}, {size:,} bytes"


def params_text(entries: Sequence[Entry]) -> str:
    """Return the first initializers as lines of a screen."""
    most = MOST_LINES - 2
    rows = [(e.name, e.dtype, e.shape, bytes_text(e.nbytes)) for e in entries[:most]]
    lines = [head_of(entries), *aligned(rows, numbers=[3])]
    if len(entries) > most:
        lines.append(f"  {more_text(len(entries) - most)}")
    return "\n".join(lines)


def params_parts(entries: Sequence[Entry]) -> list[Html]:
    """Return the largest initializers as a table with figures, and all of them as a tree."""
    largest = sorted(entries, key=lambda entry: -entry.nbytes)
    left = MOST_READ_IN_ALL
    rows = []
    for entry in largest[:_MOST_ROWS]:
        figures, read = _figures(entry, left)
        left -= read
        rows.append(
            (code(entry.name), entry.dtype, entry.shape, bytes_text(entry.nbytes), *figures)
        )
    titles = ("name", "dtype", "shape", "bytes", "min", "mean", "max")
    shown = table(titles, _padded(rows), total=len(entries), numbers=[3, 4, 5, 6])
    return [shown, *([params_tree(entries)] if len(entries) > 1 else [])]


def params_tree(entries: Sequence[Entry]) -> Html:
    """Return initializers as a tree of their names, with the sizes of its branches."""

    def summary(inner: Sequence[Entry]) -> str:
        return f"{counted(len(inner), 'param')}, {bytes_text(sum(e.nbytes for e in inner))}"

    def line(name: str, entry: Entry) -> Html:
        about = f"{entry.dtype}{entry.shape}, {bytes_text(entry.nbytes)}"
        return joined([code(name), " ", muted(about)])

    return scope_tree(grouped((e.name, e) for e in entries), summary, line)


def _padded(rows: Iterable[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return [(*row, *[""] * (7 - len(row))) for row in rows]


def _figures(entry: Entry, left: int) -> tuple[tuple[str, ...], int]:
    """Return minimum, mean and maximum, if they are cheap to read, and the bytes that were read."""
    if not 0 < entry.nbytes <= min(MOST_READ, left):
        return (), 0
    if kind_of(entry.spec.dtype) not in ("real floating", "signed integer", "unsigned integer"):
        return (), 0
    array = entry.at_hand(entry.name)
    if array is None:
        return (), 0
    # Types that NumPy does not know itself have no sums.
    numbers = array.astype(np.float32) if array.dtype.kind == "V" else array
    with np.errstate(all="ignore"):
        figures = numbers.min(), numbers.mean(dtype=np.float64), numbers.max()
    return tuple(f"{float(figure):.4g}" for figure in figures), entry.nbytes
